"""A submission as people see it: sender, time, source, counts, and every state that it made."""

import pytest
from msgspec.structs import asdict

from stoplist.errors import Missing
from stoplist.organizations.groups import retire_group
from stoplist.organizations.organizations import close_organization
from stoplist.records.submissions import find_submission, records_of_submission
from tests.builders import ADMINISTRATOR, STRANGER, audit_rows, value
from tests.deployment import in_loop
from tests.unsubscribes.partner import OptOutDeployment, Organization, Sent, back, out
from tests.unsubscribes.people import admin, viewer


async def submitted(organization: Organization, *items: Sent, **options: bool) -> str:
    """Submit these items; return the submission's id."""
    answer = await organization.submit(*items, **options)  # type: ignore[arg-type]
    assert answer.submission_id is not None
    return answer.submission_id


@in_loop
async def test_a_submission_shows_its_sender_time_and_counts(deployment: OptOutDeployment) -> None:
    """Everyone who sees the organization sees them, on every channel."""
    organization = (await deployment.new_organization()).on("sms")
    await organization.submit(out("+12025550123", deployment.ago(50)))
    deployment.clock.advance(1)
    submission_id = await submitted(
        organization,
        out("+12025550123", deployment.ago(9)),
        back("+12025550124", deployment.ago(8)),
        out("+12025550125"),
    )
    partner, before = organization.partner, await audit_rows(deployment.database)
    for actor in (ADMINISTRATOR, admin(organization), viewer(organization)):
        assert asdict(await find_submission(actor, deployment.database, submission_id)) == {
            "submission_id": submission_id,
            "org_slug": organization.slug,
            "channel": "sms",
            "group_id": organization.default_group,
            "group_name": "Newsletter",
            "actor_kind": "client",
            "actor_id": partner.id,
            "request_id": partner.request_id,
            "source_ip": "192.0.2.1",
            "received_ms": deployment.now_ms,
            "received": 3,
            "created": 2,
            "updated": 0,
            "unchanged": 1,
            "outranked": 0,
            "rejected": 0,
            "first_seq": 2,
            "last_seq": 3,
            "reversed": [],
            "reverses": None,
            "feed_id": organization.feed_id,
            "group_no": 1,
            "import_id": None,
            "kind": "batch",
        }
    assert await audit_rows(deployment.database) == before


@in_loop
async def test_a_submission_for_all_groups_has_no_group(deployment: OptOutDeployment) -> None:
    """It has neither the id nor the name of one."""
    organization = await deployment.new_organization()
    submission_id = await submitted(organization, out("a@x.org"), all_groups=True)
    shown = await find_submission(viewer(organization), deployment.database, submission_id)
    assert (shown.group_id, shown.group_name, shown.group_no) == (None, None, 0)
    (record,) = await records_of_submission(viewer(organization), deployment.database, submission_id)
    assert (record.group_id, record.group_no) == (None, 0)


@in_loop
async def test_the_id_alone_finds_a_submission(deployment: OptOutDeployment) -> None:
    """The submission belongs to the id's own organization and channel, and to no other."""
    made = []
    for organization in [await deployment.new_organization() for _ in range(3)]:
        made.append((organization, await submitted(organization, out("a@x.org"))))
        on_phone = organization.on("phone")
        made.append((on_phone, await submitted(on_phone, out("+12025550123"))))
    for organization, submission_id in made:
        shown = await find_submission(ADMINISTRATOR, deployment.database, submission_id)
        assert (shown.org_slug, shown.channel) == (organization.slug, organization.channel)
        (record,) = await records_of_submission(ADMINISTRATOR, deployment.database, submission_id)
        assert record.address == ("a@x.org" if organization.channel == "email" else "+12025550123")


@pytest.mark.parametrize(
    "submission_id",
    [
        "",
        "sub_",
        "sub_0000000000000000000000",
        "sub_000000000000000000000\n",
        "sub_\0" + 21 * "0",
        "grp_" + 22 * "0",
        99 * "x",
    ],
)
@in_loop
async def test_an_unknown_submission_is_missing(deployment: OptOutDeployment, submission_id: str) -> None:
    """A text that cannot be an id never reaches the database."""
    with pytest.raises(Missing):
        await find_submission(ADMINISTRATOR, deployment.database, submission_id)
    with pytest.raises(Missing):
        await records_of_submission(ADMINISTRATOR, deployment.database, submission_id)


