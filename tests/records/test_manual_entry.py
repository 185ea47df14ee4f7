"""Opt-outs and resubscriptions entered by a person. docs/interface.md sections D6 and D11."""

from typing import Any

import pytest

from stoplist.actor import Actor
from stoplist.db.postgresql import Postgresql
from stoplist.db.split import SplitDatabase, feeds_of
from stoplist.errors import Forbidden, Missing, Refused
from stoplist.organizations.groups import retire_group
from stoplist.organizations.organizations import close_organization
from stoplist.records.manual_entry import ManualEntry, record_manually
from stoplist.unsubscribes.channel import CHANNELS
from tests.builders import ADMINISTRATOR, AuditRow, audit_rows, execute, sql, value
from tests.deployment import in_loop
from tests.unsubscribes.partner import OptOutDeployment, Organization, back, out
from tests.unsubscribes.people import BOSS, admin, person, viewer


async def by_hand(
    organization: Organization, address: str, *, by: Actor | None = None, **arguments: Any
) -> ManualEntry:
    """Record this address as an admin of the organization."""
    arguments = {"org_slug": organization.slug, "stated_reason": "She told us on the telephone."} | arguments
    actor = by or admin(organization)
    channel = CHANNELS[organization.channel]
    return await record_manually(actor, organization.deployment.stores, channel, address=address, **arguments)


async def refused(organization: Organization, **arguments: Any) -> Refused:
    """Return the refusal, and assert that nothing was stored."""
    database = organization.deployment.database
    before = await organization.stored(), await audit_rows(database)
    arguments = {"address": "ann@x.org"} | arguments
    with pytest.raises(Refused) as refusal:
        await by_hand(organization, **arguments)
    assert (await organization.stored(), await audit_rows(database)) == before
    return refusal.value


async def audited(deployment: OptOutDeployment, organization: Organization) -> list[AuditRow]:
    """Return the audit entries of this organization's opt-outs."""
    rows = [row for row in await audit_rows(deployment.database) if row.action.endswith(".by_hand")]
    return [row for row in rows if row.detail["org_slug"] == organization.slug]


@in_loop
async def test_a_manual_opt_out_is_like_any_other(deployment: OptOutDeployment) -> None:
    """Canonical address, present time, default group, reason `manual`, and the stated reason as source."""
    organization = await deployment.new_organization()
    done = await by_hand(organization, "  Ann@X.org ", stated_reason=" She wrote a letter. ")
    (record,) = (await organization.look_up("Ann@x.org")).items  # type: ignore[misc]
    assert done == ManualEntry(
        submission_id=done.submission_id,
        org_slug=organization.slug,
        channel="email",
        group_id=organization.default_group,
        id=record.id,
        address=record.address or "",
        result="created",
        status="unsubscribed",
        latest_act_ms=None,
        seq=1,
    )
    assert (record.status, record.reason, record.source) == ("unsubscribed", "manual", "She wrote a letter.")
    assert record.occurred_at == record.recorded_at
    (row,) = await organization.rows("submissions", "submission_id")
    actor = admin(organization)
    assert (row["actor_kind"], row["actor_id"], row["source_ip"], row["request_id"]) == (
        "person",
        actor.id,
        actor.source_ip,
        actor.request_id,
    )


@in_loop
async def test_the_audit_names_the_actor_but_not_the_address(deployment: OptOutDeployment) -> None:
    """One row with the submission and the organization; none if nothing was stored."""
    organization = await deployment.new_organization("sms")
    first = await by_hand(organization, "+442079460018", stated_reason="Call of 020 7946 0018")
    again = await by_hand(organization, "+442079460018", occurred_at=deployment.ago(0))
    deployment.clock.advance(60)
    second = await by_hand(organization, "+442079460018", status="resubscribed", occurred_at=deployment.ago(0))
    assert (again.result, again.submission_id) == ("unchanged", None)
    actor = admin(organization)
    rows = await audited(deployment, organization)
    assert [(row.action, row.target, row.detail["result"]) for row in rows] == [
        ("unsubscribe.by_hand", first.submission_id, "created"),
        ("resubscribe.by_hand", second.submission_id, "updated"),
    ]
    for row in rows:
        assert (row.actor, row.source_ip, row.request_id) == (f"person {actor.id}", actor.source_ip, actor.request_id)
        assert row.detail["record_id"] == first.id
        assert not any(number in repr(row) for number in ("79460018", "7946 0018"))
    concerned = "SELECT COUNT(*) FROM audit_organizations WHERE organization_id = :id AND audit_id IN (SELECT audit_id FROM audit WHERE target IN (:a, :b))"  # noqa: E501
    targets = {"a": first.submission_id, "b": second.submission_id}
    assert await value(deployment.database, concerned, id=organization.organization_id, **targets) == 2


