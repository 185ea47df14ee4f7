"""Tickets, which prove between the two steps of signing in that the password was correct.

A ticket holds the person, the time of expiry and a mark of the password, with a MAC over them; nothing is stored. It
is worthless once the password changes or the account is disabled, since the reader compares it with the stored account.
Source: docs/interface.md section D11.
"""

import base64
import hashlib
import hmac
import re
from collections.abc import Sequence
from typing import NamedTuple

TICKET_TTL_MS = 300_000

_ID_BYTES, _TIME_BYTES, _PASSWORD_BYTES, _MAC_BYTES = 8, 8, 16, 32
_PACKED_BYTES = _ID_BYTES + _TIME_BYTES + _PASSWORD_BYTES
_FORM = re.compile(r"[A-Za-z0-9_-]{86}")
_PURPOSE = b"second step 1|"


class Ticket(NamedTuple):
    """The person whose password was correct. `password_mark` shows whether it is still the same password."""

    person_id: int
    password_mark: bytes


def make_ticket(secret_keys: Sequence[str], *, person_id: int, password_hash: str, now_ms: int) -> str:
    """Return a ticket that is valid for 5 minutes: 86 characters of `[A-Za-z0-9_-]`."""
    packed = (
        person_id.to_bytes(_ID_BYTES) + (now_ms + TICKET_TTL_MS).to_bytes(_TIME_BYTES) + password_mark(password_hash)
    )
    return base64.urlsafe_b64encode(packed + _mac(secret_keys[0], packed)).rstrip(b"=").decode()


def read_ticket(secret_keys: Sequence[str], ticket: str, *, now_ms: int) -> Ticket | None:
    """Return the content of the ticket, or None unless one of the keys signed it less than 5 minutes ago."""
    if not _FORM.fullmatch(ticket):
        return None
    content = base64.urlsafe_b64decode(ticket + "==")
    packed, mac = content[:_PACKED_BYTES], content[_PACKED_BYTES:]
    if not any(hmac.compare_digest(mac, _mac(key, packed)) for key in secret_keys):
        return None
    expires_ms = int.from_bytes(packed[_ID_BYTES : _ID_BYTES + _TIME_BYTES])
    if expires_ms <= now_ms:
        return None
    return Ticket(int.from_bytes(packed[:_ID_BYTES]), packed[_ID_BYTES + _TIME_BYTES :])


def password_mark(password_hash: str) -> bytes:
    """Return a mark that differs from password to password and reveals nothing about them."""
    return hashlib.sha256(password_hash.encode()).digest()[:_PASSWORD_BYTES]


def _mac(secret_key: str, packed: bytes) -> bytes:
    return hmac.digest(secret_key.encode(), _PURPOSE + packed, hashlib.sha256)
