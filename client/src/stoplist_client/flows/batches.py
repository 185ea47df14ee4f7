"""Reads items lazily, and divides them into request bodies by count and by bytes.

Source: docs/interface.md section D6 (POST).
"""

import json
from collections.abc import Sequence
from itertools import accumulate, takewhile
from typing import Any

import msgspec

from stoplist_client.errors import ConfigurationError
from stoplist_client.flows.acts import Encoder
from stoplist_client.flows.flow import Flow, take
from stoplist_client.flows.target import Target
from stoplist_client.model import Item
from stoplist_client.redacted import Redacted

MAX_ITEMS = 10_000
MAX_BODY_BYTES = 8 * 1024 * 1024
# Encoding this many takes half a millisecond, after which an event loop runs other tasks.
_ITEMS_PER_SLICE = 1_000


class Batch(Redacted, msgspec.Struct, frozen=True):
    """The items of one request as they were given, their positions in the whole call, and their JSON."""

    items: list[str | Item]
    indexes: Sequence[int]
    encoded: list[bytes]

    def __repr__(self) -> str:
        return f"Batch({len(self.items)} items)"


class Batches:
    """Reads the items of a call, and divides them into batches in order."""

    def __init__(self, source: Any, encoder: Encoder, target: Target, *, max_items: int) -> None:
        self._source, self._encoder, self._max_items = source, encoder, max_items
        # json.dumps writes ASCII, so that lone surrogates reach the service, which refuses them.
        fields = json.dumps(target.fields())[1:-1]
        self._head = f'{{{fields}{", " if fields else ""}"items":['.encode()
        self._items: list[str | Item] = []
        self._encoded: list[bytes] = []
        self._size = self._read = 0

    def __repr__(self) -> str:
        return f"Batches({self._read} items read)"

    def next_batch(self) -> Flow[Batch | None]:
        """Return the next batch, as large as possible, or None after the last one."""
        max_count = self._max_items
        max_bytes = MAX_BODY_BYTES - len(self._head) - len(b"]}") + len(b",")  # the last item has no comma
        while len(self._items) < max_count and self._size <= max_bytes:
            # The elements are not assigned to a variable: a traceback would show it if reading the next ones fails.
            if not self._add((yield from take(self._source, min(_ITEMS_PER_SLICE, max_count - len(self._items))))):
                break
        if not self._items:
            return None
        return self._take_batch(len(self._items) if self._size <= max_bytes else self._count_that_fits(max_bytes))

    def body(self, encoded: Sequence[bytes]) -> bytes:
        """Return the body of a request with these items."""
        return b"%b%b]}" % (self._head, b",".join(encoded))

    def _add(self, items: list[str | Item]) -> bool:
        """Add items, and return whether there were any."""
        encoded = self._encoder.encoded(items, self._read)
        self._items += items
        self._encoded += encoded
        self._size += sum(map(len, encoded)) + len(encoded)  # each with its comma
        self._read += len(items)
        return bool(items)

    def _count_that_fits(self, max_bytes: int) -> int:
        sizes = accumulate(len(piece) + 1 for piece in self._encoded)
        count = sum(1 for _ in takewhile(max_bytes.__ge__, sizes))
        if count == 0:
            index = self._read - len(self._items)
            raise ConfigurationError(f"Item {index} alone is larger than the maximum size of a request, 8 MiB.")
        return count

    def _take_batch(self, count: int) -> Batch:
        first = self._read - len(self._items)
        batch = Batch(self._items[:count], range(first, first + count), self._encoded[:count])
        self._items, self._encoded = self._items[count:], self._encoded[count:]
        self._size = sum(map(len, self._encoded)) + len(self._encoded)
        return batch