@in_loop
async def test_an_entry_that_cannot_be_audited_is_not_stored(deployment: OptOutDeployment) -> None:
    """Both are one transaction: with the audit, or with the outbox of the feed."""
    organization = await deployment.new_organization()
    await by_hand(organization, "ann@x.org")
    before = await organization.stored()
    if isinstance(deployment.database, SplitDatabase):
        make, undo = "ALTER TABLE feed_outbox RENAME TO away", "ALTER TABLE away RENAME TO feed_outbox"
    elif isinstance(deployment.database, Postgresql):
        make, undo = "ALTER TABLE audit RENAME TO away", "ALTER TABLE away RENAME TO audit"
    else:
        make = "CREATE TRIGGER away BEFORE INSERT ON audit BEGIN SELECT RAISE(ABORT, 'away'); END"
        undo = "DROP TRIGGER away"
    database = feeds_of(deployment.database)
    await execute(database, make)
    with pytest.raises(Exception, match=r"away|audit|outbox"):
        await by_hand(organization, "ben@x.org")
    await execute(database, undo)
    assert await organization.stored() == before


@in_loop
async def test_a_manual_resubscription_needs_a_later_time(deployment: OptOutDeployment) -> None:
    """Otherwise the opt-out stands, and the answer has its time."""
    organization = await deployment.new_organization()
    await organization.submit(out("ann@x.org", deployment.ago(60_000)))
    await organization.submit(out("ann@x.org", deployment.ago(20_000)))
    resubscribe: dict[str, Any] = {"status": "resubscribed", "stated_reason": "She asked for it."}
    outranked = await by_hand(organization, "ann@x.org", occurred_at=deployment.ago(30_000), **resubscribe)
    assert (outranked.result, outranked.status, outranked.seq) == ("outranked", "unsubscribed", 1)
    assert outranked.latest_act_ms == deployment.now_ms - 20_000
    done = await by_hand(organization, "ann@x.org", occurred_at=deployment.ago(10_000), **resubscribe)
    assert (done.result, done.status, done.seq, done.latest_act_ms) == ("updated", "resubscribed", 2, None)
    (record,) = (await organization.look_up("ann@x.org")).items  # type: ignore[misc]
    assert (record.reason, record.source) == ("consent", "She asked for it.")
    same = await by_hand(organization, "ann@x.org", occurred_at=deployment.ago(5_000), **resubscribe)
    assert (same.result, same.seq) == ("unchanged", 2)
    assert same.submission_id is not None  # the latest act moved


@in_loop
async def test_one_group_or_all_groups_can_be_chosen(deployment: OptOutDeployment) -> None:
    """Each has its own record."""
    organization = await deployment.new_organization()
    reminders = await organization.new_group("Reminders")
    done = [
        await by_hand(organization, "ann@x.org"),
        await by_hand(organization, "ann@x.org", group_id=reminders, reason="complaint"),
        await by_hand(organization, "ann@x.org", all_groups=True, reason="legal"),
    ]
    assert [(one.group_id, one.result, one.seq) for one in done] == [
        (organization.default_group, "created", 1),
        (reminders, "created", 2),
        (None, "created", 3),
    ]
    await retire_group(ADMINISTRATOR, deployment.database, deployment.clock, group_id=organization.default_group)
    assert (await by_hand(organization, "ben@x.org", group_id=reminders)).group_id == reminders
    assert "has no default group" in (await refused(organization)).text


