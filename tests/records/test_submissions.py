"""A submission as people look at it: who, when, from where, its counts, and every state that it made."""

import pytest
from msgspec.structs import asdict

from stoplist.errors import Missing
from stoplist.organizations.groups import retire_group
from stoplist.organizations.organizations import close_organization
from stoplist.records.submissions import find_submission, records_of_submission
from tests.builders import ADMINISTRATOR, STRANGER, audit_rows, value
from tests.unsubscribes.partner import InLoop, Organization, Sent, back, in_loop, out
from tests.unsubscribes.people import admin, viewer


async def submitted(organization: Organization, *items: Sent, **options: bool) -> str:
    """The id of a submission of these items."""
    answer = await organization.submit(*items, **options)  # type: ignore[arg-type]
    assert answer.submission_id is not None
    return answer.submission_id


@in_loop
async def test_it_tells_who_sent_it_when_from_where_and_what_it_did(place: InLoop) -> None:
    """To everybody who sees the organization, whatever its channel."""
    organization = (await place.new_organization()).on("sms")
    await organization.submit(out("+12025550123", place.ago(50)))
    place.clock.advance(1)
    submission_id = await submitted(
        organization, out("+12025550123", place.ago(9)), back("+12025550124", place.ago(8)), out("+12025550125")
    )
    partner, before = organization.partner, await audit_rows(place.database)
    for actor in (ADMINISTRATOR, admin(organization), viewer(organization)):
        assert asdict(await find_submission(actor, place.database, submission_id)) == {
            "submission_id": submission_id,
            "org_slug": organization.slug,
            "channel": "sms",
            "group_id": organization.default_group,
            "group_name": "Newsletter",
            "actor_kind": "client",
            "actor_id": partner.id,
            "request_id": partner.request_id,
            "source_ip": "192.0.2.1",
            "received_ms": place.now_ms,
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
        }
    assert await audit_rows(place.database) == before


@in_loop
async def test_one_for_all_groups_has_no_group(place: InLoop) -> None:
    """Neither an id nor a name."""
    organization = await place.new_organization()
    submission_id = await submitted(organization, out("a@x.org"), all_groups=True)
    shown = await find_submission(viewer(organization), place.database, submission_id)
    assert (shown.group_id, shown.group_name, shown.group_no) == (None, None, 0)
    (record,) = await records_of_submission(viewer(organization), place.database, submission_id)
    assert (record.group_id, record.group_no) == (None, 0)


@in_loop
async def test_each_is_found_among_the_feeds_of_all_organizations(place: InLoop) -> None:
    """The id alone says which: of its own organization and channel, and no other's."""
    made = []
    for organization in [await place.new_organization() for _ in range(3)]:
        made.append((organization, await submitted(organization, out("a@x.org"))))
        on_phone = organization.on("phone")
        made.append((on_phone, await submitted(on_phone, out("+12025550123"))))
    for organization, submission_id in made:
        shown = await find_submission(ADMINISTRATOR, place.database, submission_id)
        assert (shown.org_slug, shown.channel) == (organization.slug, organization.channel)
        (record,) = await records_of_submission(ADMINISTRATOR, place.database, submission_id)
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
async def test_what_is_no_submission_is_missing(place: InLoop, submission_id: str) -> None:
    """Whatever was typed: it never reaches the database where it cannot be an id."""
    with pytest.raises(Missing):
        await find_submission(ADMINISTRATOR, place.database, submission_id)
    with pytest.raises(Missing):
        await records_of_submission(ADMINISTRATOR, place.database, submission_id)


@in_loop
async def test_another_organizations_submission_is_answered_as_one_that_does_not_exist(place: InLoop) -> None:
    """To the letter; and so for a partner's key, and for whoever has no role."""
    ours, theirs = await place.new_organization(), await place.new_organization()
    submission_id = await submitted(theirs, out("a@x.org"))
    with pytest.raises(Missing) as of_nothing:
        await find_submission(admin(ours), place.database, "sub_" + 22 * "0")
    for actor in (admin(ours), viewer(ours), STRANGER, theirs.partner):
        for look in (find_submission, records_of_submission):
            with pytest.raises(Missing) as of_theirs:
                await look(actor, place.database, submission_id)
            assert of_theirs.value.text == of_nothing.value.text


