"""The secret key: there, long enough, and to be compared between hosts by a fingerprint."""

import hashlib
from pathlib import Path

from stoplist.maintenance.doctor.finding import Finding, ok, wrong
from stoplist.secret_key import FILE_NAME
from stoplist.settings import Settings

CHECK = "secret key"
_LEAST_CHARS = 32


def secret_key(settings: Settings, *, is_needed: bool) -> Finding:
    """`is_needed`: somebody may hold a cursor that was authenticated with the key, so that it must not be made anew."""
    if settings.secret_keys:
        return ok(CHECK, f"{_fingerprint(settings.secret_keys[0])}: it must be the same on every host.")
    path = settings.data_dir.absolute() / FILE_NAME
    try:
        key = path.read_text("utf-8").strip()
    except FileNotFoundError:
        return _missing(path, is_needed=is_needed)
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not text in UTF-8"
        return wrong(CHECK, f"{path} cannot be read by this account ({reason}): run this as the server's account.")
    if len(key) < _LEAST_CHARS:
        return wrong(CHECK, f"{path} is shorter than {_LEAST_CHARS} characters: restore it from where it was kept.")
    return ok(CHECK, f"{_fingerprint(key)}: {path} is there; keep a copy of it apart from the database's.")


def _missing(path: Path, *, is_needed: bool) -> Finding:
    if is_needed:
        return wrong(
            CHECK,
            f"{path} is not there: put it back from where it was kept. A server would make another one, with which "
            "every cursor that partners hold is refused.",
        )
    return ok(CHECK, f"{path} is not there yet: the first start makes it.")


def _fingerprint(key: str) -> str:
    """Enough to compare by, and nothing to guess a random key from."""
    return f"fingerprint {hashlib.sha256(key.encode()).hexdigest()[:8]}"
