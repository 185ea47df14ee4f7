"""Cursors: where a follower stands in a feed, bound to what it asked for, and authenticated.

The text holds the number of the last change seen and a MAC; what the cursor is bound to is not in it, but goes into
the MAC, so that one made for anything else is refused like an altered one.
Source: docs/interface.md sections D4 and D6.
"""

import base64
import hashlib
import hmac
import re
from collections.abc import Sequence

from stoplist.errors import InvalidCursor

_MAC_BYTES = 16
_SEQ_BYTES = 8
_FORM = re.compile(rf"[A-Za-z0-9_-]{{{(_SEQ_BYTES + _MAC_BYTES) * 8 // 6}}}")
CANNOT_BE_USED = (
    "This cursor cannot be used here: it was altered, made for another organization, channel or group, "
    "or is from before a restore. Read anew without a cursor."
)


def make_cursor(secret_keys: Sequence[str], *, feed_id: int, generation: str, group_id: str | None, seq: int) -> str:
    """The cursor that stands after the change `seq`: 32 characters of `[A-Za-z0-9_-]`."""
    packed = seq.to_bytes(_SEQ_BYTES)
    return base64.urlsafe_b64encode(packed + _mac(secret_keys[0], packed, feed_id, generation, group_id)).decode()


def read_cursor(secret_keys: Sequence[str], cursor: str, *, feed_id: int, generation: str, group_id: str | None) -> int:
    """The change after which the cursor stands; InvalidCursor unless one of the keys made it for exactly this."""
    if not _FORM.fullmatch(cursor):
        raise InvalidCursor(CANNOT_BE_USED)
    content = base64.urlsafe_b64decode(cursor)
    packed, mac = content[:_SEQ_BYTES], content[_SEQ_BYTES:]
    if not any(hmac.compare_digest(mac, _mac(key, packed, feed_id, generation, group_id)) for key in secret_keys):
        raise InvalidCursor(CANNOT_BE_USED)
    return int.from_bytes(packed)


def _mac(secret_key: str, packed: bytes, feed_id: int, generation: str, group_id: str | None) -> bytes:
    bound_to = f"cursor 1|{feed_id}|{generation}|{group_id or ''}|".encode()
    return hmac.digest(secret_key.encode(), bound_to + packed, hashlib.sha256)[:_MAC_BYTES]