@pytest.mark.parametrize(
    ("field", "arguments"),
    [
        ("address", {"address": ""}),
        ("address", {"address": "ann"}),
        ("address", {"address": "ann@x.org\0"}),
        ("status", {"status": "gone"}),
        ("reason", {"reason": "consent"}),
        ("reason", {"reason": "correction"}),
        ("reason", {"reason": "whim"}),
        ("reason", {"status": "resubscribed", "occurred_at": "2026-03-01T09:30:00Z", "reason": "manual"}),
        ("occurred_at", {"status": "resubscribed"}),
        ("occurred_at", {"status": "resubscribed", "occurred_at": "2047-01-15T08:00:01Z"}),
        ("occurred_at", {"occurred_at": "2047-01-15T08:06:00Z"}),
        ("occurred_at", {"occurred_at": "yesterday"}),
        ("occurred_at", {"occurred_at": ""}),
        ("occurred_at", {"occurred_at": "2026-03-01T09:30:00"}),
        ("stated_reason", {"stated_reason": ""}),
        ("stated_reason", {"stated_reason": " \n"}),
        ("stated_reason", {"stated_reason": "x" * 201}),
        ("stated_reason", {"stated_reason": "a\0b"}),
        ("group_id", {"group_id": "grp_" + "0" * 22}),
        ("group_id", {"group_id": ""}),
        ("group_id", {"group_id": "\0"}),
        ("group_id", {"group_id": "grp_" + "0" * 22, "all_groups": True}),
    ],
)
@in_loop
async def test_a_refusal_names_the_input_at_fault(
    deployment: OptOutDeployment, field: str, arguments: dict[str, Any]
) -> None:
    """It never repeats the address."""
    refusal = await refused(await deployment.new_organization(), **arguments)
    assert (refusal.field, "ann" in refusal.text) == (field, False)


@in_loop
async def test_a_stated_reason_of_200_characters_is_accepted(deployment: OptOutDeployment) -> None:
    """The white space around it does not count."""
    organization = await deployment.new_organization()
    assert (await by_hand(organization, "ann@x.org", stated_reason=" " + "é" * 200 + " ")).result == "created"


@in_loop
async def test_other_or_retired_groups_are_refused(deployment: OptOutDeployment) -> None:
    """So is no group without a default group: an entry is never silently wider than asked."""
    ours, theirs = await deployment.new_organization(), await deployment.new_organization()
    told = [(await refused(ours, group_id=theirs.default_group)).text]
    await retire_group(ADMINISTRATOR, deployment.database, deployment.clock, group_id=ours.default_group)
    told.append((await refused(ours, group_id=ours.default_group)).text)
    told.append((await refused(ours, group_id="grp_" + "0" * 22)).text)
    assert len(set(told)) == 1
    in_use = await ours.new_group("Reminders")
    assert (await refused(ours, group_id=in_use, all_groups=True)).field == "group_id"
    assert (await refused(ours)).field == "group_id"
    assert (await by_hand(ours, "ann@x.org", all_groups=True)).result == "created"


@in_loop
async def test_a_closed_organization_refuses_entries(deployment: OptOutDeployment) -> None:
    """It refuses those of an administrator too."""
    organization = await deployment.new_organization()
    await close_organization(ADMINISTRATOR, deployment.database, deployment.clock, slug=organization.slug)
    for actor in (BOSS, admin(organization)):
        refusal = await refused(organization, by=actor)
        assert (type(refusal), refusal.field) == (Refused, "org_slug")


@in_loop
async def test_only_admins_may_enter_records(deployment: OptOutDeployment) -> None:
    """A viewer is forbidden; for others the organization does not exist, whatever they send."""
    ours, theirs = await deployment.new_organization(), await deployment.new_organization()
    for actor, kind in (
        (viewer(ours), Forbidden),
        (admin(theirs), Missing),
        (person(), Missing),
        (ours.partner, Missing),
    ):
        for arguments in ({}, {"address": "none"}, {"group_id": theirs.default_group}):
            assert type(await refused(ours, by=actor, **arguments)) is kind
    unknown = await refused(ours, by=BOSS, org_slug="nobody")
    unseen = await refused(ours, by=admin(theirs))
    assert (type(unknown), unknown.field) == (Missing, unseen.field)
    assert unseen.text.replace(ours.slug, "nobody") == unknown.text
    assert [(await by_hand(ours, f"{n}@x.org", by=actor)).result for n, actor in enumerate((BOSS, admin(ours)))] == [
        "created",
        "created",
    ]


@in_loop
async def test_partners_read_manual_entries(deployment: OptOutDeployment) -> None:
    """An entry is a change in the feed like any other, and is included in the daily counts."""
    organization = await deployment.new_organization()
    await organization.submit(back("ann@x.org", deployment.ago(50)))
    cursor = (await organization.follow()).next_cursor
    await by_hand(organization, "ann@x.org")
    (record,) = await organization.feed(cursor)
    assert (record.status, record.seq) == ("unsubscribed", 2)
    counted = await deployment.database.all(
        sql("SELECT status, reason, changes, standing FROM feed_days WHERE feed_id = :id ORDER BY status"),
        id=organization.feed_id,
    )
    assert [tuple(row) for row in counted] == [("resubscribed", "consent", 1, 0), ("unsubscribed", "manual", 1, 1)]
