"""Intervals between the requests of a program that waits for changes, so that others keep half of the limit.

Source: docs/interface.md sections D8 (Headers) and D14 (Waiting for news).
"""

import re

from stoplist_client.mirror.reading import FetchedPage

MIN_INTERVAL_S, MAX_UNHELD_INTERVAL_S = 3.0, 60.0
_RATE_LIMIT = re.compile(r'"api";r=([0-9]{1,9});t=([0-9]{1,9})', re.ASCII)


class PollInterval:
    """The answers to a mirror's requests, as far as they decide when to ask again."""

    def __init__(self) -> None:
        self._requests = 0
        self._asked_s = self._interval_s = 0.0
        self._unheld: dict[int, int] = {}

    def note(self, feed_no: int, page: FetchedPage) -> float:
        """Note an answer. Return how long to leave the feed alone: twice as long after each answer that was not held.

        Not held: the service stops, holds too many requests of this key, or does not know how.
        """
        headers = page.answer.headers
        self._requests += 1
        self._asked_s = max(self._asked_s, page.asked_s)
        self._interval_s = interval_s(headers.get("ratelimit", ""))
        if not page.is_waited_for:
            return 0.0
        if "wait=" in headers.get("preference-applied", ""):
            self._unheld.pop(feed_no, None)
            return 0.0
        unheld = self._unheld[feed_no] = self._unheld.get(feed_no, 0) + 1
        return min(MIN_INTERVAL_S * 2.0 ** min(unheld, 16), MAX_UNHELD_INTERVAL_S)

    def pause_s(self, now_s: float) -> float:
        """Return the pause from `now_s` on until the next requests, given the answers since the last call.

        At least until MIN_INTERVAL_S after the last request.
        """
        since_s = max(0.0, now_s - self._asked_s)  # the clock may have been set back
        pause_s = max(MIN_INTERVAL_S - since_s, self._interval_s * self._requests - since_s, 0.0)
        self._requests = 0
        return pause_s


def interval_s(rate_limit: str) -> float:
    """Return the time between requests with which half of what `RateLimit` shows lasts until it is renewed."""
    found = _RATE_LIMIT.search(rate_limit)
    if found is None:
        return 0.0
    remaining, renewed_s = int(found[1]), int(found[2])
    return renewed_s / (remaining // 2) if remaining >= 2 else float(renewed_s)
