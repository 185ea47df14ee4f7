"""An address is found wherever it is stored, by those who may see it. docs/interface.md sections D5, D7 and D11."""

import pytest

from stoplist.actor import Actor
from stoplist.errors import Refused
from stoplist.organizations.groups import retire_group
from stoplist.organizations.organizations import close_organization
from stoplist.records import search as searching
from stoplist.records.search import SearchResult, search
from tests.builders import ADMINISTRATOR, make_organization
from tests.deployment import in_loop
from tests.unsubscribes.partner import OptOutDeployment, Organization, back, out
from tests.unsubscribes.people import BOSS, admin, viewer

Place = tuple[str, str, str | None]


def places(found: SearchResult) -> list[Place]:
    """Return where the records are: organization, channel, and the group's name."""
    return [(record.org_slug, record.channel, record.group_name) for record in records(found)]


def records(found: SearchResult) -> list[searching.FoundRecord]:
    """Return the records of all addresses."""
    return [record for address in found.addresses for record in address.records]


async def found_by(deployment: OptOutDeployment, actor: Actor, text: str) -> SearchResult:
    return await search(actor, deployment.database, text)


@pytest.mark.parametrize(
    ("typed", "channel", "stored"),
    [
        ("Ann.O+news@Shop.EXAMPLE", "email", "Ann.O+news@shop.example"),
        ("  ann@bücher.example\n", "email", "ann@xn--bcher-kva.example"),
        ("ANN@XN--bcher-kva.example", "email", "ann@bücher.example"),
        ("+44 (0)20 7946-0018", "sms", "+442079460018"),
        (" +442079460018 ", "phone", "+44 20 7946 0018"),
        ("+5215512345678", "phone", "+525512345678"),
    ],
)
@in_loop
async def test_any_spelling_of_an_address_finds_its_records(
    deployment: OptOutDeployment, typed: str, channel: str, stored: str
) -> None:
    """A number is searched on both of its channels."""
    organization = (await deployment.new_organization()).on(channel)
    await organization.submit(out(stored, deployment.ago(50)))
    found = await found_by(deployment, viewer(organization), typed)
    assert places(found) == [(organization.slug, channel, "Newsletter")]
    (address,) = found.addresses
    assert address.channels == (("email",) if channel == "email" else ("sms", "phone"))
    assert address.canonical == (await organization.look_up(stored)).looked_up[0]  # type: ignore[index]


@in_loop
async def test_a_found_record_has_all_fields(deployment: OptOutDeployment) -> None:
    """Its present state and the number of its latest change."""
    organization = await deployment.new_organization()
    await organization.submit(out("nobody@x.org"), out("ann@x.org", deployment.ago(9_000)))
    deployment.clock.advance(1)
    await organization.submit(back("ann@x.org", deployment.ago(500), source="a call"))
    (record,) = records(await found_by(deployment, viewer(organization), "ann@x.org"))
    assert record == searching.FoundRecord(
        org_slug=organization.slug,
        org_name=organization.slug.title(),
        is_closed=False,
        channel="email",
        group_id=organization.default_group,
        group_name="Newsletter",
        status="resubscribed",
        reason="consent",
        source="a call",
        occurred_ms=deployment.now_ms - 500,
        recorded_ms=deployment.now_ms,
        seq=3,
        is_barred=False,
    )
    assert not record.bars


@in_loop
async def test_hidden_organizations_are_not_searched(deployment: OptOutDeployment) -> None:
    """Nothing tells that they exist; an administrator sees all."""
    ours, theirs, both = [await deployment.new_organization() for _ in range(3)]
    address = f"{ours.slug}@x.org"
    for one in (ours, theirs, both):
        await one.submit(out(address))
    seen_by = {
        viewer(ours).id: (viewer(ours), [ours]),
        admin(ours, both).id: (admin(ours, both), [ours, both]),
        BOSS.id: (BOSS, [ours, theirs, both]),
    }
    for actor, seen in seen_by.values():
        found = await found_by(deployment, actor, address)
        assert sorted(places(found)) == sorted((one.slug, "email", "Newsletter") for one in seen)
        assert found.organizations == len(seen) or actor is BOSS
    nobody = await found_by(deployment, viewer(), address)
    assert (records(nobody), nobody.organizations) == ([], 0)


@in_loop
async def test_the_all_groups_record_comes_first_and_bars_all_groups(deployment: OptOutDeployment) -> None:
    """`bars` is for a group's own record; `is_barred` includes the all-groups record."""
    organization = await deployment.new_organization()
    await organization.new_group("Reminders")
    await organization.submit(out("ann@x.org"), all_groups=True)
    await organization.submit(back("ann@x.org", deployment.ago(10)))
    for_all, newsletter = records(await found_by(deployment, viewer(organization), "ann@x.org"))
    assert (for_all.group_id, for_all.group_name, for_all.bars, for_all.is_barred) == (None, None, True, True)
    assert (newsletter.group_name, newsletter.bars, newsletter.is_barred) == ("Newsletter", False, True)
    await organization.submit(back("ann@x.org", deployment.ago(0)), all_groups=True)
    deployment.clock.advance(1)
    await organization.submit(back("ann@x.org", deployment.ago(0)), all_groups=True)
    for_all, newsletter = records(await found_by(deployment, viewer(organization), "ann@x.org"))
    assert [for_all.bars, for_all.is_barred, newsletter.is_barred] == [False, False, False]


