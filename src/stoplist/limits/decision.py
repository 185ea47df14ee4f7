"""Decide whether one more request fits under a limit, over two logs at once.

Source: docs/interface.md section D8.
"""

import msgspec

from stoplist.limits.sliding_log import EMPTY_LOG, WINDOW_NS, WINDOW_S, SlidingLog, nth_oldest_ns

_SECOND_NS = 1_000_000_000


class RateDecision(msgspec.Struct, frozen=True, gc=False):
    """The decision about one request, with the values of the `RateLimit` and `Retry-After` headers.

    `reset_s`: whole seconds until the oldest counted request expires, this request included if it was accepted.
    `retry_after_s`: whole seconds until the next request is accepted; 0 if this one was accepted.
    """

    accepted: bool
    limit: int
    remaining: int
    reset_s: int
    retry_after_s: int


def decide(own: SlidingLog, other: SlidingLog, *, limit: int, now_ns: int) -> RateDecision:
    """Accept the request if both logs together hold fewer than `limit`. The caller records it."""
    own_count = own.count(now_ns)
    oldest_ns = own.time_ns(0) if own_count else now_ns
    other_count = 0
    if other is not EMPTY_LOG:
        other_count = other.count(now_ns)
        oldest_ns = min(oldest_ns, other.time_ns(0)) if other_count else oldest_ns
    counted = own_count + other_count
    # Rounded up: a client that returns after this whole number of seconds must not be too early.
    reset_s = -((now_ns - oldest_ns - WINDOW_NS) // _SECOND_NS)
    if counted < limit:
        return RateDecision(True, limit, limit - counted - 1, reset_s, 0)
    # More than one must leave if the limit was lowered, or if one log grew while the other was not counted.
    leaving = counted - limit + 1
    if leaving == 1:
        return RateDecision(False, limit, 0, reset_s, reset_s)
    if leaving > counted:  # A limit of 0 never accepts anything.
        return RateDecision(False, limit, 0, reset_s, WINDOW_S)
    last_ns = nth_oldest_ns(leaving, own, own_count, other, other_count)
    return RateDecision(False, limit, 0, reset_s, -((now_ns - last_ns - WINDOW_NS) // _SECOND_NS))


def within(wider: RateDecision, narrow: RateDecision) -> RateDecision:
    """Return the decision about a request that must fit under two limits: `narrow`, unless `wider` refuses."""
    if wider.accepted:
        return narrow
    retry_after_s = max(wider.retry_after_s, narrow.retry_after_s)
    return RateDecision(False, narrow.limit, 0, wider.reset_s, retry_after_s)
