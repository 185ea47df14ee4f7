"""One reader, as several processes note it, and whether it is behind.

Source: docs/interface.md section D14, Propagation.
"""

import itertools
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoplist.proof.follower import (
    MUST_FOLLOW,
    NEVER,
    STOPPED,
    Follower,
    Mark,
    Standing,
    asked,
    covered_by,
    merged,
    presented,
    read_anew,
    standing,
)
from tests.constants import HOUR_MS

LIMIT_MS = 48 * HOUR_MS
NOW_MS = 1_000 * HOUR_MS
OLD, NEW = "a", "b"


class Event(NamedTuple):
    """A request as one of several processes sees it: with a cursor, without one, or reading ahead."""

    at_ms: int
    process: int
    position: int | None
    is_ahead: bool = False
    generation: str = NEW

    @property
    def told(self) -> Follower:
        if self.is_ahead:
            return asked(at_ms=self.at_ms)
        if self.position is None:
            return read_anew(self.generation, at_ms=self.at_ms)
        return presented(self.generation, self.position, at_ms=self.at_ms)


@st.composite
def stories(draw: st.DrawFn) -> list[Event]:
    """Return requests in the order of their times; those of the earlier generation come first."""
    count, restored = draw(st.integers(1, 12)), draw(st.integers(0, 4))
    return [
        Event(
            at_ms,
            draw(st.integers(0, 2)),
            draw(st.none() | st.integers(0, 4)),
            draw(st.sampled_from([False, False, False, True])),
            OLD if at_ms <= restored else NEW,
        )
        for at_ms in range(1, count + 1)
    ]


@given(stories(), st.data())
def test_flushes_in_any_order_give_what_happened(story: list[Event], data: st.DataObject) -> None:
    """Against the requests themselves; processes write what they noted in parts, early or late."""
    parts: list[Follower] = []
    for _, events in itertools.groupby(sorted(story, key=lambda event: event.process), key=lambda event: event.process):
        cuts = data.draw(st.lists(st.booleans(), min_size=len(story), max_size=len(story)))
        note: Follower = NEVER
        for event, is_cut in zip(events, cuts, strict=False):
            note = merged(note, event.told, generation=event.generation)
            if is_cut:
                parts.append(note)
                note = NEVER
        parts.append(note)
    stored = NEVER
    for part in data.draw(st.permutations(parts)):
        stored = merged(stored, part, generation=NEW)
    told = [event for event in story if not event.is_ahead and event.generation == NEW]
    cursors = [(event.position, event.at_ms) for event in told if event.position is not None]
    highest = max((position for position, _ in cursors), default=0)
    reached = [at_ms for position, at_ms in cursors if position == highest]
    assert stored.position == highest
    assert stored.presented_ms == min(reached, default=None)
    assert stored.asked_ms == max(event.at_ms for event in story)
    assert bool(stored.generation) == any(not event.is_ahead for event in story)
    if highest or not any(event.generation == OLD for event in story):
        assert stored.current_ms == max(reached, default=None)
    anew = [event.at_ms for event in told if event.position is None and event.at_ms > (stored.current_ms or 0)]
    assert stored.reads_anew_since_ms in anew if anew else stored.reads_anew_since_ms is None
    if len(parts) == 1:
        assert stored.reads_anew_since_ms == min(anew, default=None)


def test_a_request_without_a_cursor_counts_until_the_highest() -> None:
    """Presenting the highest cursor ends it; a lower cursor of another program does not."""
    known = NEVER
    for told in (
        presented(NEW, 5, at_ms=1),
        read_anew(NEW, at_ms=2),
        read_anew(NEW, at_ms=3),
        presented(NEW, 4, at_ms=4),
    ):
        known = merged(known, told, generation=NEW)
    assert (known.position, known.reads_anew_since_ms) == (5, 2)
    known = merged(known, presented(NEW, 5, at_ms=5), generation=NEW)
    assert (known.reads_anew_since_ms, known.current_ms) == (None, 5)


def reader(
    position: int = 5, *, at_ms: int = NOW_MS - 2 * LIMIT_MS, generation: str = NEW, anew_ms: int | None = None
) -> Follower:
    return presented(generation, position, at_ms=at_ms)._replace(anew_ms=anew_ms, anew_last_ms=anew_ms)


ANEW = read_anew(NEW, at_ms=NOW_MS - LIMIT_MS)


@pytest.mark.parametrize(
    ("follower", "mark", "oldest_age_ms", "expected"),
    [
        (reader(9), None, None, "current"),
        (reader(), None, LIMIT_MS, "late"),
        (reader(), None, LIMIT_MS + 1, "behind"),
        (reader(), STOPPED, LIMIT_MS + 1, "stopped"),
        (reader(), MUST_FOLLOW, LIMIT_MS + 1, "behind"),
        (NEVER, None, LIMIT_MS + 1, "never"),
        (asked(at_ms=NOW_MS), None, LIMIT_MS + 1, "never"),
        (NEVER, MUST_FOLLOW, LIMIT_MS, "never"),
        (NEVER, MUST_FOLLOW, LIMIT_MS + 1, "behind"),
        (NEVER, STOPPED, LIMIT_MS + 1, "stopped"),
        (ANEW, None, LIMIT_MS + 1, "reads_anew"),
        (read_anew(NEW, at_ms=NOW_MS - LIMIT_MS - 1), None, None, "behind"),
        (ANEW, MUST_FOLLOW, LIMIT_MS + 1, "behind"),
        (reader(9, anew_ms=NOW_MS - LIMIT_MS), None, None, "reads_anew"),
        (reader(9, anew_ms=NOW_MS - LIMIT_MS - 1), None, None, "behind"),
        (reader(anew_ms=NOW_MS), None, LIMIT_MS + 1, "behind"),
        (reader(9, generation=OLD).in_generation(NEW), None, LIMIT_MS + 1, "behind"),
        (merged(reader(9, generation=OLD), read_anew(NEW, at_ms=NOW_MS), generation=NEW), None, LIMIT_MS + 1, "behind"),
    ],
)
def test_a_reader_stands_as_its_position_and_its_mark_say(
    follower: Follower, mark: Mark | None, oldest_age_ms: int | None, expected: Standing
) -> None:
    """A key is behind a millisecond after the limit. After a restore, a key that had followed stands at 0."""
    oldest_ms = None if oldest_age_ms is None else NOW_MS - oldest_age_ms
    assert standing(follower, mark, head_seq=9, oldest_ms=oldest_ms, now_ms=NOW_MS, limit_ms=LIMIT_MS) == expected


def test_whoever_reads_the_whole_feed_has_read_for_its_groups() -> None:
    """One try with a group would otherwise alarm for ever."""
    whole, try_ms = reader(9, at_ms=50), 20
    tried = read_anew(NEW, at_ms=try_ms)
    assert covered_by(tried, whole) == whole
    assert covered_by(reader(3, at_ms=try_ms, anew_ms=try_ms), whole) == whole
    assert covered_by(reader(3, at_ms=try_ms), whole).position == 9
    later = read_anew(NEW, at_ms=60)
    assert covered_by(later, whole) == later._replace(position=9)
    ahead = reader(10, at_ms=try_ms)
    assert covered_by(ahead, whole) == ahead
    assert covered_by(tried, read_anew(NEW, at_ms=50)) == tried
