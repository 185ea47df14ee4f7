"""Reversing a submission, sentence by sentence of docs/interface.md section D11, and what it costs."""

import asyncio
from typing import Any

import pytest

from stoplist.actor import ADMINISTER, Actor
from stoplist.db.split import SplitDatabase, feeds_of
from stoplist.errors import Forbidden, Missing, Refused
from stoplist.organizations.groups import retire_group
from stoplist.organizations.organizations import close_organization
from stoplist.records.reversal import count_reversal, left_out, reverse
from stoplist.records.reversal_plan import Reversal
from stoplist.records.submissions import find_submission
from stoplist.unsubscribes.model import Record, Submission
from tests.builders import ADMINISTRATOR, STRANGER, audit_rows, value
from tests.constants import DAY_MS, DAY_S
from tests.deployment import in_loop
from tests.records.naive_reversal import counts_of
from tests.unsubscribes.agreement import disagreements
from tests.unsubscribes.partner import (
    OptOutDeployment,
    Organization,
    addresses,
    back,
    heard_all,
    listening,
    out,
    results,
    shown,
)
from tests.unsubscribes.people import admin, viewer
from tests.unsubscribes.test_submit import written_meanwhile

# Small reversals share a commit, large ones do not; the last one is processed in several slices.
SIZES = [4, 160, 1_200]
NOTHING = Reversal()


async def undone(organization: Organization, submission: Submission | str, **options: Any) -> Reversal:
    """Reverse the submission as an administrator; return the counts."""
    return await reverse(ADMINISTRATOR, organization.deployment.stores, id_of(submission), **options)


async def counted(organization: Organization, submission: Submission | str) -> Reversal:
    return await count_reversal(ADMINISTRATOR, organization.deployment.stores, id_of(submission))


def id_of(submission: Submission | str | Reversal) -> str:
    found = submission if isinstance(submission, str) else submission.submission_id
    assert found is not None
    return found


def states(found: list[Record]) -> dict[str, tuple[str, str]]:
    return {record.address or "": (record.status, record.reason) for record in found}


async def whys(organization: Organization, submission: Submission, **options: Any) -> list[tuple[str, str]]:
    stores = organization.deployment.stores
    found = await left_out(ADMINISTRATOR, stores, id_of(submission), **options)
    return [(each.address, each.why) for each in found]


# The records


@in_loop
async def test_an_updated_record_returns_to_its_former_state(deployment: OptOutDeployment) -> None:
    """Status, reason, source and the time of the act; recorded now, with the same id, as a new change."""
    organization = await deployment.new_organization()
    await organization.submit(out("a@x.org", deployment.ago(90), reason="complaint", source="a call"))
    await organization.submit(back("b@x.org", deployment.ago(80)))
    before = {record.address: record for record in await organization.feed()}
    mistake = await organization.submit(back("a@x.org", deployment.ago(50)), out("b@x.org", deployment.ago(50)))
    cursor = (await organization.follow()).next_cursor
    deployment.clock.advance(60)
    done = await undone(organization, mistake)
    assert (counts_of(done), done.changes, done.left_out) == ((2, 0, 0, 0), 2, 0)
    changed = await organization.feed(cursor)
    assert [record.seq for record in changed] == [5, 6]
    for record in changed:
        was = before[record.address]
        assert (record.id, record.status, record.reason, record.source, record.occurred_at) == (
            was.id,
            was.status,
            was.reason,
            was.source,
            was.occurred_at,
        )
        assert record.recorded_at == shown(deployment.now_ms)


@in_loop
async def test_a_created_record_becomes_a_correction(deployment: OptOutDeployment) -> None:
    """Resubscribed now, whatever its status was, without a source."""
    organization = await deployment.new_organization()
    mistake = await organization.submit(
        out("a@x.org", deployment.ago(50), source="a list"), back("b@x.org", deployment.ago(50), source="a list")
    )
    deployment.clock.advance(60)
    assert counts_of(await undone(organization, mistake)) == (0, 2, 0, 0)
    for record in await organization.feed():
        assert (record.status, record.reason, record.source) == ("resubscribed", "correction", None)
        assert record.occurred_at == record.recorded_at == shown(deployment.now_ms)


