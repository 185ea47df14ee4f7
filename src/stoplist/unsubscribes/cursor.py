"""Cursors: a position in a feed, authenticated and bound to the request that it was made for.

The text holds the number of the last change seen and a MAC. The MAC also covers the feed, its generation and the group,
which the text does not contain, so a cursor made for another request is refused like an altered one.
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
UNUSABLE_CURSOR = (
    "This cursor cannot be used here: it was altered, made for another organization, channel or group, "
    "or is from before a restore. Read anew without a cursor."
)


def make_cursor(secret_keys: Sequence[str], *, feed_id: int, generation: str, group_id: str | None, seq: int) -> str:
    """Return the cursor for the position after the change `seq`: 32 characters of `[A-Za-z0-9_-]`."""
    packed = seq.to_bytes(_SEQ_BYTES)
    return base64.urlsafe_b64encode(packed + _mac(secret_keys[0], packed, feed_id, generation, group_id)).decode()


def read_cursor(secret_keys: Sequence[str], cursor: str, *, feed_id: int, generation: str, group_id: str | None) -> int:
    """Return the number of the change after which the cursor stands.

    Raise InvalidCursor unless one of the keys made the cursor for exactly this feed, generation and group.
    """
    if not _FORM.fullmatch(cursor):
        raise InvalidCursor(UNUSABLE_CURSOR)
    content = base64.urlsafe_b64decode(cursor)
    packed, mac = content[:_SEQ_BYTES], content[_SEQ_BYTES:]
    if not any(hmac.compare_digest(mac, _mac(key, packed, feed_id, generation, group_id)) for key in secret_keys):
        raise InvalidCursor(UNUSABLE_CURSOR)
    return int.from_bytes(packed)


def _mac(secret_key: str, packed: bytes, feed_id: int, generation: str, group_id: str | None) -> bytes:
    bound_to = f"cursor 1|{feed_id}|{generation}|{group_id or ''}|".encode()
    return hmac.digest(secret_key.encode(), bound_to + packed, hashlib.sha256)[:_MAC_BYTES]
