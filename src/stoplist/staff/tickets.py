"""Tickets: that somebody proved his password a moment ago, and a code is still asked for.

The text says for whom, until when and with which password, and a MAC over it; nothing is stored. A new password or a
closed door makes it worthless, since whoever reads it compares with what is stored.
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
    """Whose password was right; `password_mark` tells whether it is still the same one."""

    person_id: int
    password_mark: bytes


def make_ticket(secret_keys: Sequence[str], *, person_id: int, password_hash: str, now_ms: int) -> str:
    """A ticket that is good for 5 minutes: 86 characters of `[A-Za-z0-9_-]`."""
    packed = person_id.to_bytes(_ID_BYTES) + (now_ms + TICKET_TTL_MS).to_bytes(_TIME_BYTES) + mark_of(password_hash)
    return base64.urlsafe_b64encode(packed + _mac(secret_keys[0], packed)).rstrip(b"=").decode()


def read_ticket(secret_keys: Sequence[str], ticket: str, *, now_ms: int) -> Ticket | None:
    """What the ticket says; None unless one of the keys made it less than 5 minutes ago."""
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


def mark_of(password_hash: str) -> bytes:
    """What stands in a ticket for a password: it tells two apart, and nothing of either."""
    return hashlib.sha256(password_hash.encode()).digest()[:_PASSWORD_BYTES]


def _mac(secret_key: str, packed: bytes) -> bytes:
    return hmac.digest(secret_key.encode(), _PURPOSE + packed, hashlib.sha256)