@in_loop
async def test_states_of_the_submission_itself_are_skipped(deployment: OptOutDeployment) -> None:
    """A record that it changed several times returns to its state before the submission."""
    organization = await deployment.new_organization()
    await organization.submit(out("a@x.org", deployment.ago(90), reason="legal"))
    mistake = await organization.submit(
        back("a@x.org", deployment.ago(50)),
        out("a@x.org", deployment.ago(40)),
        out("b@x.org", deployment.ago(50)),
        back("b@x.org", deployment.ago(40)),
        out("b@x.org", deployment.ago(30)),
    )
    assert counts_of(await counted(organization, mistake)) == (1, 1, 0, 0)
    assert counts_of(await undone(organization, mistake)) == (1, 1, 0, 0)
    assert states(await organization.feed()) == {
        "a@x.org": ("unsubscribed", "legal"),
        "b@x.org": ("resubscribed", "correction"),
    }


@in_loop
async def test_a_record_changed_since_is_left_out(deployment: OptOutDeployment) -> None:
    """The same sender may have changed it; it does not change, and is listed."""
    organization = await deployment.new_organization()
    mistake = await organization.submit(out("a@x.org", deployment.ago(50)), out("b@x.org", deployment.ago(50)))
    await organization.submit(back("a@x.org", deployment.ago(40)))
    assert counts_of(await undone(organization, mistake)) == (0, 1, 1, 0)
    assert states(await organization.feed())["a@x.org"] == ("resubscribed", "consent")
    assert await whys(organization, mistake) == [("a@x.org", "superseded")]


@in_loop
async def test_a_record_sent_again_since_is_left_out(deployment: OptOutDeployment) -> None:
    """Anybody may have sent it, with any result, except the same sender repeating the same time."""
    organization = await deployment.new_organization()
    other = await organization.new_partner()
    at = deployment.ago(50)
    mistake = await organization.submit(*(out(f"{name}@x.org", at) for name in "abcd"))
    again = await organization.submit(out("a@x.org", at), by=other)
    late = await organization.submit(back("b@x.org", deployment.ago(70)), by=other)
    newer = await organization.submit(out("c@x.org", deployment.ago(20)))
    repeated = await organization.submit(out("d@x.org", at))
    assert [results(each)[0][0] for each in (again, late, newer, repeated)] == [
        "unchanged",
        "outranked",
        "unchanged",
        "unchanged",
    ]
    assert counts_of(await undone(organization, mistake)) == (0, 1, 0, 3)
    assert states(await organization.feed())["d@x.org"] == ("resubscribed", "correction")
    assert await whys(organization, mistake) == [(f"{name}@x.org", "confirmed") for name in "abc"]


@in_loop
async def test_a_reversal_affects_only_its_group(deployment: OptOutDeployment) -> None:
    """The same address stays opted out of another group, and of all groups."""
    organization = await deployment.new_organization()
    reminders = await organization.new_group("Reminders")
    mistake = await organization.submit(out("a@x.org", deployment.ago(50)))
    await organization.submit(out("a@x.org", deployment.ago(50)), group_id=reminders)
    for_all = await organization.submit(out("a@x.org", deployment.ago(50)), all_groups=True)
    assert counts_of(await undone(organization, mistake)) == (0, 1, 0, 0)
    assert {record.group_id: record.status for record in await organization.feed()} == {
        reminders: "unsubscribed",
        None: "unsubscribed",
        organization.default_group: "resubscribed",
    }
    assert counts_of(await undone(organization, for_all)) == (0, 1, 0, 0)


# Later acts


