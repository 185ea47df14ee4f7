"""The standing of keys in feeds, and since when they have a change (docs/interface.md section D14, Propagation)."""

import pytest

from stoplist.actor import Actor
from stoplist.errors import Forbidden, Missing
from stoplist.limits.memory import MemoryLimiter
from stoplist.maintenance.after_restore import after_restore
from stoplist.oauth.credentials import deactivate_credential
from stoplist.organizations.organizations import close_organization
from stoplist.proof.follower import MUST_FOLLOW, STOPPED
from stoplist.proof.held_requests import HeldRequests
from stoplist.proof.marks import set_mark
from stoplist.proof.positions import Positions
from stoplist.proof.propagation import KeyPropagation, propagation, since_when
from stoplist.proof.worst_keys import WorstKey, WorstKeys
from stoplist.unsubscribes.channel import CHANNELS
from stoplist.unsubscribes.feed import find_feed_by_id
from stoplist.web.metrics import Metrics
from tests.builders import ADMINISTRATOR, audit_rows
from tests.constants import HOUR_S
from tests.deployment import SharedDatabase, in_loop
from tests.fakes import FakeClock
from tests.unsubscribes.partner import OptOutDeployment, Organization, out

HOURS = 48
EMAIL = CHANNELS["email"]


@pytest.fixture
def deployment(shared_database: SharedDatabase, clock: FakeClock) -> OptOutDeployment:
    """Return a deployment on either database. Each test creates organizations of its own."""
    return OptOutDeployment.on(shared_database, clock)


async def present(
    organization: Organization, position: int | None, *, by: Actor | None = None, group_no: int = 0
) -> None:
    """Present a cursor at this position, or read anew."""
    positions = Positions()
    feed = await find_feed_by_id(organization.deployment.database, organization.feed_id)
    assert feed is not None
    reader = ((by or organization.partner).id, group_no)
    positions.note(feed, reader, position, now_ms=organization.deployment.now_ms)
    await positions.flush(organization.deployment.database)


async def stands(organization: Organization, *, by: Actor = ADMINISTRATOR) -> list[KeyPropagation]:
    """Return the standing of all keys, after a look at those alone that can be behind."""
    stores, slug = organization.deployment.stores, organization.slug
    found = await propagation(by, stores, hours=HOURS, org_slug=slug)
    watched = await propagation(by, stores, hours=HOURS, org_slug=slug, only_watched=True)
    assert watched == [one for one in found if one.is_watched]
    return found


async def standing_of(organization: Organization) -> tuple[str, int, int | None]:
    """Return the standing of the only key, the changes behind, and the age of the oldest in seconds."""
    (one,) = await stands(organization)
    age_s = None if one.oldest_ms is None else (organization.deployment.now_ms - one.oldest_ms) // 1_000
    return one.standing, one.changes_behind, age_s


async def mark(organization: Organization, mark: str | None, *, by: Actor = ADMINISTRATOR, **options: str) -> None:
    await set_mark(
        by,
        organization.deployment.stores,
        org_slug=organization.slug,
        channel=EMAIL,
        client_id=organization.partner.id,
        mark=mark,  # type: ignore[arg-type]
        **options,
    )


@in_loop
async def test_a_key_is_behind_once_the_clock_has_run_out(deployment: OptOutDeployment) -> None:
    """The oldest change counts, also one that was superseded since."""
    organization = await deployment.new_organization()
    await organization.submit(out("a@x.org"))
    assert await standing_of(organization) == ("never", 1, None)
    await present(organization, 1)
    assert await standing_of(organization) == ("current", 0, None)
    await organization.submit(out("b@x.org"))
    deployment.clock.advance(HOUR_S)
    await organization.submit({"address": "b@x.org", "status": "resubscribed", "occurred_at": deployment.ago(1)})
    deployment.clock.advance(47 * HOUR_S)
    assert await standing_of(organization) == ("late", 2, 48 * HOUR_S)
    deployment.clock.advance(0.001)
    assert await standing_of(organization) == ("behind", 2, 48 * HOUR_S)
    await present(organization, 2)
    assert await standing_of(organization) == ("late", 1, 47 * HOUR_S)
    await present(organization, 3)
    assert await standing_of(organization) == ("current", 0, None)


