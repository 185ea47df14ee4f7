"""States of feeds that an older program wrote to, while older and newer programs serve side by side (section D14)."""

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoplist.proof import feed_states
from stoplist.proof.feed_states import Comparison, compare_states, complete_states
from stoplist.unsubscribes.model import PageState
from tests.builders import execute
from tests.deployment import SharedDatabase, in_loop
from tests.unsubscribes.naive import naive_state
from tests.unsubscribes.partner import OptOutDeployment, Organization, back, out, records


@pytest.fixture
def deployment(shared_database: SharedDatabase) -> OptOutDeployment:
    return OptOutDeployment.on(shared_database)


@pytest.fixture(autouse=True)
def short_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step takes three records, so that a feed of ten needs some."""
    monkeypatch.setattr(feed_states, "RECORDS_PER_STEP", 3)


_TAKE_A_NUMBER = "UPDATE feeds SET writes = writes + 1, head_seq = head_seq + 1 WHERE feed_id = :feed_id"
_STORE = """
INSERT INTO unsubscribes (feed_id, address, group_no, id, seq, status, reason, occurred_ms, recorded_ms, submission_id,
                          latest_act_ms, is_confirmed)
SELECT feed_id, :address, 1, :id, head_seq, 'unsubscribed', 'manual', 1, 1, 'sub_older', 1, 0 FROM feeds
WHERE feed_id = :feed_id ON CONFLICT (feed_id, address, group_no) DO UPDATE SET seq = excluded.seq
"""
_ALTER = "UPDATE unsubscribes SET status = 'resubscribed' WHERE feed_id = :feed_id AND seq = 3"


async def written_by_an_older_program(organization: Organization, *numbers: int) -> None:
    """Store these people's opt-outs as a program without states does: it knows none of the columns."""
    database, feed_id = organization.deployment.database, organization.feed_id
    for number in numbers:
        await execute(database, _TAKE_A_NUMBER, feed_id=feed_id)
        await execute(database, _STORE, feed_id=feed_id, address=f"p{number}@x.org", id=f"uns_older{number}")


async def state_of(organization: Organization) -> PageState | None:
    """Return the state that a follower is given, which must be that of the records beside it."""
    page = await organization.follow(limit=10_000)
    state = page.state
    found = records(page)
    if state is not None:
        assert state == naive_state(found, found[-1].seq if found else 0)
    return state


async def complete(organization: Organization) -> None:
    await complete_states(organization.deployment.database, pause_s=0)


@in_loop
async def test_a_new_feed_has_the_empty_state(deployment: OptOutDeployment) -> None:
    assert await state_of(await deployment.new_organization()) == PageState(seq=0, records=0, digest="0" * 64)


@in_loop
async def test_a_state_is_given_at_the_end_of_the_whole_feed_alone(deployment: OptOutDeployment) -> None:
    """There is none with a group, and none while there is more."""
    organization = await deployment.new_organization()
    await organization.submit(*(out(f"p{number}@x.org") for number in range(3)))
    first = await organization.follow(limit=2)
    last = await organization.follow(first.next_cursor, limit=2)
    of_group = await organization.follow(group_id=organization.default_group)
    assert (first.state, of_group.state) == (None, None)
    assert last.state == await state_of(organization)
    assert last.state is not None


@in_loop
async def test_an_older_program_leaves_a_feed_without_a_state(
    deployment: OptOutDeployment,
) -> None:
    """More changes by a program with states leave it so, even if the feed had a state before."""
    organization = await deployment.new_organization()
    await organization.submit(*(out(f"p{number}@x.org") for number in range(5)))
    assert await state_of(organization)
    await written_by_an_older_program(organization, 1, 5, 6)
    assert await state_of(organization) is None
    ends_at_the_old_head = await organization.follow(limit=4)
    assert ends_at_the_old_head.state is None
    await organization.submit(out("p7@x.org"), back("p1@x.org", deployment.ago(0)))
    assert await state_of(organization) is None
    await complete(organization)
    state = await state_of(organization)
    assert state is not None
    assert state.records == 8
    await organization.submit(out("p8@x.org"))
    assert await state_of(organization)


@in_loop
async def test_a_group_that_was_created_meanwhile_is_looked_up_again(
    deployment: OptOutDeployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    organization = await deployment.new_organization()
    await written_by_an_older_program(organization, 1)
    read, looked_up = feed_states._group_ids, list[int]()

    async def stale_at_first(source: Any, organization_id: int) -> dict[int, str | None]:
        looked_up.append(organization_id)
        return {0: None} if len(looked_up) == 1 else await read(source, organization_id)

    monkeypatch.setattr(feed_states, "_group_ids", stale_at_first)
    await complete(organization)
    assert await state_of(organization)


@in_loop
async def test_a_comparison_finds_what_was_changed_by_hand(deployment: OptOutDeployment) -> None:
    """It also counts feeds without a state."""
    database = deployment.database
    right, wrong, unknown = [await deployment.new_organization() for _ in range(3)]
    for organization in (right, wrong):
        await organization.submit(*(out(f"p{number}@x.org") for number in range(7)))
    await written_by_an_older_program(await opened(unknown), 1)
    before = await compare_states(database)
    assert wrong.feed_id not in before.differing
    await execute(database, _ALTER, feed_id=wrong.feed_id)
    after = await compare_states(database)
    assert after == Comparison(before.compared, [*before.differing, wrong.feed_id], before.open)
    assert before.open >= 1


async def opened(organization: Organization) -> Organization:
    await organization.follow()
    return organization


ACTS = st.lists(
    st.tuples(st.sampled_from(["submit", "older", "step", "complete"]), st.integers(0, 2**31)), min_size=1, max_size=12
)
EXAMPLES = {"sqlite": 60, "postgresql": 15}


def test_no_state_is_ever_wrong(shared_database: SharedDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs with and without states write, and steps of the completion run in between, in any order."""

    @settings(max_examples=EXAMPLES[shared_database.database.kind])
    @given(ACTS)
    def any_acts(acts: list[tuple[str, int]]) -> None:
        deployment = OptOutDeployment.on(shared_database)

        async def main() -> None:
            organization = await opened(await deployment.new_organization())
            for act, seed in acts:
                chance = random.Random(seed)  # noqa: S311
                people = chance.sample(range(10), chance.randint(1, 6))
                if act == "submit":
                    deployment.clock.advance(1)
                    choose = chance.choice([out, back])
                    await organization.submit(*(choose(f"p{one}@x.org", deployment.ago(0)) for one in people))
                elif act == "older":
                    await written_by_an_older_program(organization, *people)
                elif act == "step":
                    await feed_states._extend(deployment.database, organization.feed_id, organization.organization_id)
                else:
                    await complete(organization)
                    assert await state_of(organization)
                await state_of(organization)

        deployment.run(main())

    any_acts()
