"""The sweep over all connections of a server, once a second: their deadlines, and what they keep in memory.

Source: docs/interface.md section D4, Connections.
"""

import asyncio
import logging
from email.utils import formatdate
from typing import cast

from stoplist.server.freed_memory import FreedMemory
from stoplist.server.http_protocol import WireProtocol
from stoplist.server.wire_state import WireState

_LOG = logging.getLogger(__name__)
_WARNING_EVERY_S = 60.0


class Sweep:
    """Sweeps over the connections of one server, and remembers what it has warned of."""

    def __init__(self, state: WireState) -> None:
        self._state = state
        self._reported_closed, self._next_warning_s = 0, 0.0
        self._freed_memory = FreedMemory()

    def run(self) -> None:
        """Enforce the bounds of all connections, and renew the `Date` of the answers."""
        self.date_answers()
        self._warn_of_full_table()
        self._state.now_s = now_s = asyncio.get_running_loop().time()
        for connection in tuple(self._state.connections):
            cast("WireProtocol", connection).enforce_bounds(now_s)
        self._bound_unread_answers()
        self._freed_memory.note(len(self._state.connections))

    def date_answers(self) -> None:
        """Set the `Date` of all answers until the next sweep (RFC 9110 section 6.6.1)."""
        date = (b"date", formatdate(usegmt=True).encode("ascii"))
        self._state.default_headers = [date, *self._state.fixed_headers]

    def _bound_unread_answers(self) -> None:
        """Close connections whose clients have stopped reading, the longest first, while all answers take too much."""
        state, bounds = self._state, self._state.bounds
        connections = cast("set[WireProtocol]", state.connections)
        excess_bytes = sum(one.unread_answer.size_bytes for one in connections) - bounds.unread_bytes
        if excess_bytes <= 0:
            return
        for connection in sorted(connections, key=lambda one: one.unread_answer.since_s):
            unread = connection.unread_answer
            if excess_bytes <= 0 or state.now_s - unread.since_s < bounds.stalled_s:
                return
            if unread.size_bytes:
                excess_bytes -= unread.size_bytes
                connection.abort()

    def _warn_of_full_table(self) -> None:
        closed, now_s = self._state.table.closed, self._state.now_s
        if closed > self._reported_closed and now_s >= self._next_warning_s:
            _LOG.warning(
                "Too many connections: %d were closed, the longest idle first, to accept others "
                "(STOPLIST_CONNECTIONS, STOPLIST_CONNECTIONS_PER_SOURCE).",
                closed - self._reported_closed,
            )
            self._reported_closed, self._next_warning_s = closed, now_s + _WARNING_EVERY_S
