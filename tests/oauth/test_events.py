"""Events of a key, and the people from whom they are hidden: docs/interface.md section D11."""

from stoplist.actor import ADMIN, VIEWER, Actor
from stoplist.audit import trail
from stoplist.db import Database, Transaction
from stoplist.oauth import credentials
from stoplist.oauth.credentials import Changes, list_credentials, show_credential
from stoplist.oauth.events import Alarm, alarms, events_of
from stoplist.oauth.store import may_change
from tests.builders import ADMINISTRATOR, make_key, make_organization, on_each_database
from tests.deployment import in_loop
from tests.fakes import FakeClock
from tests.oauth.partner import TokenDeployment
from tests.unsubscribes.people import person


async def key_of_two(database: Database, clock: FakeClock) -> str:
    """Create a key of `acme` and of `bolt`, its default."""
    for slug in ("acme", "bolt"):
        await make_organization(database, clock, slug)
    return (await make_key(database, clock, "acme", "bolt", default_organization="bolt")).credential.client_id


async def alarm(database: Database, client_id: str, *, at_ms: int) -> None:
    """Record what the token endpoint records when a refresh token is used twice."""
    partner = Actor(kind="client", id=client_id, source_ip="198.51.100.7", request_id="1" * 24)

    async def unit(transaction: Transaction) -> None:
        await trail.record(transaction, partner, "client.reuse_alarm", client_id, at_ms=at_ms)

    await database.write(unit)


@on_each_database
async def test_hidden_organizations_are_only_counted(database: Database, clock: FakeClock) -> None:
    """The list and the page of one key show neither their names nor that one of them is the default."""
    client_id = await key_of_two(database, clock)
    for actor, organizations, hidden, default in (
        (ADMINISTRATOR, ["acme", "bolt"], 0, "bolt"),
        (person(acme=ADMIN, bolt=VIEWER), ["acme", "bolt"], 0, "bolt"),
        (person(acme=ADMIN), ["acme"], 1, None),
        (person(bolt=VIEWER), ["bolt"], 1, "bolt"),
    ):
        shown = await show_credential(actor, database, client_id=client_id)
        assert (shown.organizations, shown.hidden_organizations) == (organizations, hidden)
        assert shown.default_organization == default
        assert await list_credentials(actor, database) == [shown]


@on_each_database
async def test_may_change_agrees_with_the_operations(database: Database, clock: FakeClock) -> None:
    """Pages must not show a button that would be refused."""
    client_id = await key_of_two(database, clock)
    for actor, may in (
        (ADMINISTRATOR, True),
        (person(acme=ADMIN, bolt=ADMIN), True),
        (person(acme=ADMIN, bolt=VIEWER), False),
        (person(acme=ADMIN), False),
        (person(acme=VIEWER, bolt=VIEWER), False),
    ):
        assert may_change(actor, await show_credential(actor, database, client_id=client_id)) is may


@on_each_database
async def test_events_are_listed_newest_first(database: Database, clock: FakeClock) -> None:
    """The list has as many as requested, without those of other keys."""
    client_id = await key_of_two(database, clock)
    await make_key(database, clock)
    for change in (credentials.revoke_tokens, credentials.deactivate_credential, credentials.activate_credential):
        clock.advance(60)
        await change(ADMINISTRATOR, database, clock, client_id=client_id)
    events = await events_of(ADMINISTRATOR, database, client_id)
    assert [it.action for it in events] == ["key.activate", "key.deactivate", "key.revoke_tokens", "key.create"]
    assert (events[0].at_ms, events[0].organizations) == (clock.now_ms(), ["acme", "bolt"])
    assert [it.action for it in await events_of(ADMINISTRATOR, database, client_id, limit=2)] == [
        "key.activate",
        "key.deactivate",
    ]


@on_each_database
async def test_events_are_reduced_for_those_who_may_not_read_the_audit(database: Database, clock: FakeClock) -> None:
    """Actor, action and time; not the source or the details, which name hidden organizations."""
    client_id = await key_of_two(database, clock)
    for actor in (person(acme=ADMIN), person(acme=VIEWER), person(acme=ADMIN, bolt=VIEWER)):
        [event] = await events_of(actor, database, client_id)
        assert (event.action, event.actor_id, event.at_ms) == ("key.create", "tester", clock.now_ms())
        assert (event.detail, event.source_ip, event.request_id) == ({}, None, None)
        assert event.organizations == [slug for slug in ("acme", "bolt") if slug in actor.roles]
    [event] = await events_of(person(acme=ADMIN, bolt=ADMIN), database, client_id)
    assert event.detail["covers"] == ["acme", "bolt"]


@on_each_database
async def test_formerly_covered_organizations_stay_hidden(database: Database, clock: FakeClock) -> None:
    """The row of a change concerns the organizations before and after it."""
    client_id = await key_of_two(database, clock)
    away = Changes(organizations=["acme"])
    await credentials.update_credential(ADMINISTRATOR, database, clock, client_id=client_id, changes=away)
    update, create = await events_of(person(acme=ADMIN), database, client_id)
    assert (update.detail, create.detail) == ({}, {})
    assert (update.organizations, create.organizations) == (["acme"], ["acme"])
    assert "bolt" not in repr((update, create))
    [update, _] = await events_of(ADMINISTRATOR, database, client_id)
    assert update.organizations == ["acme", "bolt"]


@on_each_database
async def test_the_last_alarm_of_each_key_is_listed(database: Database, clock: FakeClock) -> None:
    """The list has visible keys only, the latest alarm first, and none older than requested."""
    both = await key_of_two(database, clock)
    of_acme = (await make_key(database, clock, "acme")).credential.client_id
    of_bolt = (await make_key(database, clock, "bolt")).credential.client_id
    assert await alarms(ADMINISTRATOR, database, since_ms=0) == []
    for client_id, at_ms in ((of_acme, 10), (both, 30), (both, 20), (of_bolt, 5)):
        await alarm(database, client_id, at_ms=at_ms)
    assert await alarms(ADMINISTRATOR, database, since_ms=0) == [
        Alarm(both, 30),
        Alarm(of_acme, 10),
        Alarm(of_bolt, 5),
    ]
    assert await alarms(ADMINISTRATOR, database, since_ms=11) == [Alarm(both, 30)]
    assert await alarms(person(acme=VIEWER), database, since_ms=0) == [Alarm(both, 30), Alarm(of_acme, 10)]
    assert await alarms(person(), database, since_ms=0) == []


@in_loop
async def test_a_reuse_alarm_concerns_every_organization_of_its_key(deployment: TokenDeployment) -> None:
    """So their admins read it in the audit, with its source."""
    key = await deployment.new_key()
    pair = await deployment.new_pair(key)
    for _ in range(2):
        await deployment.refresh(pair.refresh_token)
    [slug] = (await show_credential(ADMINISTRATOR, deployment.database, client_id=key.client_id)).organizations
    event = (await events_of(person(**{slug: ADMIN}), deployment.database, key.client_id))[0]
    assert (event.action, event.organizations) == ("client.reuse_alarm", [slug])
    assert event.source_ip is not None
    assert key.client_id in [it.client_id for it in await alarms(ADMINISTRATOR, deployment.database, since_ms=0)]