@in_loop
async def test_closed_organizations_and_retired_groups_are_searched(deployment: OptOutDeployment) -> None:
    """Their records remain, and may be the subject of a complaint."""
    organization = await deployment.new_organization()
    await organization.submit(out("ann@x.org"))
    await retire_group(ADMINISTRATOR, deployment.database, deployment.clock, group_id=organization.default_group)
    await close_organization(ADMINISTRATOR, deployment.database, deployment.clock, slug=organization.slug)
    (record,) = records(await found_by(deployment, viewer(organization), "ann@x.org"))
    assert (record.is_closed, record.group_name) == (True, "Newsletter")


@pytest.mark.parametrize(
    "text", ["", "  ", "ann", "ann@", "@x.org", "ann@x", "x.org", "*@x.org", "+12", "ann@x.org\0", "\0"]
)
@in_loop
async def test_a_malformed_address_is_refused_without_repeating_it(deployment: OptOutDeployment, text: str) -> None:
    """The refusal names the input."""
    with pytest.raises(Refused) as refusal:
        await found_by(deployment, BOSS, text)
    assert refusal.value.field == "address"
    assert len(text.strip()) < 3 or text.strip() not in refusal.value.text


@in_loop
async def test_results_are_ordered_by_slug(deployment: OptOutDeployment) -> None:
    """However old the organizations are."""
    first = await deployment.new_organization()
    slugs = [f"{first.slug}-b", f"{first.slug}-a"]
    organizations = [first]
    for slug in slugs:
        made = await make_organization(deployment.database, deployment.clock, slug, default_group="Newsletter")
        partner = await deployment.new_partner(slug)
        organizations.append(first._replace(slug=slug, organization_id=made.organization_id, partner=partner))
    for one in organizations:
        await one.submit(out("ann@x.org"))
    found = await found_by(deployment, viewer(*organizations), "ann@x.org")
    assert [record.org_slug for record in records(found)] == [first.slug, slugs[1], slugs[0]]


@in_loop
async def test_many_feeds_are_searched_in_slices(deployment: OptOutDeployment, monkeypatch: pytest.MonkeyPatch) -> None:
    """None is lost between slices; records are ordered by organization."""
    organizations: list[Organization] = [await deployment.new_organization("sms") for _ in range(7)]
    number = "+442079460111"
    for one in organizations:
        await one.submit(out(number))
        await one.on("phone").submit(out(number), all_groups=True)
    expected = [
        (slug, channel, group)
        for slug in sorted(one.slug for one in organizations)
        for channel, group in (("sms", "Newsletter"), ("phone", None))
    ]
    for at_once in (1, 2, 3, 5, 500):
        monkeypatch.setattr(searching, "_FEEDS_AT_ONCE", at_once)
        found = await found_by(deployment, viewer(*organizations), number)
        assert (places(found), found.is_cut) == (expected, False)
    monkeypatch.setattr(searching, "_FEEDS_AT_ONCE", 2)
    monkeypatch.setattr(searching, "MAX_FOUND", 4)
    cut = await found_by(deployment, viewer(*organizations), number)
    assert (places(cut), cut.is_cut) == (expected[:4], True)
    monkeypatch.setattr(searching, "MAX_FOUND", 14)
    assert not (await found_by(deployment, viewer(*organizations), number)).is_cut


@in_loop
async def test_several_addresses_are_found_at_once(deployment: OptOutDeployment) -> None:
    """They keep the order of the text, each once, with those that have no record or are no addresses."""
    ours, theirs = [await deployment.new_organization() for _ in range(2)]
    await ours.submit(out("ann@x.org"), out("bob@x.org"))
    await theirs.submit(out("bob@x.org"))
    await ours.on("sms").submit(out("+442079460111"))
    text = "Bob@X.org, ann@\n+44 20 7946 0111 \teve@x.org;ann@x.org bob@x.org"
    found = await found_by(deployment, viewer(ours, theirs), text)
    assert [(one.canonical, sorted(record.org_slug for record in one.records)) for one in found.addresses] == [
        ("bob@x.org", sorted([ours.slug, theirs.slug])),
        ("+442079460111", [ours.slug]),
        ("eve@x.org", []),
        ("ann@x.org", [ours.slug]),
    ]
    (unread,) = found.unread
    assert unread.typed == "ann@"
    assert "Only a whole address" in unread.problem


@in_loop
async def test_addresses_beyond_the_limit_are_named_not_missing(
    deployment: OptOutDeployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No address counts as without records only because the answer was full before it was searched."""
    organization = await deployment.new_organization()
    await organization.submit(*(out(f"p{number}@x.org") for number in range(4)))
    text = "p0@x.org none@x.org p1@x.org p2@x.org p3@x.org"
    for most, searched in ((1, 2), (2, 3), (3, 4), (4, 5)):
        monkeypatch.setattr(searching, "MAX_FOUND", most)
        found = await found_by(deployment, viewer(organization), text)
        assert [one.canonical for one in found.addresses] == text.split()[:searched]
        assert found.unsearched == text.split()[searched:]
        assert (len(records(found)), found.is_cut) == (most, most < 4)
