"""Two processes at a store that fails, forgets and returns, compared with section D8 at each moment."""

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager

import redis
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from stoplist.limits.decision import RateDecision
from stoplist.limits.limiter import StoreHealth
from stoplist.limits.shared import SharedLimiter
from stoplist.limits.store import LimitStore
from tests.constants import SECOND_NS
from tests.limits.counting import CLOCKED_SCRIPT, StoreClock, own_url, patience
from tests.limits.naive_model import (
    MINUTE_NS,
    LimitedRequest,
    NaiveLimits,
    ceilings,
    gaps_ns,
    request,
    requests,
)
from tests.services.proxy import Proxy
from tests.services.valkey import Valkey

BURST, BURST_LIMIT = LimitedRequest("api", "burst", "x"), 3
processes = st.integers(0, 1)


class WarningCounter(logging.Handler):
    """Counts warnings."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.count = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.count += 1


class StoreWithLimiters:
    """One store behind a proxy, and two limiters that count there."""

    def __init__(self, url: str, between: Proxy, runner: asyncio.Runner) -> None:
        self.between, self.run = between, runner.run
        self.direct = redis.Redis.from_url(url)
        self.clock = StoreClock(self.direct)
        self.url = between.url(url)
        self.limiters: list[SharedLimiter] = []

    def begin(self) -> None:
        self.end()
        self.between.mend()
        self.clock.empty_store()
        stores = [
            LimitStore(redis.asyncio.Redis.from_url(self.url, socket_timeout=None), script=CLOCKED_SCRIPT)
            for _ in range(2)
        ]
        self.limiters = [SharedLimiter(store, self.clock) for store in stores]

    def end(self) -> None:
        for limiter in self.limiters:
            self.run(limiter.close())
        self.limiters = []


@contextmanager
def store_with_limiters(server: Valkey) -> Iterator[StoreWithLimiters]:
    url = own_url(server)
    # An absent store refuses at once; only a present one may take its time.
    with Proxy(url) as between, asyncio.Runner() as runner, patience():
        own = StoreWithLimiters(url, between, runner)
        try:
            yield own
        finally:
            own.end()
            own.direct.close()


class KnownToProcess:
    """The requests that one process has accepted itself, and whether it knows that the store is lost."""

    def __init__(self) -> None:
        self.accepted = NaiveLimits()
        self.is_lost = False
        self.decided_alone = 0


class SharedAgainstModel(RuleBasedStateMachine):
    """A request counts in the process that accepted it, and at the store unless that process counts alone.

    It is accepted if every log that the process can reach has room for it. Only `reconnect` tries a lost store again;
    the store may have forgotten everything.
    """

    def __init__(self, deployed: StoreWithLimiters, warnings: WarningCounter) -> None:
        super().__init__()
        self.deployed, self.warnings = deployed, warnings
        deployed.begin()
        warnings.count = 0
        self.known = [KnownToProcess(), KnownToProcess()]
        self.store = NaiveLimits()
        self.is_up = True
        self.losses = 0
        self.last_trouble_ns = -MINUTE_NS

    @property
    def now_ns(self) -> int:
        return self.deployed.clock.monotonic_ns()

    def expected(self, known: KnownToProcess, limited_request: LimitedRequest, limit: int) -> RateDecision:
        if not known.is_lost and not self.is_up:
            known.is_lost = True
            self.losses += 1
        if known.is_lost:
            known.decided_alone += 1
            return known.accepted.acquire(limited_request, limit, self.now_ns)
        models = (self.store, known.accepted)
        refusing = [model for model in models if not model.would_accept(limited_request, limit, self.now_ns)]
        decisions = [model.acquire(limited_request, limit, self.now_ns) for model in refusing or models]
        if refusing:
            return max(decisions, key=lambda it: it.retry_after_s)
        return min(decisions, key=lambda it: it.remaining)

    def acquire(self, process: int, limited_request: LimitedRequest, limit: int) -> None:
        self.deployed.clock.advance(1e-6)  # The store counts each microsecond once.
        limit, known, limiter = limited_request.ceiling(limit), self.known[process], self.deployed.limiters[process]
        decision = self.deployed.run(request(limiter, limited_request, limit))
        assert decision == self.expected(known, limited_request, limit)
        assert limiter.health() == StoreHealth(is_lost=known.is_lost, decided_alone=known.decided_alone)
        assert self.warnings.count == self.losses
        if any(it.is_lost for it in self.known):
            self.last_trouble_ns = self.now_ns

    @rule(step_ns=st.integers(0, 70_000).map(lambda ms: ms * 1_000_000))
    def time_passes(self, step_ns: int) -> None:
        self.deployed.clock.advance(step_ns / SECOND_NS)

    @rule(
        process=processes, limited_request=requests, limit=ceilings, gaps_ns=st.lists(gaps_ns, min_size=1, max_size=6)
    )
    def requests_come(self, process: int, limited_request: LimitedRequest, limit: int, gaps_ns: list[int]) -> None:
        for gap_ns in gaps_ns:
            self.deployed.clock.advance(gap_ns // 1000 / 1_000_000)
            self.acquire(process, limited_request, limit)

    @rule(order=st.lists(processes, min_size=4, max_size=8))
    def concurrent_requests(self, order: list[int]) -> None:
        """Send a burst with a constant limit, so that the promise can be checked without a model."""
        for process in order:
            self.acquire(process, BURST, BURST_LIMIT)
        counted = [len(it.accepted.counted_ns(BURST, self.now_ns)) for it in self.known]
        assert max(counted) <= BURST_LIMIT
        if self.now_ns - self.last_trouble_ns >= MINUTE_NS:
            assert sum(counted) <= BURST_LIMIT

    @rule()
    def the_store_goes(self) -> None:
        self.deployed.between.cut()
        self.is_up = False

    @rule()
    def the_store_returns(self) -> None:
        self.deployed.between.mend()
        self.is_up = True

    @rule(with_the_script=st.booleans())
    def the_store_forgets(self, with_the_script: bool) -> None:
        self.deployed.clock.empty_store()
        if with_the_script:
            self.deployed.direct.script_flush()
        self.store = NaiveLimits()
        self.last_trouble_ns = self.now_ns

    @rule(process=processes)
    def a_process_looks_for_the_store(self, process: int) -> None:
        self.deployed.run(self.deployed.limiters[process].reconnect())
        self.known[process].is_lost &= not self.is_up


def test_every_transition_keeps_to_the_limits(valkey: Valkey) -> None:
    """Section D8: shared while the store answers, else from local records; never more than N a process."""
    warnings, log = WarningCounter(), logging.getLogger("stoplist.limits.shared")
    log.addHandler(warnings)
    try:
        with store_with_limiters(valkey) as deployed:
            run_state_machine_as_test(
                lambda: SharedAgainstModel(deployed, warnings),  # type: ignore[arg-type] # whatever makes one will do
                settings=settings(
                    max_examples=25,
                    stateful_step_count=30,
                    phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],
                ),
            )
    finally:
        log.removeHandler(warnings)
