"""The completion of a feed's state and a submission to that feed, in every order of their statements.

At each commit a follower is given the state of the records that it has, or none. Source: docs/interface.md section D14.
"""

import pytest

from stoplist.db.postgresql import Postgresql
from stoplist.proof import feed_states
from tests.builders import execute
from tests.interleaving import Order, Step, Work, in_every_order
from tests.unsubscribes.test_interleavings import (
    ONE,
    SEED,
    CheckedFollower,
    FeedScenario,
    at_every_statement,
    back,
    batch,
    out,
    scenario_pausing_at,
)

pytestmark = pytest.mark.slow

CHANGES = batch(back("a", -50), out("b", -50), out("e", -20), out("x", -50))
# As an older program leaves a feed: it knows none of these columns.
WITHOUT_A_STATE = """
UPDATE feeds SET state_seq = 0, state_records = 0, state_digest = :zeros, state_writes = 0 WHERE feed_id = :feed_id
"""


def at_locks_and_commits_and_reads_before_them(step: Step) -> bool:
    return step.what in ("feed", "current_records", "lock_feed", "COMMIT")


def takes_steps(scenario: FeedScenario, count: int) -> Work:
    """Return a participant that takes so many steps of the completion."""

    async def work(database: Postgresql) -> None:
        for _ in range(count):
            await feed_states._extend(database, scenario.organization.feed_id, scenario.organization.organization_id)

    return work


async def run_submission_and_completion(scenario: FeedScenario, order: Order, *, steps: int) -> None:
    """Run one order of a submission and so many steps of the completion, and check every state that is given out."""
    model = await scenario.given(SEED)
    database, feed_id = scenario.organization.deployment.database, scenario.organization.feed_id
    await execute(database, WITHOUT_A_STATE, feed_id=feed_id, zeros="0" * 64)
    follower = CheckedFollower(scenario.organization)

    await scenario.scheduler.run(
        order, after=follower.ask_after_commit, one=scenario.submits(ONE, CHANGES), other=takes_steps(scenario, steps)
    )
    scenario.submitted(model, ONE, CHANGES)
    await feed_states.complete_states(database, pause_s=0)
    await scenario.assert_stored(model)
    await follower.assert_knows_all()


@pytest.mark.parametrize("records_per_step", [3, 10])
@in_every_order(scenario_pausing_at(at_every_statement), at_least=12)
async def test_a_step_of_the_completion_against_a_submission(
    scenario: FeedScenario, order: Order, records_per_step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step that takes a part of the records, and one that takes all."""
    monkeypatch.setattr(feed_states, "RECORDS_PER_STEP", records_per_step)
    await run_submission_and_completion(scenario, order, steps=1)


@in_every_order(scenario_pausing_at(at_locks_and_commits_and_reads_before_them), at_least=91)
async def test_several_steps_of_the_completion_against_a_submission(
    scenario: FeedScenario, order: Order, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The submission replaces records that were counted, and records that were not."""
    monkeypatch.setattr(feed_states, "RECORDS_PER_STEP", 2)
    await run_submission_and_completion(scenario, order, steps=3)
