"""Bounds the connections of a server, in all and of one source, and the memory of requests that are not complete.

The connection that has been idle longest makes room, so nobody new is refused because others hold connections open. A
connection whose request is being answered is never closed for another.
Source: docs/interface.md section D4, Connections.
"""

import math
from collections import OrderedDict
from collections.abc import Callable
from typing import Protocol

from stoplist.server.bounds import Bounds
from stoplist.source import source_key

NOT_LISTED = -math.inf


class BoundedConnection(Protocol):
    """A connection, as far as its bounds need it."""

    listed_s: float
    """The time of the last `ConnectionTable.touch`, or NOT_LISTED."""

    @property
    def is_idle(self) -> bool:
        """Return whether the server waits for this client."""

    @property
    def is_sending_body(self) -> bool:
        """Return whether it waits for the rest of a body. Such connections are closed last."""

    def abort(self) -> None:
        """Close the connection at once."""


class _Queue:
    """Connections, all or those of one source, by how soon they may be closed."""

    __slots__ = ("bound", "idle", "number", "sending", "source")

    def __init__(self, bound: int, source: str | None = None) -> None:
        self.bound, self.source = bound, source
        self.number = 0
        # The longest idle first. Both lists may hold connections that are being answered meanwhile: they leave when one
        # is looked at, and return at their next `touch`. So a request moves its connection at most once a second.
        self.idle: OrderedDict[BoundedConnection, None] = OrderedDict()
        self.sending: OrderedDict[BoundedConnection, None] = OrderedDict()


class _Incomplete:
    """The memory of the heads, or of the bodies, that are not complete, by connection."""

    def __init__(self) -> None:
        self.size_bytes = 0
        self._sizes: OrderedDict[BoundedConnection, int] = OrderedDict()

    @property
    def oldest(self) -> BoundedConnection:
        return next(iter(self._sizes))

    def add(self, connection: BoundedConnection, size_bytes: int) -> None:
        self.size_bytes += size_bytes - self._sizes.get(connection, 0)
        self._sizes[connection] = size_bytes

    def remove(self, connection: BoundedConnection) -> None:
        self.size_bytes -= self._sizes.pop(connection, 0)


class ConnectionTable:
    """The open connections by source. A trusted proxy is no source: it speaks for many."""

    def __init__(self, bounds: Bounds, is_trusted: Callable[[str], bool]) -> None:
        self._bounds, self._is_trusted = bounds, is_trusted
        self._all = _Queue(bounds.connections)
        self._by_source: dict[str, _Queue] = {}
        self._queues: dict[BoundedConnection, tuple[_Queue, ...]] = {}
        # Two bounds, so that a flood of bodies never closes a connection for a head that comes in two pieces.
        self._heads, self._bodies = _Incomplete(), _Incomplete()
        self.closed = 0
        """The number of connections that were closed to make room."""
        self.looked_at = 0
        """The number of connections that were looked at for that."""

    def __len__(self) -> int:
        return self._all.number

    def add(self, connection: BoundedConnection, peer: str | None, now_s: float) -> None:
        """Add an open connection, and close another if there are too many."""
        queues = [self._all]
        if peer is not None and not self._is_trusted(peer):
            source = source_key(peer)
            of_source = self._by_source.get(source)
            if of_source is None:
                of_source = self._by_source[source] = _Queue(self._bounds.connections_per_source, source)
            queues.insert(0, of_source)
        self._queues[connection] = tuple(queues)
        for queue in queues:
            queue.number += 1
        self.touch(connection, now_s)
        for queue in queues:
            if queue.number > queue.bound:
                self._close_longest_idle(queue, connection)

    def remove(self, connection: BoundedConnection) -> None:
        """Remove a connection that is closed. May be repeated."""
        self.release(connection)
        for queue in self._queues.pop(connection, ()):
            queue.number -= 1
            queue.idle.pop(connection, None)
            queue.sending.pop(connection, None)
            if queue.source is not None and not queue.number:
                del self._by_source[queue.source]

    def touch(self, connection: BoundedConnection, now_s: float) -> None:
        """Note that the server waits for this client since now."""
        for queue in self._queues.get(connection, ()):
            queue.sending.pop(connection, None)
            queue.idle[connection] = None
            queue.idle.move_to_end(connection)
        connection.listed_s = now_s

    def hold(self, connection: BoundedConnection, size_bytes: int, *, is_body: bool) -> None:
        """Note the memory of an incomplete request; close others, the oldest first, if all together take too much."""
        held, other = (self._bodies, self._heads) if is_body else (self._heads, self._bodies)
        other.remove(connection)
        held.add(connection, size_bytes)
        while held.size_bytes > self._bounds.incomplete_bytes:
            self._close(held.oldest)

    def release(self, connection: BoundedConnection) -> None:
        """Note that the request is complete. May be repeated."""
        self._heads.remove(connection)
        self._bodies.remove(connection)

    def _close_longest_idle(self, queue: _Queue, new: BoundedConnection) -> None:
        """Close the one that has been idle longest; the new one if all others wait for their answers."""
        for connections in (queue.idle, queue.sending):
            while connections and (other := next(iter(connections))) is not new:
                self.looked_at += 1
                if other.is_idle and (connections is queue.sending or not other.is_sending_body):
                    self._close(other)
                    return
                del connections[other]
                other.listed_s = NOT_LISTED
                if other.is_idle:
                    queue.sending[other] = None
        self._close(new)

    def _close(self, connection: BoundedConnection) -> None:
        self.closed += 1
        self.remove(connection)
        connection.abort()
