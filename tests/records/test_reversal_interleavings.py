"""A reversal and concurrent submissions, in every order of their statements.

The outcome is as if one came after the other.

On PostgreSQL, with separate drivers as in two server processes. Source: docs/interface.md section D11.
"""

import functools

import pytest

from stoplist.db.postgresql import Postgresql
from stoplist.errors import Refused
from stoplist.records.reversal import count_reversal, reverse
from stoplist.records.reversal_plan import Reversal
from stoplist.unsubscribes.model import Submission
from tests.builders import ADMINISTRATOR, execute, value
from tests.interleaving import Order, RunResult, Step, Work, in_every_order
from tests.records.naive_reversal import ReversibleFeed, counts_of
from tests.unsubscribes.naive import NEVER, NaiveFeed
from tests.unsubscribes.partner import OptOutDeployment
from tests.unsubscribes.test_interleavings import (
    ONE,
    OTHER,
    SEEDER,
    Batch,
    FeedScenario,
    answered,
    back,
    batch,
    in_turn,
    naively,
    open_feed_scenario,
    out,
)

# Hundreds of orders each, which take long on a busy machine.
pytestmark = pytest.mark.slow

MISTAKE = batch(out("a", -60), back("b", -60), out("c", -60), out("d", -60))
BEFORE = batch(back("a", -100), out("b", -100))
# What is sent while the mistake is reversed. SEEDER sent the mistake.
MEANWHILE = {
    "others change two of its records": (ONE, batch(back("a", -50), back("c", -40), out("x", -50))),
    "others send one of its records again": (ONE, batch(out("c", -60))),
    "others send a record again, too late": (ONE, batch(back("a", -70))),
    "others change or send again all of its records": (
        ONE,
        batch(back("a", -50), out("b", -50), out("c", -200), back("d", -50)),
    ),
    "its sender repeats it": (SEEDER, MISTAKE),
    "somebody opts out of nothing of it": (ONE, batch(out("x"))),
    "somebody opts out of the same for all groups": (ONE, batch(out("a"), out("c"), group=None)),
    "an opt-out comes late": (ONE, batch(out("d", -500), out("b", -55))),
}


class ReversalScenario(FeedScenario):
    """A scenario in which the mistake is reversed."""

    mistake = ""

    async def reset(self) -> None:
        await super().reset()
        await execute(self.organization.deployment.database, "DELETE FROM reversals WHERE feed_id > :none", none=0)

    async def with_mistake(self) -> ReversibleFeed:
        """Store the earlier state, and then the mistake as the second batch."""
        model = ReversibleFeed()
        for number, seed in enumerate((BEFORE, MISTAKE)):
            made = await self._submit(self.organization, (OTHER, SEEDER)[number], seed)
            self.mistake = made.submission_id or ""
            self.submitted(model, (OTHER, SEEDER)[number], seed)
        return model

    async def expected(self) -> Reversal:
        """Return the counts that an administrator is shown."""
        return await count_reversal(ADMINISTRATOR, self.organization.deployment.stores, self.mistake)

    def reverses(self, *, expected: Reversal | None = None) -> Work:
        """Return a participant that reverses the mistake, if it is still as expected."""

        async def work(database: Postgresql) -> Reversal | Refused:
            stores = OptOutDeployment(database, self.organization.deployment.clock).stores
            try:
                return await reverse(ADMINISTRATOR, stores, self.mistake, expected=expected)
            except Refused as refusal:
                return refusal

        return work

    async def assert_stored(self, model: NaiveFeed) -> None:
        """Assert that the store matches the model, also where no act is known."""
        for record in model.records:
            record.latest_act_ms = None if record.latest_act_ms == NEVER else record.latest_act_ms  # type: ignore[assignment]
        await super().assert_stored(model)


