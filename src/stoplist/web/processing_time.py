"""Limits the processor time that each client may make this process spend on items that are not plain.

A plain item takes a few microseconds, one with a long internationalized domain many times as long: a limit on requests
alone would let one key occupy the process. Source: docs/interface.md section D8, Processor time.
"""

import asyncio
from collections import deque

from stoplist.clock import Clock
from stoplist.errors import RateLimited
from stoplist.slicing import Work, yield_to_loop
from stoplist.web.body import ClientGone, until_disconnected
from stoplist.web.request_context import Receive

WINDOW_S = 60
MAX_EXTRA_S = 6
# What a plain item takes, with room for a slow machine.
_PLAIN_ITEM_NS = 10_000
_SECOND_NS = 1_000_000_000
# Less is not recorded: a few slow items among many requests are what limits on requests allow.
_LEAST_NS = 1_000_000


class ProcessingTime:
    """The extra time of each client in the last WINDOW_S: what its items took beyond as many plain ones."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # One entry for each second, so at most WINDOW_S + 1; the client that was charged last is at the end.
        self._spent: dict[str, deque[tuple[int, int]]] = {}
        self._total_ns: dict[str, int] = {}

    def check(self, client_id: str) -> None:
        """Raise RateLimited if the client has used its time, with the time until it may go on."""
        now_s = self._clock.monotonic_ns() // _SECOND_NS
        self._forget_expired(client_id, now_s)
        excess_ns = self._total_ns.get(client_id, 0) - MAX_EXTRA_S * _SECOND_NS
        if excess_ns <= 0:
            return
        retry_after_s = WINDOW_S
        for at_s, spent_ns in self._spent[client_id]:
            excess_ns -= spent_ns
            if excess_ns <= 0:
                retry_after_s = at_s + WINDOW_S - now_s
                break
        raise RateLimited(
            f"The items of this key took more than {MAX_EXTRA_S} s of processor time in {WINDOW_S} s, as thousands of "
            f"different internationalized domains do. Nothing of this request was stored: wait {retry_after_s} s, then "
            "send it again, fewer items at a time.",
            retry_after_s=retry_after_s,
        )

    def charge(self, client_id: str, extra_ns: int) -> None:
        """Record what items of the client took beyond plain ones."""
        now_ns = self._clock.monotonic_ns()
        at_s = -(-now_ns // _SECOND_NS)  # rounded up, so that nothing is forgotten too early
        entries = self._spent.pop(client_id, deque())
        if entries and entries[-1][0] == at_s:
            entries[-1] = (at_s, entries[-1][1] + extra_ns)
        else:
            entries.append((at_s, extra_ns))
        self._spent[client_id] = entries
        self._total_ns[client_id] = self._total_ns.get(client_id, 0) + extra_ns
        for other in list(self._spent)[:2]:  # so that no client is kept for ever
            self._forget_expired(other, now_ns // _SECOND_NS)

    def _forget_expired(self, client_id: str, now_s: int) -> None:
        entries = self._spent.get(client_id)
        while entries and entries[0][0] <= now_s - WINDOW_S:
            self._total_ns[client_id] -= entries.popleft()[1]
        if entries is not None and not entries:
            del self._spent[client_id], self._total_ns[client_id]


class MeteredWork(Work):
    """The work for a request that has arrived, charged to its client as it goes on.

    It ends with RateLimited as soon as the client, by all its requests together, has used its time, and with ClientGone
    if the client disconnects.
    """

    def __init__(self, receive: Receive, times: ProcessingTime, client_id: str) -> None:
        super().__init__()
        self._receive, self._times, self._client_id = receive, times, client_id
        self._charged_ns = 0
        self._disconnect: asyncio.Future[None] | None = None

    async def pause(self) -> None:
        """Charge what was done, and yield to the event loop; raise RateLimited or ClientGone to end the work."""
        if self._charge():
            self._times.check(self._client_id)
        if self._disconnect is None:
            self._disconnect = asyncio.ensure_future(until_disconnected(self._receive))
        disconnect = self._disconnect
        await yield_to_loop()
        if disconnect.done():
            raise ClientGone

    def end(self) -> None:
        """Charge the rest, and stop watching the client."""
        self._charge()
        if self._disconnect is not None:
            self._disconnect.cancel()

    def _charge(self) -> bool:
        extra_ns = self.spent_ns - self.items * _PLAIN_ITEM_NS - self._charged_ns
        if extra_ns < _LEAST_NS:
            return False
        self._charged_ns += extra_ns
        self._times.charge(self._client_id, extra_ns)
        return True
