"""The pages that a mirror waits for: their requests are held by the service, and outlast a call of `Mirror.sync`.

Source: docs/interface.md section D14, Waiting for news.
"""

import os
import threading
from collections.abc import Collection

import msgspec

from stoplist_client.mirror.poll_interval import PollInterval
from stoplist_client.mirror.reading import BackgroundTask, FetchedPage, Position
from stoplist_client.redacted import Redacted

_REFUSED_S = 60.0


class HeldPage(Redacted, msgspec.Struct, frozen=True):
    """A page that is awaited, and the position that it continues."""

    position: Position
    page: BackgroundTask[FetchedPage]


class HeldPages:
    """At most one awaited page of each feed. Threads may share it; each takes the pages that have arrived."""

    def __init__(self) -> None:
        self._arrival, self._interval = threading.Condition(), PollInterval()
        self._by_feed: dict[int, HeldPage] = {}
        self._rests: dict[int, tuple[float, float]] = {}  # since when, and for how long
        self._process_id = os.getpid()

    def awaited(self) -> set[int]:
        """Return the numbers of the feeds of which a page is awaited or has arrived."""
        if os.getpid() != self._process_id:  # the threads of the parent do not run in this process
            self._process_id, self._by_feed = os.getpid(), {}
        return set(self._by_feed)

    def note_refusal(self, feed_no: int, now_s: float) -> None:
        """Leave a feed that the key may not read alone for a while, and wait for the others."""
        self._rests[feed_no] = now_s, _REFUSED_S

    def note_answer(self, feed_no: int, page: FetchedPage) -> None:
        """Note an answer, which decides when to ask again."""
        rest = page.asked_s, self._interval.note(feed_no, page)
        if page.is_waited_for:
            self._rests[feed_no] = rest
        else:
            self._rests.setdefault(feed_no, rest)

    def pause_s(self, now_s: float) -> float:
        """Return the pause until the next call; if nothing is awaited, at least until a feed may be asked about."""
        pause_s = self._interval.pause_s(now_s)
        rests_s = [] if self.awaited() else [self._rest_s(feed_no, now_s) for feed_no in self._rests]
        return max(pause_s, min(rests_s, default=0.0))

    def is_due(self, feed_no: int, now_s: float) -> bool:
        """Return whether to ask about the feed now."""
        return feed_no not in self.awaited() and not self._rest_s(feed_no, now_s)

    def add(self, held: HeldPage) -> None:
        """Await a page."""
        self._by_feed[held.position.feed_no] = held

    def forget(self, feed_nos: Collection[int]) -> None:
        """Forget the pages of feeds that are no longer followed."""
        for feed_no in feed_nos:
            self._by_feed.pop(feed_no, None)
            self._rests.pop(feed_no, None)

    def take_arrived(self) -> list[HeldPage]:
        """Wait until a page has arrived, and take all that have. Returns none if none is awaited."""
        with self._arrival:
            while not (arrived := [held for held in self._by_feed.values() if held.page.is_done]) and self._by_feed:
                self._arrival.wait()
            return [held for held in arrived if self._by_feed.pop(held.position.feed_no, None) is held]

    def note_arrival(self) -> None:
        """Wake the threads that wait."""
        with self._arrival:
            self._arrival.notify_all()

    def _rest_s(self, feed_no: int, now_s: float) -> float:
        since_s, rest_s = self._rests.get(feed_no, (now_s, 0.0))
        return max(0.0, since_s + rest_s - now_s) if since_s <= now_s else 0.0  # the clock may have been set back
