"""Requests that are held until their feed changes: how many there may be, and how they learn of a change.

A held request costs neither a thread nor a database connection. A write by this process is noticed when it is
committed; for writes by other processes, one statement a second reads the heads of all awaited feeds, which also works
behind a pooler in transaction mode. Nothing is asked while nobody waits.
Source: docs/interface.md section D14, Waiting for news. Reasons: docs/decisions/0021-held-requests.md.
"""

import asyncio
import math
from collections import Counter
from types import TracebackType

import msgspec

from stoplist.db import Database
from stoplist.db.query import json_text, load_queries
from stoplist.errors import StoreUnavailable

MAX_HELD_PER_KEY = 16
MAX_HELD = 2_000
LOOK_EVERY_S = 1.0
# The least time between two looks, so that writes share one: a feed may be written a thousand times a second.
_GATHER_S = 0.01

_QUERIES = load_queries(__package__)
_HEADS = _QUERIES["heads"]
_DECODED_HEADS = msgspec.json.Decoder(list[tuple[int, int]])


class HeldRequests:
    """The held requests of one process."""

    def __init__(self, database: Database, *, look_every_s: float = LOOK_EVERY_S, max_held: int = MAX_HELD) -> None:
        self._database, self._look_every_s, self._max_held = database, look_every_s, max_held
        self._by_client: Counter[str] = Counter()
        self._waiting: dict[int, set[HeldRequest]] = {}  # by feed
        self._reading: set[HeldRequest] = set()
        self._written: set[int] = set()  # awaited feeds that this process wrote since the last look
        self._has_written = asyncio.Event()
        self._looking: asyncio.Task[None] | None = None
        self.is_ended = False
        """Return whether the process is stopping, so that requests are answered at once."""
        database.on_feed_written = self._note_write

    @property
    def count(self) -> int:
        """Return the number of requests that are held now, or read a page before they are."""
        return self._by_client.total()

    def hold(self, client_id: str, wait_s: float) -> "HeldRequest | None":
        """Return a context in which a request of this client may wait for `wait_s` from now, before it reads its page.

        None if the client or the process holds too many, or if the process is stopping.
        """
        if self.is_ended or self._by_client[client_id] >= MAX_HELD_PER_KEY or self.count >= self._max_held:
            return None
        return HeldRequest(self, client_id, asyncio.get_running_loop().time() + wait_s)

    def end(self) -> None:
        """Answer all that wait, and hold no more: the process is stopping."""
        self.is_ended = True
        self._answer_all()

    async def end_at(self, stop: asyncio.Event) -> None:
        """End once `stop` is set."""
        await stop.wait()
        self.end()

    def _note_write(self, feed_id: int) -> None:
        if feed_id in self._waiting:
            self._look_at(feed_id)
        for held in self._reading:  # each may have read its page before this write
            held.written.add(feed_id)

    def _look_at(self, feed_id: int) -> None:
        self._written.add(feed_id)
        self._has_written.set()

    async def _look(self) -> None:
        """Look for changes while anybody waits: at the feeds written here at once, at all of them every second."""
        now_s = asyncio.get_running_loop().time
        due_s, looked_s = now_s() + self._look_every_s, -math.inf
        try:
            while self._waiting:
                if await _is_set_within(self._has_written, due_s - now_s()):
                    await asyncio.sleep(max(0.0, looked_s + _GATHER_S - now_s()))
                    self._has_written.clear()
                feeds = self._written & self._waiting.keys()
                if now_s() >= due_s:
                    feeds, due_s = set(self._waiting), now_s() + self._look_every_s
                self._written.clear()
                if feeds:
                    looked_s = now_s()
                    await self._tell_of_changes(feeds)
        finally:
            self._looking = None
            self._answer_all()

    async def _tell_of_changes(self, feeds: set[int]) -> None:
        try:
            row = await self._database.one(_HEADS, feed_ids=json_text(sorted(feeds)))
        except StoreUnavailable as error:
            self._answer_all(error)
            return
        for feed_id, head_seq in _DECODED_HEADS.decode((row and row["heads"]) or "[]"):
            for held in tuple(self._waiting.get(feed_id, ())):
                held.note_head(head_seq)

    def _answer_all(self, error: StoreUnavailable | None = None) -> None:
        for held in [held for of_feed in self._waiting.values() for held in of_feed]:
            held.answer(error or False)


class HeldRequest:
    """One request that may be held: entered before its page is read, so that no write in between is overlooked."""

    __slots__ = ("_after", "_client_id", "_ends_s", "_feed_id", "_requests", "_timer", "_waiting", "written")

    def __init__(self, requests: HeldRequests, client_id: str, ends_s: float) -> None:
        self._requests, self._client_id, self._ends_s = requests, client_id, ends_s
        self._feed_id = self._after = 0
        self._waiting: asyncio.Future[bool] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.written: set[int] = set()
        """The feeds that this process has written since the request began to read."""

    def __enter__(self) -> "HeldRequest":
        self._requests._by_client[self._client_id] += 1
        self._requests._reading.add(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.answer(False)
        requests = self._requests
        requests._reading.discard(self)
        requests._by_client[self._client_id] -= 1
        if not requests._by_client[self._client_id]:
            del requests._by_client[self._client_id]

    def until_changed(self, feed_id: int, *, after: int) -> "asyncio.Future[bool]":
        """Return the future of whether the feed has a change after `after`, the head that the request has read.

        False once the time of the request is over or the process stops; StoreUnavailable if the database is lost.
        """
        loop, requests = asyncio.get_running_loop(), self._requests
        self._feed_id, self._after = feed_id, after
        self._waiting = change = loop.create_future()
        self._timer = loop.call_at(self._ends_s, self.answer, False)
        requests._reading.discard(self)
        requests._waiting.setdefault(feed_id, set()).add(self)
        if feed_id in self.written:
            requests._look_at(feed_id)
        if requests.is_ended:
            self.answer(False)
        elif requests._looking is None:
            requests._looking = loop.create_task(requests._look(), name="look for changes")
        return change

    def note_head(self, head_seq: int) -> None:
        """Answer the request if this head of its feed is a change."""
        if head_seq > self._after:
            self.answer(True)

    def answer(self, answer: "bool | StoreUnavailable") -> None:
        """End the wait; the request may read again. May be repeated."""
        waiting, self._waiting = self._waiting, None
        if waiting is None:
            return
        if self._timer is not None:
            self._timer.cancel()
        of_feed = self._requests._waiting[self._feed_id]
        of_feed.discard(self)
        if not of_feed:
            del self._requests._waiting[self._feed_id]
        self.written.clear()
        self._requests._reading.add(self)
        if waiting.done():  # cancelled with its request
            return
        if isinstance(answer, StoreUnavailable):
            waiting.set_exception(StoreUnavailable(answer.text))  # each its own: raising one adds to its traceback
            waiting.exception()  # its client may have gone at the same moment
        else:
            waiting.set_result(answer)


async def _is_set_within(event: asyncio.Event, timeout_s: float) -> bool:
    try:
        await asyncio.wait_for(event.wait(), max(0.0, timeout_s))
    except TimeoutError:
        return False
    return True