@in_loop
async def test_a_reversed_act_no_longer_outranks_others(deployment: OptOutDeployment) -> None:
    """An act between the restored one and the mistake takes effect, as it would have without the mistake."""
    organization = await deployment.new_organization()
    await organization.submit(out("a@x.org", deployment.ago(90)), back("b@x.org", deployment.ago(90)))
    mistake = await organization.submit(back("a@x.org", deployment.ago(20)), out("b@x.org", deployment.ago(20)))
    await undone(organization, mistake)
    late = await organization.submit(back("a@x.org", deployment.ago(50)), out("b@x.org", deployment.ago(50)))
    assert results(late) == [("updated", "resubscribed"), ("updated", "unsubscribed")]
    older = await organization.submit(out("a@x.org", deployment.ago(60)), back("b@x.org", deployment.ago(60)))
    assert results(older) == [("outranked", "resubscribed"), ("outranked", "unsubscribed")]


@in_loop
async def test_after_a_correction_any_opt_out_wins(deployment: OptOutDeployment) -> None:
    """However old; and after a first resubscription the record is no correction any more."""
    organization = await deployment.new_organization()
    mistake = await organization.submit(*(out(f"{name}@x.org", deployment.ago(20)) for name in "ab"))
    await undone(organization, mistake)
    old = await organization.submit(out("a@x.org", "1999-12-31T00:00:00Z"), back("b@x.org", deployment.ago(60)))
    assert results(old) == [("updated", "unsubscribed"), ("unchanged", "resubscribed")]
    older = await organization.submit(out("b@x.org", deployment.ago(61)))
    assert results(older) == [("outranked", "resubscribed")]


@in_loop
async def test_after_a_second_return_to_a_correction_any_opt_out_wins(deployment: OptOutDeployment) -> None:
    """A correction is nobody's act, so it outranks nobody."""
    organization = await deployment.new_organization()
    await undone(organization, await organization.submit(out("a@x.org", deployment.ago(90))))
    deployment.clock.advance(60)
    second = await organization.submit(out("a@x.org", deployment.ago(10)))
    corrected_at = (await organization.rows("unsubscribe_versions", "seq"))[-1]["occurred_ms"]
    assert counts_of(await undone(organization, second)) == (1, 0, 0, 0)
    (record,) = await organization.feed()
    assert (record.reason, record.occurred_at) == ("correction", shown(corrected_at))
    assert results(await organization.submit(out("a@x.org", deployment.ago(80_000)))) == [("updated", "unsubscribed")]


@in_loop
async def test_a_restored_record_is_not_confirmed(deployment: OptOutDeployment) -> None:
    """A confirmation of the former state does not confirm the restored one."""
    organization = await deployment.new_organization()
    await organization.submit(out("a@x.org", deployment.ago(90)))
    await organization.submit(out("a@x.org", deployment.ago(80)), by=await organization.new_partner())
    mistake = await organization.submit(back("a@x.org", deployment.ago(20)))
    done = await undone(organization, mistake)
    (row,) = await organization.rows("unsubscribes", "seq")
    assert (row["is_confirmed"], row["submission_id"]) == (0, done.submission_id)


@in_loop
async def test_a_second_opt_out_before_the_mistake_is_not_forgotten(deployment: OptOutDeployment) -> None:
    """The person opted out twice; a consent from between the two does not win after the reversal either."""
    organization = await deployment.new_organization()
    await organization.submit(out("a@x.org", deployment.ago(90)))
    await organization.submit(out("a@x.org", deployment.ago(50)))
    await undone(organization, await organization.submit(back("a@x.org", deployment.ago(20))))
    assert results(await organization.submit(back("a@x.org", deployment.ago(70)))) == [("outranked", "unsubscribed")]
    assert results(await organization.submit(back("a@x.org", deployment.ago(40)))) == [("updated", "resubscribed")]


# Repeated reversals, and reversals of reversals


