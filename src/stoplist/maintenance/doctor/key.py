"""Checks the secret key: present, long enough, and comparable between hosts by a fingerprint."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

from stoplist.links.key_secrets import unreadable_link_keys_text
from stoplist.maintenance.doctor.finding import OK, Finding, ok, wrong
from stoplist.secret_key import FILE_NAME, MIN_CHARS
from stoplist.settings import Settings
from stoplist.staff.totp_secrets import unreadable_text

CHECK = "secret key"


def secret_key(
    settings: Settings, *, is_needed: bool, unreadable: Sequence[str] = (), unreadable_keys: Sequence[str] = ()
) -> Finding:
    """Check the secret key.

    `is_needed`: cursors authenticated with the key, or secrets encrypted with it, may exist, so it must not be
    replaced. `unreadable`: the e-mail addresses of people whose TOTP secrets it cannot read; `unreadable_keys`: the
    ids of such link keys.
    """
    finding = _presence(settings, is_needed=is_needed)
    texts = [unreadable_text(unreadable)] if unreadable else []
    texts += [unreadable_link_keys_text(unreadable_keys)] if unreadable_keys else []
    if not texts:
        return finding
    if finding.status != OK:
        texts.insert(0, finding.text.rstrip("."))
    return wrong(CHECK, " ".join(f"{text}." for text in texts))


def _presence(settings: Settings, *, is_needed: bool) -> Finding:
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
    if len(key) < MIN_CHARS:
        return wrong(CHECK, f"{path} is shorter than {MIN_CHARS} characters: restore it from its backup.")
    return ok(CHECK, f"{_fingerprint(key)}: {path} exists; keep a copy of it apart from the database's backups.")


def _missing(path: Path, *, is_needed: bool) -> Finding:
    if is_needed:
        return wrong(
            CHECK,
            f"{path} is missing: restore it from its backup. With another key every cursor that partners hold is "
            "refused, and neither a TOTP secret nor a link key can be read.",
        )
    return ok(CHECK, f"{path} does not exist yet: the first start creates it.")


def _fingerprint(key: str) -> str:
    """Return a fingerprint to compare, too short to reveal a random key."""
    return f"fingerprint {hashlib.sha256(key.encode()).hexdigest()[:8]}"
