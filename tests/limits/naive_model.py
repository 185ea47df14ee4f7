"""Section D8 in the simplest form, and any limiter against it: scans everything that was accepted each time."""

from collections.abc import Coroutine
from typing import Any, NamedTuple

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from stoplist.limits.decision import RateDecision
from stoplist.limits.limiter import Limiter
from tests.constants import SECOND_NS
from tests.limits.counting import Counting

MINUTE_NS = 60 * SECOND_NS


class LimitedRequest(NamedTuple):
    """A request: its kind, the client that it names, and its source."""

    kind: str
    client_id: str
    source: str

    def counts(self, earlier: "LimitedRequest") -> bool:
        """Return whether `earlier`, if it was accepted, counts against this request.

        Section D8: API requests by client; at the token endpoint those that proved the client, from anywhere, and those
        that failed to, from this source; without a known client by source.
        """
        if self.kind == "api":
            return earlier.kind == "api" and earlier.client_id == self.client_id
        if self.kind == "unknown":
            return earlier.kind == "unknown" and earlier.source == self.source
        if earlier.client_id != self.client_id:
            return False
        return earlier.kind == "proved" or (earlier.kind == "failed" and earlier.source == self.source)

    def ceiling(self, of_client: int) -> int:
        """Return the limit: a client's own, or 300 a minute for an unknown client."""
        return 300 if self.kind == "unknown" else of_client

    def log(self) -> tuple[str, ...]:
        """Return the name of the log that records it."""
        parts = {"api": self[:2], "proved": self[:2], "failed": self, "unknown": (self.kind, self.source)}
        return parts[self.kind]


class NaiveLimits:
    """Section D8 word by word, without regard to speed."""

    def __init__(self) -> None:
        self.accepted: list[tuple[int, LimitedRequest]] = []

    def counted_ns(self, limited_request: LimitedRequest, now_ns: int) -> list[int]:
        return [
            at_ns for at_ns, earlier in self.accepted if now_ns - at_ns < MINUTE_NS and limited_request.counts(earlier)
        ]

    def would_accept(self, limited_request: LimitedRequest, limit: int, now_ns: int) -> bool:
        return len(self.counted_ns(limited_request, now_ns)) < limit

    def acquire(self, limited_request: LimitedRequest, limit: int, now_ns: int) -> RateDecision:
        accepted = self.would_accept(limited_request, limit, now_ns)
        if accepted:
            self.accepted.append((now_ns, limited_request))
        counted_ns = self.counted_ns(limited_request, now_ns)
        oldest_ns = min(counted_ns, default=now_ns)
        reset_s = next(s for s in range(1, 61) if now_ns + s * SECOND_NS - oldest_ns >= MINUTE_NS)
        remaining = max(0, limit - len(counted_ns))
        if accepted:
            return RateDecision(True, limit, remaining, reset_s, 0)
        # A limit of 0 never accepts; the answer still names a minute.
        retry_s = next(
            (s for s in range(1, 61) if self.would_accept(limited_request, limit, now_ns + s * SECOND_NS)), 60
        )
        return RateDecision(False, limit, remaining, reset_s, retry_s)

    def next_accepted_ns(self, limited_request: LimitedRequest, limit: int, now_ns: int) -> int:
        """Return the first moment from now on at which a limit above 0 accepts: it changes only with an expiry."""
        leaving_ns = sorted(at_ns + MINUTE_NS for at_ns in self.counted_ns(limited_request, now_ns))
        return next(at_ns for at_ns in [now_ns, *leaving_ns] if self.would_accept(limited_request, limit, at_ns))

    def is_taken(self, now_ns: int) -> bool:
        """Return whether a request was accepted at exactly this time."""
        return bool(self.accepted) and self.accepted[-1][0] == now_ns

    def logs_in_use(self, now_ns: int) -> int:
        return len({limited_request.log() for at_ns, limited_request in self.accepted if now_ns - at_ns < MINUTE_NS})


