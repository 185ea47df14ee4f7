"""Items, read lazily and cut into bodies by count and by bytes. Source: docs/interface.md section D6 (POST)."""

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

MOST_ITEMS = 10_000
MOST_BYTES = 8 * 1024 * 1024
# So many are read and encoded in one go: half a millisecond, after which an event loop gets its turn.
_AT_ONCE = 1_000


class Batch(Redacted, msgspec.Struct, frozen=True):
    """What one request holds: the items as they were given, where each stood in the whole call, and their JSON."""

    items: list[str | Item]
    indexes: Sequence[int]
    encoded: list[bytes]

    def __repr__(self) -> str:
        return f"Batch({len(self.items)} items)"


class Batches:
    """Reads the items of a call and cuts them, in their order."""

    def __init__(self, source: Any, encoder: Encoder, target: Target, *, most_items: int) -> None:
        self._source, self._encoder, self._most_items = source, encoder, most_items
        # In ASCII, whatever was named: what is no Unicode the service refuses.
        fields = json.dumps(target.fields())[1:-1]
        self._head = f'{{{fields}{", " if fields else ""}"items":['.encode()
        self._items: list[str | Item] = []
        self._encoded: list[bytes] = []
        self._size = self._read = 0

    def __repr__(self) -> str:
        return f"Batches({self._read} items read)"

    def further(self) -> Flow[Batch | None]:
        """The next batch, as large as it may be; None after the last one."""
        most = self._most_items
        most_bytes = MOST_BYTES - len(self._head) - len(b"]}") + len(b",")  # no comma after the last one
        while len(self._items) < most and self._size <= most_bytes:
            # What is taken gets no name here: if the next ones cannot be read, tracebacks show what has one.
            if not self._add((yield from take(self._source, min(_AT_ONCE, most - len(self._items))))):
                break
        if not self._items:
            return None
        return self._cut(len(self._items) if self._size <= most_bytes else self._fitting(most_bytes))

    def body(self, encoded: Sequence[bytes]) -> bytes:
        """The body of a request with these items."""
        return b"%b%b]}" % (self._head, b",".join(encoded))

    def _add(self, items: list[str | Item]) -> bool:
        """Whether there were any."""
        encoded = self._encoder.encoded(items, self._read)
        self._items += items
        self._encoded += encoded
        self._size += sum(map(len, encoded)) + len(encoded)  # each with its comma
        self._read += len(items)
        return bool(items)

    def _fitting(self, most_bytes: int) -> int:
        sizes = accumulate(len(piece) + 1 for piece in self._encoded)
        count = sum(1 for _ in takewhile(most_bytes.__ge__, sizes))
        if count == 0:
            index = self._read - len(self._items)
            raise ConfigurationError(f"Item {index} alone is larger than a request may be: 8 MiB.")
        return count

    def _cut(self, count: int) -> Batch:
        first = self._read - len(self._items)
        batch = Batch(self._items[:count], range(first, first + count), self._encoded[:count])
        self._items, self._encoded = self._items[count:], self._encoded[count:]
        self._size = sum(map(len, self._encoded)) + len(self._encoded)
        return batch