@in_loop
async def test_a_second_reversal_changes_nothing(deployment: OptOutDeployment) -> None:
    """It says how many records were reversed before; those left out are listed as before."""
    organization = await deployment.new_organization()
    mistake = await organization.submit(*(out(f"{name}@x.org", deployment.ago(50)) for name in "abc"))
    await organization.submit(back("c@x.org", deployment.ago(40)))
    done = await undone(organization, mistake)
    stored, audit = await organization.stored(), await audit_rows(deployment.database)
    again = await undone(organization, mistake)
    assert again == Reversal(superseded=1, taken_back=2)
    assert await counted(organization, mistake) == again
    assert (await organization.stored(), await audit_rows(deployment.database)) == (stored, audit)
    assert await whys(organization, mistake) == [("c@x.org", "superseded")]
    found = await find_submission(viewer(organization), deployment.database, id_of(mistake))
    assert found.reversed == [(id_of(done), deployment.now_ms)]


@in_loop
async def test_a_reversal_can_itself_be_reversed(deployment: OptOutDeployment) -> None:
    """Like any submission: the records are as the submission left them, except those sent since."""
    organization = await deployment.new_organization()
    await organization.submit(back("a@x.org", deployment.ago(90)))
    mistake = await organization.submit(*(out(f"{name}@x.org", deployment.ago(50), source="a list") for name in "abc"))
    made = {record.address: record for record in await organization.feed()}
    first = await undone(organization, mistake)
    await organization.submit(back("b@x.org", deployment.ago(10)))
    deployment.clock.advance(60)
    second = await undone(organization, id_of(first))
    assert counts_of(second) == (2, 0, 0, 1)
    now = {record.address: record for record in await organization.feed()}
    for address in ("a@x.org", "c@x.org"):
        one, other = now[address], made[address]
        assert (one.status, one.reason, one.source, one.occurred_at) == (
            other.status,
            other.reason,
            other.source,
            other.occurred_at,
        )
    assert (now["b@x.org"].status, now["b@x.org"].reason) == ("resubscribed", "correction")
    # The acts are those of people again, so they outrank older acts again.
    assert results(await organization.submit(back("a@x.org", deployment.ago(60_060)))) == [
        ("outranked", "unsubscribed")
    ]
    # Reversed once more, through the last reversal; the first mistake has nothing left.
    assert counts_of(await counted(organization, mistake)) == (0, 0, 0, 0)
    assert counts_of(await undone(organization, id_of(second))) == (1, 0, 0, 1)
    chain = [
        await find_submission(ADMINISTRATOR, deployment.database, id_of(each)) for each in (mistake, first, second)
    ]
    assert [each.reverses for each in chain] == [None, mistake.submission_id, first.submission_id]
    assert [[by for by, _ in each.reversed] for each in chain[:2]] == [[id_of(first)], [id_of(second)]]


@in_loop
async def test_a_submission_without_changes_has_nothing_to_reverse(deployment: OptOutDeployment) -> None:
    """It only moved a latest act."""
    organization = await deployment.new_organization()
    await organization.submit(out("a@x.org", deployment.ago(50)))
    moved = await organization.submit(out("a@x.org", deployment.ago(40)))
    assert await counted(organization, moved) == await undone(organization, moved) == NOTHING
    assert await whys(organization, moved) == []


@in_loop
async def test_records_left_out_are_listed_page_by_page(deployment: OptOutDeployment) -> None:
    """Ordered by the submission's numbers, both kinds mixed, with their present state."""
    organization = await deployment.new_organization()
    mistake = await organization.submit(*(out(f"p{n}@x.org", deployment.ago(50)) for n in range(30)))
    await organization.submit(*(back(f"p{n}@x.org", deployment.ago(40)) for n in range(0, 30, 3)))
    await organization.submit(*(out(f"p{n}@x.org", deployment.ago(40)) for n in range(1, 30, 3)))
    await undone(organization, mistake)
    found, after_seq = [], None
    stores = deployment.stores
    while some := await left_out(ADMINISTRATOR, stores, id_of(mistake), after_seq=after_seq, limit=3):
        assert len(some) <= 3
        found += some
        after_seq = some[-1].seq
    assert [(one.seq, one.address, one.why, one.status, one.now_seq > 30) for one in found] == [
        (
            n + 1,
            f"p{n}@x.org",
            "confirmed" if n % 3 else "superseded",
            "unsubscribed" if n % 3 else "resubscribed",
            n % 3 == 0,
        )
        for n in range(30)
        if n % 3 < 2
    ]


