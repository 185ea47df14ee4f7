"""The reader of a feed: everything noted of it, and whether it is behind. No I/O here.

Several processes note requests and write them at any later moment; `merged` gives the same in whatever order they come.
Source: docs/interface.md section D14, Propagation. Reasons: docs/decisions/0028-propagation.md.
"""

from typing import Final, Literal, NamedTuple, get_args

Standing = Literal["current", "late", "behind", "reads_anew", "never", "stopped"]
Mark = Literal["must_follow", "stopped"]
MUST_FOLLOW: Final[Mark] = "must_follow"
STOPPED: Final[Mark] = "stopped"
MARKS: tuple[Mark, ...] = get_args(Mark)


class Follower(NamedTuple):
    """The requests of a key for a feed, for one group or all of it. Times are milliseconds since 1970 UTC.

    `position` is the highest number that it presented in this `generation` of the feed (empty: it never followed),
    first at `presented_ms` and last at `current_ms`. After a restore, `current_ms` is left over from the earlier
    generation. `anew_last_ms` is the last request without a cursor, `anew_ms` the first after `current_ms`, as far as
    that is known. `asked_ms`: the last request of any kind.
    """

    generation: str = ""
    position: int = 0
    presented_ms: int | None = None
    current_ms: int | None = None
    anew_ms: int | None = None
    anew_last_ms: int | None = None
    asked_ms: int | None = None

    @property
    def reads_anew_since_ms(self) -> int | None:
        """Return since when the key rereads the whole feed, None if it has presented its highest position since."""
        known = [at_ms for at_ms in (self.anew_ms, self.anew_last_ms) if _is_after(at_ms, self.current_ms)]
        return _earliest(*known)

    def in_generation(self, generation: str) -> "Follower":
        """Return what counts in the present generation of the feed: cursors of an earlier one stand at 0."""
        if self.generation in ("", generation):
            return self
        return Follower(generation, current_ms=self.current_ms or self.anew_last_ms, asked_ms=self.asked_ms)


NEVER = Follower()


def presented(generation: str, position: int, *, at_ms: int) -> Follower:
    """Return what a request with a cursor at `position` says: everything up to there is stored."""
    return Follower(generation, position, presented_ms=at_ms, current_ms=at_ms, asked_ms=at_ms)


def read_anew(generation: str, *, at_ms: int) -> Follower:
    """Return what a request without a cursor says."""
    return Follower(generation, anew_ms=at_ms, anew_last_ms=at_ms, asked_ms=at_ms)


def asked(*, at_ms: int) -> Follower:
    """Return what a request says that reads ahead: nothing but that it came."""
    return Follower(asked_ms=at_ms)


def merged(one: Follower, other: Follower, *, generation: str) -> Follower:
    """Return what both know together in this generation of the feed, in whatever order they come."""
    one, other = one.in_generation(generation), other.in_generation(generation)
    highest, lower = (one, other) if one.position >= other.position else (other, one)
    presented_ms, current_ms = highest.presented_ms, highest.current_ms
    if highest.position == lower.position:
        presented_ms = _earliest(presented_ms, lower.presented_ms)
        current_ms = _latest(current_ms, lower.current_ms)
    anew = (one.anew_ms, one.anew_last_ms, other.anew_ms, other.anew_last_ms)
    return Follower(
        one.generation or other.generation,
        highest.position,
        presented_ms,
        current_ms,
        # If a process comes late with a cursor from between the first and the last, the last is left: late by a minute.
        _earliest(*(at_ms for at_ms in anew if _is_after(at_ms, current_ms))),
        _latest(*anew),
        _latest(one.asked_ms, other.asked_ms),
    )


def covered_by(follower: Follower, whole: Follower) -> Follower:
    """Return a reader of a group as its key stands, which also reads the whole feed: one try with a group ends so."""
    if not whole.generation or whole.current_ms is None or whole.position < follower.position:
        return follower
    if _is_after(follower.anew_last_ms, whole.current_ms):
        return follower._replace(position=whole.position)
    return whole._replace(asked_ms=_latest(follower.asked_ms, whole.asked_ms))


def standing(
    follower: Follower, mark: Mark | None, *, head_seq: int, oldest_ms: int | None, now_ms: int, limit_ms: int
) -> Standing:
    """Return how a reader stands. `oldest_ms`: when the oldest change after its position was recorded, if there is one.

    A reader is behind if it has lacked a change for longer than `limit_ms`, or has reread for longer. One that
    has never presented a cursor has only begun, unless it must follow: then it lacks every change from the first on.
    """
    if mark == STOPPED:
        return "stopped"
    has_followed = bool(follower.generation)
    if not has_followed and mark is None:
        return "never"
    counts_changes = follower.current_ms is not None or mark == MUST_FOLLOW
    if counts_changes and oldest_ms is not None and now_ms - oldest_ms > limit_ms:
        return "behind"
    anew_ms = follower.reads_anew_since_ms
    if anew_ms is not None:
        return "behind" if now_ms - anew_ms > limit_ms else "reads_anew"
    if not has_followed:
        return "never"
    return "current" if follower.position >= head_seq else "late"


def _is_after(at_ms: int | None, other_ms: int | None) -> bool:
    return at_ms is not None and (other_ms is None or at_ms > other_ms)


def _earliest(*times_ms: int | None) -> int | None:
    return min((at_ms for at_ms in times_ms if at_ms is not None), default=None)


def _latest(*times_ms: int | None) -> int | None:
    return max((at_ms for at_ms in times_ms if at_ms is not None), default=None)