@in_loop
async def test_a_key_that_reads_anew_for_long_is_behind(deployment: OptOutDeployment) -> None:
    """A new partner has that time, however old the records are."""
    organization = await deployment.new_organization()
    await organization.submit(out("a@x.org"))
    deployment.clock.advance(1_000 * HOUR_S)
    await present(organization, None)
    deployment.clock.advance(HOURS * HOUR_S)
    assert (await standing_of(organization))[0] == "reads_anew"
    await present(organization, None)
    deployment.clock.advance(1)
    assert (await standing_of(organization))[0] == "behind"
    await present(organization, 1)
    assert (await standing_of(organization))[0] == "current"


@in_loop
async def test_marks_say_who_can_be_behind(deployment: OptOutDeployment) -> None:
    """They are set by admins of the organization, and are in its audit."""
    organization = await deployment.new_organization()
    await organization.submit(out("a@x.org"))
    deployment.clock.advance(HOURS * HOUR_S + 1)
    assert (await standing_of(organization))[0] == "never"
    admin = Actor(kind="person", id="ann@example.org", roles={organization.slug: "admin"})
    await mark(organization, MUST_FOLLOW, by=admin)
    assert (await standing_of(organization))[0] == "behind"
    await mark(organization, STOPPED, by=admin)
    assert (await standing_of(organization))[0] == "stopped"
    await mark(organization, None, by=admin)
    assert (await standing_of(organization))[0] == "never"
    entries = [row for row in await audit_rows(deployment.database) if row.action == "propagation.mark"]
    assert [(row.actor, row.target, row.detail["mark"]) for row in entries[-3:-1]] == [
        ("person ann@example.org", organization.partner.id, MUST_FOLLOW),
        ("person ann@example.org", organization.partner.id, STOPPED),
    ]
    viewer = Actor(kind="person", id="bob@example.org", roles={organization.slug: "viewer"})
    assert len(await stands(organization, by=viewer)) == 1
    with pytest.raises(Forbidden):
        await mark(organization, STOPPED, by=viewer)
    with pytest.raises(Missing):
        await mark(organization, STOPPED, by=Actor(kind="person", id="eve@example.org"))
    with pytest.raises(Missing):
        await mark(organization, STOPPED, group_id="grp_0000000000000000000000")
    with pytest.raises(Missing):
        await mark(organization._replace(partner=await (await deployment.new_organization()).new_partner()), STOPPED)


@in_loop
async def test_inactive_keys_and_closed_organizations_leave(deployment: OptOutDeployment) -> None:
    organization = await deployment.new_organization()
    await organization.submit(out("a@x.org"))
    await present(organization, 0)
    sender = await organization.new_partner("unsubscribe")
    assert [one.client_id for one in await stands(organization)] == [organization.partner.id], "a sender never reads"
    await present(organization, 0, by=sender)
    assert len(await stands(organization)) == 2
    await deactivate_credential(ADMINISTRATOR, deployment.database, deployment.clock, client_id=sender.id)
    assert [one.client_id for one in await stands(organization)] == [organization.partner.id]
    await close_organization(ADMINISTRATOR, deployment.database, deployment.clock, slug=organization.slug)
    assert await stands(organization) == []


@in_loop
async def test_a_reader_of_the_whole_feed_is_not_behind_for_a_group(deployment: OptOutDeployment) -> None:
    organization = await deployment.new_organization()
    await organization.submit(out("a@x.org"))
    await present(organization, None, group_no=1)
    deployment.clock.advance(HOURS * HOUR_S + 1)
    (tried,) = await stands(organization)
    assert (tried.group_name, tried.standing) == ("Newsletter", "behind")
    await present(organization, 1)
    assert {one.standing for one in await stands(organization)} == {"current"}