@in_loop
async def test_a_closed_organization_and_a_retired_group_are_still_told_of(place: InLoop) -> None:
    """What was recorded stays."""
    organization = await place.new_organization()
    submission_id = await submitted(organization, out("a@x.org"))
    await retire_group(ADMINISTRATOR, place.database, place.clock, group_id=organization.default_group)
    await close_organization(ADMINISTRATOR, place.database, place.clock, slug=organization.slug)
    shown = await find_submission(viewer(organization), place.database, submission_id)
    assert (shown.org_slug, shown.group_name) == (organization.slug, "Newsletter")


@in_loop
async def test_its_records_are_the_states_that_it_made(place: InLoop) -> None:
    """Standing, superseded by itself or by others, and sent again since; with what each of them did."""
    organization = await place.new_organization()
    await organization.submit(back("a@x.org", place.ago(90)))
    submission_id = await submitted(
        organization,
        out("a@x.org", place.ago(50), reason="complaint", source="a form"),
        out("b@x.org", place.ago(50)),
        out("c@x.org", place.ago(50)),
        back("c@x.org", place.ago(40)),
        out("d@x.org", place.ago(50)),
    )
    await organization.submit(back("b@x.org", place.ago(30)), out("d@x.org", place.ago(20)))
    found = await records_of_submission(viewer(organization), place.database, submission_id)
    assert [
        (one.seq, one.address, one.status, one.reason, one.result, one.is_current, one.is_confirmed) for one in found
    ] == [
        (2, "a@x.org", "unsubscribed", "complaint", "updated", True, False),
        (3, "b@x.org", "unsubscribed", "unsubscribe", "created", False, False),
        (4, "c@x.org", "unsubscribed", "unsubscribe", "created", False, False),
        (5, "c@x.org", "resubscribed", "consent", "updated", True, False),
        (6, "d@x.org", "unsubscribed", "unsubscribe", "created", True, True),
    ]
    assert (found[0].source, found[0].occurred_ms, found[0].recorded_ms) == ("a form", place.now_ms - 50, place.now_ms)
    assert {one.group_id for one in found} == {organization.default_group}


@in_loop
async def test_its_records_come_page_by_page(place: InLoop) -> None:
    """By their numbers, whichever of them stand; a number from elsewhere only ever leaves some out."""
    organization = await place.new_organization()
    await organization.submit(out("somebody@x.org"))
    submission_id = await submitted(organization, *(out(f"p{n}@x.org", place.ago(9)) for n in range(25)))
    await organization.submit(*(back(f"p{n}@x.org", place.ago(5)) for n in range(0, 25, 2)))
    found, after_seq = [], None
    while some := await records_of_submission(
        ADMINISTRATOR, place.database, submission_id, after_seq=after_seq, limit=4
    ):
        assert len(some) <= 4
        found += some
        after_seq = some[-1].seq
    assert [one.address for one in found] == [f"p{n}@x.org" for n in range(25)]
    assert [one.is_current for one in found] == [n % 2 == 1 for n in range(25)]
    everything = await records_of_submission(ADMINISTRATOR, place.database, submission_id, after_seq=1, limit=100)
    assert everything == found
    assert await records_of_submission(ADMINISTRATOR, place.database, submission_id, after_seq=26) == []


@in_loop
async def test_one_that_changed_nothing_has_no_records(place: InLoop) -> None:
    """It moved a latest act alone."""
    organization = await place.new_organization()
    await organization.submit(out("a@x.org", place.ago(50)))
    submission_id = await submitted(organization, out("a@x.org", place.ago(40)))
    shown = await find_submission(ADMINISTRATOR, place.database, submission_id)
    assert (shown.unchanged, shown.changes, shown.first_seq, shown.last_seq) == (1, 0, None, None)
    assert await records_of_submission(ADMINISTRATOR, place.database, submission_id) == []
    assert await value(place.database, "SELECT 1") == 1