# What is stored


@in_loop
async def test_a_reversal_is_a_submission_of_its_actor(deployment: OptOutDeployment) -> None:
    """It has its own counts and numbers; nothing is deleted, it is in the daily counts, and the tables agree."""
    organization = await deployment.new_organization()
    await organization.submit(out("a@x.org", deployment.ago(90)))
    mistake = await organization.submit(back("a@x.org", deployment.ago(50)), out("b@x.org", deployment.ago(50)))
    before = await organization.stored()
    deployment.clock.advance(DAY_S)
    done = await undone(organization, mistake)
    after = await organization.stored()
    own = await find_submission(viewer(organization), deployment.database, id_of(done))
    assert (own.actor_kind, own.actor_id, own.source_ip, own.request_id) == (
        "command",
        "tester",
        "192.0.2.9",
        ADMINISTRATOR.request_id,
    )
    assert (own.received, own.created, own.updated, own.first_seq, own.last_seq) == (2, 0, 2, 4, 5)
    assert (own.received_ms, own.group_id) == (deployment.now_ms, organization.default_group)
    kept = [row["seq"] for row in after["unsubscribe_versions"]]
    assert kept == [row["seq"] for row in before["unsubscribe_versions"]] + [2, 3]
    today = deployment.now_ms // DAY_MS
    assert [tuple(row.values())[2:] for row in after["feed_days"] if row["day"] == today] == [
        ("resubscribed", "consent", 0, -1),
        ("resubscribed", "correction", 1, 1),
        ("unsubscribed", "unsubscribe", 1, 0),
    ]
    assert await disagreements(deployment.database) == {}


@in_loop
async def test_a_reversal_is_in_the_organizations_audit(deployment: OptOutDeployment) -> None:
    """The entry has both submissions and the counts; counting alone is not audited."""
    organization = await deployment.new_organization()
    await organization.submit(out("a@x.org", deployment.ago(90)))
    mistake = await organization.submit(
        back("a@x.org", deployment.ago(50)), *(out(f"{n}@x.org", deployment.ago(50)) for n in "bcd")
    )
    await organization.submit(back("c@x.org", deployment.ago(40)), out("d@x.org", deployment.ago(30)))
    before = await audit_rows(deployment.database)
    await counted(organization, mistake)
    assert await audit_rows(deployment.database) == before
    done = await undone(organization, mistake)
    row = (await audit_rows(deployment.database))[-1]
    assert (row.actor, row.action, row.target) == ("command tester", "submission.reverse", mistake.submission_id)
    assert (row.at_ms, row.source_ip, row.request_id) == (deployment.now_ms, "192.0.2.9", ADMINISTRATOR.request_id)
    assert row.detail == {
        "reversed_by": done.submission_id,
        "restored": 1,
        "corrected": 1,
        "superseded": 1,
        "confirmed": 1,
    }
    concerned = await value(
        deployment.database,
        "SELECT organization_id FROM audit_organizations WHERE audit_id = (SELECT MAX(audit_id) FROM audit)",
    )
    assert concerned == organization.organization_id


@in_loop
async def test_closed_organizations_and_retired_groups_can_be_reversed(deployment: OptOutDeployment) -> None:
    organization = await deployment.new_organization()
    mistake = await organization.submit(out("a@x.org", deployment.ago(50)))
    await retire_group(ADMINISTRATOR, deployment.database, deployment.clock, group_id=organization.default_group)
    await close_organization(ADMINISTRATOR, deployment.database, deployment.clock, slug=organization.slug)
    assert counts_of(await undone(organization, mistake)) == (0, 1, 0, 0)


