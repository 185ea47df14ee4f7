"""Each limiter against a naive model."""

import asyncio

from hypothesis import Phase, settings
from hypothesis.stateful import rule, run_state_machine_as_test

from tests.limits.counting import AtStore, InProcess, at_store
from tests.limits.naive_model import LimiterAgainstModel
from tests.services.valkey import Valkey

# Without `explain`: a failure must be reported before the test times out.
PHASES = [Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink]


class MemoryAgainstModel(LimiterAgainstModel):
    """In this process, with sweeps."""

    counting: InProcess

    def __init__(self) -> None:
        super().__init__(InProcess(), is_a_time_once=False)

    @rule()
    def a_sweep_comes(self) -> None:
        asyncio.run(self.counting.limiter.sweep())
        assert self.counting.limiter.log_count == self.model.logs_in_use(self.now_ns)


class ScriptAgainstModel(LimiterAgainstModel):
    """The script at a real store, with a clock in a key."""

    def __init__(self, counting: AtStore) -> None:
        counting.clock.empty_store()
        super().__init__(counting, is_a_time_once=True)


TestMemoryAgainstModel = MemoryAgainstModel.TestCase
TestMemoryAgainstModel.settings = settings(max_examples=60, stateful_step_count=40, phases=PHASES)


def test_the_script_decides_like_the_naive_model(valkey: Valkey) -> None:
    """Section D8 at the store: both logs, any limit, Retry-After to the second."""
    with at_store(valkey, is_alone=True) as counting:
        run_state_machine_as_test(
            lambda: ScriptAgainstModel(counting),  # type: ignore[arg-type] # whatever makes one will do
            settings=settings(max_examples=40, stateful_step_count=25, phases=PHASES),
        )
