"""Signs the field that undoes a click, and binds it to the submission, the link and its expiry.

Source: docs/interface.md section D15, Undo.
"""

import hashlib
import hmac
import re
from collections.abc import Sequence

from stoplist import ids

LIFETIME_MS = 15 * 60 * 1000

_MAC_CHARS = 43
_FORM = re.compile(rf"([0-9]{{1,15}})\.({ids.SUBMISSION_ID}[0-9A-Za-z]+)\.([0-9a-f]{{{_MAC_CHARS}}})")


def undo_field(secret_keys: Sequence[str], *, token: str, submission_id: str, now_ms: int) -> str:
    """Return the content of the field."""
    expires_ms = now_ms + LIFETIME_MS
    return f"{expires_ms}.{submission_id}.{_mac(secret_keys[0], token, submission_id, expires_ms)}"


def read_undo_field(secret_keys: Sequence[str], field: str, *, token: str, now_ms: int) -> str | None:
    """Return the submission to undo, or None for a field that has expired, was altered, or is of another link."""
    match = _FORM.fullmatch(field)
    if match is None:
        return None
    expires_ms, submission_id, mac = int(match[1]), match[2], match[3]
    if expires_ms < now_ms:
        return None
    if any(hmac.compare_digest(mac, _mac(key, token, submission_id, expires_ms)) for key in secret_keys):
        return submission_id
    return None


def _mac(secret_key: str, token: str, submission_id: str, expires_ms: int) -> str:
    bound = f"undo 1|{token}|{submission_id}|{expires_ms}".encode()
    return hmac.digest(secret_key.encode(), bound, hashlib.sha256).hex()[:_MAC_CHARS]