# Permissions


@in_loop
async def test_only_an_administrator_may_reverse(deployment: OptOutDeployment) -> None:
    """The organization's own people are forbidden; for others there is no such submission. Nothing changes."""
    organization, theirs = await deployment.new_organization(), await deployment.new_organization()
    mistake = await organization.submit(out("a@x.org", deployment.ago(50)))
    before = await organization.stored()
    for actor, error in (
        (admin(organization), Forbidden),
        (viewer(organization), Forbidden),
        (admin(theirs), Missing),
        (organization.partner, Missing),
        (STRANGER, Missing),
    ):
        for operation in (count_reversal, reverse, left_out):
            with pytest.raises(error):
                await operation(actor, deployment.stores, id_of(mistake))
    assert await organization.stored() == before
    person = Actor(kind="person", id="boss@staff.example", may=frozenset((ADMINISTER,)))
    done = await reverse(person, deployment.stores, id_of(mistake))
    own = await find_submission(person, deployment.database, id_of(done))
    assert (own.actor_kind, own.actor_id) == ("person", "boss@staff.example")


# Concurrent changes


@in_loop
async def test_a_reversal_needs_the_confirmed_counts(deployment: OptOutDeployment) -> None:
    """If the counts differ from the confirmed ones, nothing is changed."""
    organization = await deployment.new_organization()
    mistake = await organization.submit(*(out(f"{name}@x.org", deployment.ago(50)) for name in "ab"))
    seen = await counted(organization, mistake)
    await organization.submit(out("a@x.org", deployment.ago(40)))
    stored, audit = await organization.stored(), await audit_rows(deployment.database)
    with pytest.raises(Refused, match="Check the new counts"):
        await undone(organization, mistake, expected=seen)
    assert (await organization.stored(), await audit_rows(deployment.database)) == (stored, audit)
    assert counts_of(await undone(organization, mistake, expected=await counted(organization, mistake))) == (0, 1, 0, 1)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("is_expected", [True, False])
@in_loop
async def test_changes_before_the_lock_are_seen_behind_it(
    deployment: OptOutDeployment, monkeypatch: pytest.MonkeyPatch, size: int, is_expected: bool
) -> None:
    """A record that changes between the plan and the lock loses nothing."""
    organization = await deployment.new_organization()
    mistake = await organization.submit(*(out(f"p{n}@x.org", deployment.ago(50)) for n in range(size)))
    seen = await counted(organization, mistake)

    async def other() -> None:
        await organization.submit(out("p0@x.org", deployment.ago(40)), back("p1@x.org", deployment.ago(40)))

    written_meanwhile(deployment, monkeypatch, other)
    if is_expected:
        with pytest.raises(Refused, match="Nothing was changed"):
            await undone(organization, mistake, expected=seen)
        assert not (await find_submission(ADMINISTRATOR, deployment.database, id_of(mistake))).reversed
    else:
        assert counts_of(await undone(organization, mistake)) == (0, size - 2, 1, 1)
    found = states(await organization.feed(limit=10_000))
    assert (found["p0@x.org"], found["p1@x.org"]) == (("unsubscribed", "unsubscribe"), ("resubscribed", "consent"))
    assert await disagreements(deployment.database) == {}