sources = st.sampled_from("xy")
requests = st.builds(
    LimitedRequest, st.sampled_from(["api", "proved", "failed", "unknown"]), st.sampled_from("ab"), sources
)
ceilings = st.sampled_from([0, 1, 2, 3, 4, 6, 10**9])
# Short within a burst of requests, so that logs fill; long between bursts, so that they empty.
gaps_ns = st.one_of(st.sampled_from([0, 1, SECOND_NS - 1, SECOND_NS, SECOND_NS + 1]), st.integers(0, 5 * SECOND_NS))
steps_ns = st.one_of(
    st.sampled_from([MINUTE_NS - 1000, MINUTE_NS - 1, MINUTE_NS, MINUTE_NS + 1]), st.integers(0, 70 * SECOND_NS)
)


class LimiterAgainstModel(RuleBasedStateMachine):
    """Any interleaving of clients, sources, kinds, rising and falling limits, and time.

    Two accepted requests are at least one tick of the limiter apart if the limiter counts each time only once.
    """

    def __init__(self, counting: Counting, *, is_a_time_once: bool) -> None:
        super().__init__()
        self.counting, self.is_a_time_once = counting, is_a_time_once
        self.model = NaiveLimits()

    @property
    def now_ns(self) -> int:
        return self.counting.clock.monotonic_ns()

    def go_to(self, at_ns: int) -> None:
        """Let time pass until then, or until the next tick."""
        tick_ns = self.counting.tick_ns
        self.counting.clock.advance((-(-at_ns // tick_ns) * tick_ns - self.now_ns) / SECOND_NS)
        assert at_ns <= self.now_ns < at_ns + tick_ns

    def acquire(self, limited_request: LimitedRequest, limit: int) -> RateDecision:
        limit = limited_request.ceiling(limit)
        if (
            self.is_a_time_once
            and self.model.is_taken(self.now_ns)
            and self.model.would_accept(limited_request, limit, self.now_ns)
        ):
            self.go_to(self.now_ns + 1)
        decision = self.counting.acquire(request(self.counting.limiter, limited_request, limit))
        assert decision == self.model.acquire(limited_request, limit, self.now_ns)
        return decision

    @rule(step_ns=steps_ns)
    def time_passes(self, step_ns: int) -> None:
        self.go_to(self.now_ns + step_ns)

    @rule(limited_request=requests, limit=ceilings, gaps_ns=st.lists(gaps_ns, min_size=1, max_size=8))
    def requests_come(self, limited_request: LimitedRequest, limit: int, gaps_ns: list[int]) -> None:
        for gap_ns in gaps_ns:
            self.go_to(self.now_ns + gap_ns)
            self.acquire(limited_request, limit)

    @rule(limited_request=requests, limit=ceilings.filter(bool))
    def a_client_comes_back_a_tick_early_and_on_time(self, limited_request: LimitedRequest, limit: int) -> None:
        on_time_ns = self.model.next_accepted_ns(limited_request, limited_request.ceiling(limit), self.now_ns)
        if on_time_ns > self.now_ns:
            self.go_to(on_time_ns - self.counting.tick_ns)
            assert not self.acquire(limited_request, limit).accepted
            self.go_to(on_time_ns)
        assert self.acquire(limited_request, limit).accepted

    @rule(limited_request=requests, limit=ceilings.filter(bool))
    def a_refused_client_waits_as_told(self, limited_request: LimitedRequest, limit: int) -> None:
        decision = self.acquire(limited_request, limit)
        if not decision.accepted:
            self.counting.clock.advance(decision.retry_after_s - 1)
            assert not self.acquire(limited_request, limit).accepted
            self.counting.clock.advance(1)
            assert self.acquire(limited_request, limit).accepted


def request(limiter: Limiter, limited_request: LimitedRequest, limit: int) -> Coroutine[Any, Any, RateDecision]:
    """Return the call of the limiter for this request."""
    match limited_request.kind:
        case "api":
            return limiter.api(limited_request.client_id, limit=limit)
        case "proved":
            return limiter.token_authenticated(limited_request.client_id, limited_request.source, limit=limit)
        case "failed":
            return limiter.token_failed(limited_request.client_id, limited_request.source, limit=limit)
        case _:
            return limiter.token_unknown(limited_request.source)