def at_locks_and_commits_and_what_is_read_for_them(step: Step) -> bool:
    return step.what in (
        "feed",
        "current_records",
        "reversible",
        "lock_feed",
        "give_back_numbers",
        "COMMIT",
        "ROLLBACK",
    )


open_scenario = functools.partial(
    open_feed_scenario, kind=ReversalScenario, is_paused=at_locks_and_commits_and_what_is_read_for_them
)


async def run(
    scenario: ReversalScenario, order: Order, who: str, meanwhile: Batch, *, expected: Reversal | None
) -> RunResult:
    return await scenario.scheduler.run(
        order,
        one=scenario.submits(who, meanwhile),
        other=scenario.reverses(expected=expected),
    )


@pytest.mark.parametrize("meanwhile", MEANWHILE)
@in_every_order(open_scenario, at_least=4)
async def test_a_reversal_against_a_submission(scenario: ReversalScenario, order: Order, meanwhile: str) -> None:
    """Each outcome is as if the other came first or last; records sent again before the lock are left out."""
    who, sent = MEANWHILE[meanwhile]
    model = await scenario.with_mistake()
    run_result = await run(scenario, order, who, sent, expected=None)
    for participant in in_turn(run_result):
        result = run_result.results[participant]
        if participant == ONE:
            assert isinstance(result, Submission)
            assert answered(result) == naively(*scenario.submitted(model, who, sent))
        else:
            assert counts_of(result) == model.reverse(2, "tester", scenario.organization.deployment.now_ms).counts
    await scenario.assert_stored(model)


@pytest.mark.parametrize("meanwhile", MEANWHILE)
@in_every_order(open_scenario, at_least=4)
async def test_a_reversal_does_what_was_confirmed_or_nothing(
    scenario: ReversalScenario, order: Order, meanwhile: str
) -> None:
    """If a submission that came first changed the counts, the reversal is refused without a trace."""
    who, sent = MEANWHILE[meanwhile]
    model = await scenario.with_mistake()
    expected = await scenario.expected()
    run_result = await run(scenario, order, who, sent, expected=expected)
    result = run_result.results[OTHER]
    if isinstance(result, Refused):
        assert "Nothing was changed" in result.text
        scenario.submitted(model, who, sent)
        assert model.would_reverse(2).counts != counts_of(expected)
        assert not await value(scenario.organization.deployment.database, "SELECT count(*) FROM reversals")
    else:
        assert counts_of(result) == counts_of(expected)
        for participant in in_turn(run_result):
            if participant == ONE:
                scenario.submitted(model, who, sent)
            else:
                assert model.reverse(2, "tester", scenario.organization.deployment.now_ms).counts == counts_of(expected)
    await scenario.assert_stored(model)


@pytest.mark.parametrize("is_expected", [True, False])
@in_every_order(open_scenario, at_least=8)
async def test_two_reversals_of_one_submission(scenario: ReversalScenario, order: Order, is_expected: bool) -> None:
    """One wins; the other finds nothing left to reverse, or that the confirmed counts no longer hold."""
    model = await scenario.with_mistake()
    expected = await scenario.expected() if is_expected else None
    run_result = await scenario.scheduler.run(
        order, one=scenario.reverses(expected=expected), other=scenario.reverses(expected=expected)
    )
    won = [result for result in run_result.results.values() if isinstance(result, Reversal) and result.submission_id]
    (lost,) = [result for result in run_result.results.values() if result not in won]
    assert [counts_of(result) for result in won] == [(2, 2, 0, 0)]
    if is_expected:
        assert isinstance(lost, Refused)
    else:
        assert (counts_of(lost), lost.taken_back) == ((0, 0, 0, 0), 4)
    model.reverse(2, "tester", scenario.organization.deployment.now_ms)
    await scenario.assert_stored(model)
    assert await value(scenario.organization.deployment.database, "SELECT head_seq FROM feeds") == model.seq
    assert await value(scenario.organization.deployment.database, "SELECT count(*) FROM reversals") == 1
