"""The key that is furthest behind, by organization and channel: computed in the background, for the metrics.

Source: docs/interface.md sections D10 and D14, Propagation.
"""

from typing import NamedTuple

from stoplist.proof.propagation import WATCHER, propagation
from stoplist.unsubscribes.model import OptOutStores


class WorstKey(NamedTuple):
    """The greatest age of a change that a key has not taken, and the greatest number of such changes."""

    oldest_s: float
    behind: int


class WorstKeys:
    """The figures of the last `measure`, by organization and channel."""

    def __init__(self) -> None:
        self.by_feed: dict[tuple[str, str], WorstKey] = {}
        self.limit_s: int | None = None

    async def measure(self, stores: OptOutStores, *, hours: int) -> None:
        """Recompute the figures of every feed. Keys that cannot be behind do not count."""
        found: dict[tuple[str, str], WorstKey] = {}
        now_ms = stores.clock.now_ms()
        for one in await propagation(WATCHER, stores, hours=hours, only_watched=True):
            times = [at_ms for at_ms in (one.oldest_ms, one.reads_anew_ms) if at_ms is not None]
            age_s = max(0.0, (now_ms - min(times, default=now_ms)) / 1_000)
            feed = one.org_slug, one.channel
            known = found.get(feed, WorstKey(0.0, 0))
            found[feed] = WorstKey(max(known.oldest_s, age_s), max(known.behind, one.changes_behind))
        self.by_feed, self.limit_s = found, hours * 3_600
