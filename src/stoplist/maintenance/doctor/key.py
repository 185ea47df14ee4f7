"""Checks the secret key: present, long enough, and comparable between hosts by a fingerprint."""

import hashlib
from pathlib import Path

from stoplist.maintenance.doctor.finding import Finding, ok, wrong
from stoplist.secret_key import FILE_NAME
from stoplist.settings import Settings

CHECK = "secret key"
_MIN_CHARS = 32


def secret_key(settings: Settings, *, is_needed: bool) -> Finding:
    """Check the secret key. `is_needed`: cursors authenticated with the key may exist, so it must not be replaced."""
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
    if len(key) < _MIN_CHARS:
        return wrong(CHECK, f"{path} is shorter than {_MIN_CHARS} characters: restore it from its backup.")
    return ok(CHECK, f"{_fingerprint(key)}: {path} exists; keep a copy of it apart from the database's backups.")


def _missing(path: Path, *, is_needed: bool) -> Finding:
    if is_needed:
        return wrong(
            CHECK,
            f"{path} is missing: restore it from its backup. A server would create another key, with which every "
            "cursor that partners hold is refused.",
        )
    return ok(CHECK, f"{path} does not exist yet: the first start creates it.")


def _fingerprint(key: str) -> str:
    """Return a fingerprint to compare, too short to reveal a random key."""
    return f"fingerprint {hashlib.sha256(key.encode()).hexdigest()[:8]}"