@in_loop
async def test_a_hidden_submission_looks_like_an_unknown_one(deployment: OptOutDeployment) -> None:
    """The texts are equal, also for a partner's key and for a person without a role."""
    ours, theirs = await deployment.new_organization(), await deployment.new_organization()
    submission_id = await submitted(theirs, out("a@x.org"))
    details = await find_submission(ADMINISTRATOR, deployment.database, submission_id)
    with pytest.raises(Missing) as of_nothing:
        await find_submission(admin(ours), deployment.database, "sub_" + 22 * "0")
    for actor in (admin(ours), viewer(ours), STRANGER, theirs.partner):
        for look in (find_submission, records_of_submission):
            with pytest.raises(Missing) as of_theirs:
                await look(actor, deployment.database, submission_id)
            assert of_theirs.value.text == of_nothing.value.text
        with pytest.raises(Missing):
            await records_of_submission(actor, deployment.database, details)


@in_loop
async def test_closed_organizations_and_retired_groups_are_shown(deployment: OptOutDeployment) -> None:
    organization = await deployment.new_organization()
    submission_id = await submitted(organization, out("a@x.org"))
    await retire_group(ADMINISTRATOR, deployment.database, deployment.clock, group_id=organization.default_group)
    await close_organization(ADMINISTRATOR, deployment.database, deployment.clock, slug=organization.slug)
    shown = await find_submission(viewer(organization), deployment.database, submission_id)
    assert (shown.org_slug, shown.group_name) == (organization.slug, "Newsletter")


@in_loop
async def test_the_records_of_a_submission_are_its_states(deployment: OptOutDeployment) -> None:
    """Current, superseded by itself or others, and sent again since; each with its result."""
    organization = await deployment.new_organization()
    await organization.submit(back("a@x.org", deployment.ago(90)))
    submission_id = await submitted(
        organization,
        out("a@x.org", deployment.ago(50), reason="complaint", source="a form"),
        out("b@x.org", deployment.ago(50)),
        out("c@x.org", deployment.ago(50)),
        back("c@x.org", deployment.ago(40)),
        out("d@x.org", deployment.ago(50)),
    )
    await organization.submit(back("b@x.org", deployment.ago(30)), out("d@x.org", deployment.ago(20)))
    found = await records_of_submission(viewer(organization), deployment.database, submission_id)
    assert [
        (one.seq, one.address, one.status, one.reason, one.result, one.is_current, one.is_confirmed) for one in found
    ] == [
        (2, "a@x.org", "unsubscribed", "complaint", "updated", True, False),
        (3, "b@x.org", "unsubscribed", "unsubscribe", "created", False, False),
        (4, "c@x.org", "unsubscribed", "unsubscribe", "created", False, False),
        (5, "c@x.org", "resubscribed", "consent", "updated", True, False),
        (6, "d@x.org", "unsubscribed", "unsubscribe", "created", True, True),
    ]
    assert (found[0].source, found[0].occurred_ms, found[0].recorded_ms) == (
        "a form",
        deployment.now_ms - 50,
        deployment.now_ms,
    )
    assert {one.group_id for one in found} == {organization.default_group}


@in_loop
async def test_the_records_of_a_submission_are_paged(deployment: OptOutDeployment) -> None:
    """Ordered by number, current or not; `after_seq` of another feed only leaves some out."""
    organization = await deployment.new_organization()
    await organization.submit(out("somebody@x.org"))
    submission_id = await submitted(organization, *(out(f"p{n}@x.org", deployment.ago(9)) for n in range(25)))
    await organization.submit(*(back(f"p{n}@x.org", deployment.ago(5)) for n in range(0, 25, 2)))
    found, after_seq = [], None
    while some := await records_of_submission(
        ADMINISTRATOR, deployment.database, submission_id, after_seq=after_seq, limit=4
    ):
        assert len(some) <= 4
        found += some
        after_seq = some[-1].seq
    assert [one.address for one in found] == [f"p{n}@x.org" for n in range(25)]
    assert [one.is_current for one in found] == [n % 2 == 1 for n in range(25)]
    everything = await records_of_submission(ADMINISTRATOR, deployment.database, submission_id, after_seq=1, limit=100)
    assert everything == found
    assert await records_of_submission(ADMINISTRATOR, deployment.database, submission_id, after_seq=26) == []


@in_loop
async def test_a_submission_without_changes_has_no_records(deployment: OptOutDeployment) -> None:
    """It only moved a latest act."""
    organization = await deployment.new_organization()
    await organization.submit(out("a@x.org", deployment.ago(50)))
    submission_id = await submitted(organization, out("a@x.org", deployment.ago(40)))
    shown = await find_submission(ADMINISTRATOR, deployment.database, submission_id)
    assert (shown.unchanged, shown.changes, shown.first_seq, shown.last_seq) == (1, 0, None, None)
    assert await records_of_submission(ADMINISTRATOR, deployment.database, submission_id) == []
    assert await value(deployment.database, "SELECT 1") == 1