@in_loop
async def test_after_a_restore_a_key_that_had_followed_stands_at_0(deployment: OptOutDeployment) -> None:
    """Evidence from before the restore stays."""
    organization = await deployment.new_organization()
    await organization.submit(out("a@x.org"))
    presented_ms = deployment.now_ms
    await present(organization, 1)
    deployment.clock.advance(HOURS * HOUR_S + 1)
    await after_restore(ADMINISTRATOR, deployment.database, deployment.clock)
    assert (await standing_of(organization))[:2] == ("behind", 1)
    await present(organization, None)
    assert (await standing_of(organization))[:2] == ("behind", 1)
    await present(organization, 1)
    assert (await standing_of(organization))[:2] == ("current", 0)
    assert await since(organization, 1) == {organization.partner.id: presented_ms}


async def since(organization: Organization, seq: int, *, group_id: str | None = None) -> dict[str, int | None]:
    stores = organization.deployment.stores
    found = await since_when(
        ADMINISTRATOR, stores, org_slug=organization.slug, channel=EMAIL, group_id=group_id, seq=seq
    )
    return {one.client_id: one.since_ms for one in found}


@in_loop
async def test_a_record_says_since_when_each_key_has_it(deployment: OptOutDeployment) -> None:
    """The key read the whole feed or its own group; a record for all groups comes with every group."""
    organization = await deployment.new_organization()
    await organization.new_group("Reminders")
    await organization.submit(*(out(f"p{number}@x.org") for number in range(5)))
    by_group, other_group = await organization.new_partner(), await organization.new_partner()
    never = await organization.new_partner()
    times = []
    for position in (2, 4, 5):
        deployment.clock.advance(61)
        times.append(deployment.now_ms)
        await present(organization, position)
        await present(organization, position, by=by_group, group_no=1)
        await present(organization, position, by=other_group, group_no=2)
    default = organization.default_group
    ids = [organization.partner.id, by_group.id, other_group.id, never.id]
    for seq, at_ms in ((1, times[0]), (2, times[0]), (3, times[1]), (4, times[1]), (5, times[2])):
        assert await since(organization, seq) == dict(zip(ids, (at_ms, at_ms, at_ms, None), strict=True))
        assert (await since(organization, seq, group_id=default))[other_group.id] is None
        assert (await since(organization, seq, group_id=default))[by_group.id] == at_ms
    with pytest.raises(Missing):
        await since_when(
            Actor(kind="person", id="eve@example.org"),
            deployment.stores,
            org_slug=organization.slug,
            channel=EMAIL,
            group_id=None,
            seq=1,
        )


@in_loop
async def test_the_worst_key_of_each_feed_is_measured(deployment: OptOutDeployment) -> None:
    """A key that never followed, or has stopped, does not count."""
    organization = await deployment.new_organization()
    await organization.submit(out("a@x.org"), out("b@x.org"), out("c@x.org"))
    better, stopped = await organization.new_partner(), await organization.new_partner()
    await organization.new_partner()
    await present(organization, 1)
    await present(organization, 2, by=better)
    await present(organization, 0, by=stopped)
    await mark(organization._replace(partner=stopped), STOPPED)
    deployment.clock.advance(30)
    worst = WorstKeys()
    await worst.measure(deployment.stores, hours=HOURS)
    assert worst.by_feed[organization.slug, "email"] == WorstKey(30.0, 2)
    held = HeldRequests(deployment.database)
    registry = Metrics(deployment.database, MemoryLimiter(deployment.clock), held, worst).registry
    labels = {"organization": organization.slug, "channel": "email"}
    assert registry.get_sample_value("stoplist_propagation_oldest_seconds", labels) == 30
    assert registry.get_sample_value("stoplist_propagation_behind", labels) == 2