@in_loop
async def test_a_reversal_of_nothing_uses_no_numbers(
    deployment: OptOutDeployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the head would promise a page that never comes."""
    organization = await deployment.new_organization()
    mistake = await organization.submit(out("a@x.org", deployment.ago(50)))
    written_meanwhile(deployment, monkeypatch, lambda: organization.submit(out("a@x.org", deployment.ago(40))))
    assert counts_of(await undone(organization, mistake)) == (0, 0, 0, 1)
    page = await organization.follow()
    assert (addresses(page), page.has_more) == (["a@x.org"], False)
    assert (await organization.rows("feeds", "feed_id"))[0]["head_seq"] == 1


@pytest.mark.parametrize("size", [4, 160])
@in_loop
async def test_of_two_reversals_at_once_one_wins(deployment: OptOutDeployment, size: int) -> None:
    """The other one reports that everything was already reversed."""
    organization = await deployment.new_organization()
    mistake = await organization.submit(*(out(f"p{n}@x.org", deployment.ago(50)) for n in range(size)))
    both = await asyncio.gather(undone(organization, mistake), undone(organization, mistake))
    lost, won = sorted(both, key=lambda each: each.submission_id is not None)
    assert counts_of(won) == (0, size, 0, 0)
    assert lost == Reversal(taken_back=size)
    assert (await organization.rows("feeds", "feed_id"))[0]["head_seq"] == 2 * size


# Atomicity and cost


@pytest.mark.parametrize("size", SIZES)
@in_loop
async def test_a_reversal_that_fails_half_way_leaves_nothing(deployment: OptOutDeployment, size: int) -> None:
    """Records and versions already written are rolled back."""
    organization = await deployment.new_organization()
    mistake = await organization.submit(*(out(f"p{n}@x.org", deployment.ago(50)) for n in range(size)))
    before = await organization.stored()
    nameless = Actor(kind="person", id=None, may=frozenset((ADMINISTER,)))  # type: ignore[arg-type]
    with pytest.raises(Exception, match=r"(?i)not.null"):
        await reverse(nameless, deployment.stores, id_of(mistake))
    assert await organization.stored() == before


@pytest.mark.parametrize("size", SIZES)
@in_loop
async def test_a_reversal_takes_twelve_statements_at_any_size(deployment: OptOutDeployment, size: int) -> None:
    """BEGIN, COMMIT and the notice included, in one transaction, with restored and corrected records.

    Beside a feed in another database, audit and notice are a statement each, and another transaction moves them.
    """
    organization = await deployment.new_organization()
    people = [f"p{n}@x.org" for n in range(size)]
    await organization.submit(*(back(person, deployment.ago(90)) for person in people[::2]))
    mistake = await organization.submit(*(out(person, deployment.ago(50)) for person in people))
    with listening(feeds_of(deployment.database)) as heard:
        done = await undone(organization, mistake)
        await heard_all()
    assert counts_of(done) == (size // 2, size // 2, 0, 0)
    # Audit and notice take two statements each, or one in an outbox.
    expected = 10 if isinstance(deployment.database, SplitDatabase) else 12
    assert len(heard.in_transaction) == expected, heard.in_transaction


@in_loop
async def test_the_largest_submission_is_reversed_while_others_submit(
    deployment: OptOutDeployment,
) -> None:
    """10 000 records; a follower misses nothing, and nobody gets an error."""
    organization = await deployment.new_organization()
    everybody = [f"p{n}@x.org" for n in range(10_000)]
    await organization.submit(*(back(person, deployment.ago(90)) for person in everybody[:5_000]))
    mistake = await organization.submit(*(out(person, deployment.ago(50)) for person in everybody))
    cursor = (await organization.follow(limit=10_000)).next_cursor

    async def others() -> None:
        for n in range(20):
            await organization.submit(out(f"other-{n}@x.org", deployment.ago(9)))

    done, _ = await asyncio.gather(undone(organization, mistake), others())
    assert counts_of(done) == (5_000, 5_000, 0, 0)
    assert await counted(organization, mistake) == Reversal(taken_back=10_000)
    followed = await organization.feed(cursor, limit=3_000)
    assert len(followed) == 10_020
    found = states(followed)
    assert found["p0@x.org"] == ("resubscribed", "consent")
    assert found["p9999@x.org"] == ("resubscribed", "correction")
    assert await disagreements(deployment.database) == {}
