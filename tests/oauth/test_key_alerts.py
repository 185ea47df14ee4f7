"""Keys that need attention: docs/interface.md sections 3.1, 8 and D11."""

import pytest

from stoplist.actor import VIEWER, Actor
from stoplist.audit import trail
from stoplist.db import Database, Transaction
from stoplist.errors import Missing
from stoplist.oauth.credentials import deactivate_credential
from stoplist.oauth.key_alerts import MAX_ALERTS, list_key_alerts
from stoplist.oauth.usage import Usage
from tests.builders import ADMINISTRATOR, make_key, make_organization, on_each_database
from tests.constants import DAY_S
from tests.fakes import FakeClock

VIEWER_OF_BOLT = Actor(kind="person", id="zoe@example.org", roles={"bolt": VIEWER})


async def keys(database: Database, clock: FakeClock, *organizations: str, count: int = 1) -> list[str]:
    """Create these organizations and new keys of them; return the client_ids."""
    for slug in organizations:
        await make_organization(database, clock, slug)
    default = {"default_organization": organizations[0]}
    return [(await make_key(database, clock, *organizations, **default)).credential.client_id for _ in range(count)]


async def used(database: Database, clock: FakeClock, client_id: str, **errors: int) -> None:
    """Record this many refusals of the key now, by code, and one success."""
    usage = Usage()
    codes = [None, *(code for code, count in errors.items() for _ in range(count))]
    for number, code in enumerate(codes):
        usage.note(client_id, now_ms=clock.now_ms(), is_authenticated=True, error=code, request_id=str(number))
    await usage.flush(database)


async def alarm(database: Database, clock: FakeClock, client_id: str) -> None:
    """Record what the token endpoint records when a refresh token is used twice."""

    async def unit(transaction: Transaction) -> None:
        partner = Actor(kind="client", id=client_id)
        await trail.record(transaction, partner, "client.reuse_alarm", client_id, at_ms=clock.now_ms())

    await database.write(unit)


@on_each_database
async def test_keys_with_alarms_come_first_then_the_most_refusals(database: Database, clock: FakeClock) -> None:
    """Refusals by a limit and failed authentications together; other errors are the partner's concern."""
    few, many, fine, alarmed = await keys(database, clock, "acme", count=4)
    await used(database, clock, few, rate_limited=1, invalid_client=1)
    await used(database, clock, many, rate_limited=5)
    await used(database, clock, fine, invalid_item=9)
    await alarm(database, clock, alarmed)
    found = await list_key_alerts(ADMINISTRATOR, database, clock)
    assert [(one.client_id, one.limit_refusals, one.failed_authentications) for one in found] == [
        (alarmed, 0, 0),
        (many, 5, 0),
        (few, 1, 1),
    ]
    assert [one.alarm_ms for one in found] == [clock.now_ms(), None, None]
    assert [one.label for one in found] == [one.label for one in found if one.label]


@on_each_database
async def test_older_incidents_are_not_listed(database: Database, clock: FakeClock) -> None:
    """The last 7 days, today included; alarms too."""
    (key,) = await keys(database, clock, "acme")
    await used(database, clock, key, rate_limited=3)
    await alarm(database, clock, key)
    clock.advance(6 * DAY_S)
    await used(database, clock, key, rate_limited=4)
    (found,) = await list_key_alerts(ADMINISTRATOR, database, clock)
    assert (found.limit_refusals, found.alarm_ms is not None) == (7, True)
    clock.advance(DAY_S)
    (found,) = await list_key_alerts(ADMINISTRATOR, database, clock)
    assert (found.limit_refusals, found.alarm_ms) == (4, None)
    clock.advance(6 * DAY_S)
    assert await list_key_alerts(ADMINISTRATOR, database, clock) == []
    assert len(await list_key_alerts(ADMINISTRATOR, database, clock, days=8)) == 1


@on_each_database
async def test_people_see_alerts_of_their_organizations_only(database: Database, clock: FakeClock) -> None:
    """A key of several organizations may be one of theirs; other keys seem not to exist."""
    (shared,) = await keys(database, clock, "acme", "bolt")
    (hidden,) = await keys(database, clock, "zinc")
    for key in (shared, hidden):
        await used(database, clock, key, rate_limited=1)
        await alarm(database, clock, key)
    assert [one.client_id for one in await list_key_alerts(VIEWER_OF_BOLT, database, clock)] == [shared]
    in_bolt = await list_key_alerts(VIEWER_OF_BOLT, database, clock, org_slug="bolt")
    assert [one.client_id for one in in_bolt] == [shared]
    for slug in ("acme", "zinc", "none-such"):
        with pytest.raises(Missing):
            await list_key_alerts(VIEWER_OF_BOLT, database, clock, org_slug=slug)
    assert await list_key_alerts(Actor(kind="person", id="new@example.org"), database, clock) == []


@on_each_database
async def test_alerts_can_be_limited_to_one_organization(database: Database, clock: FakeClock) -> None:
    """The administrator would see all."""
    (acme,) = await keys(database, clock, "acme")
    (bolt,) = await keys(database, clock, "bolt")
    for key in (acme, bolt):
        await used(database, clock, key, invalid_client=2)
    assert len(await list_key_alerts(ADMINISTRATOR, database, clock)) == 2
    found = await list_key_alerts(ADMINISTRATOR, database, clock, org_slug="bolt")
    assert [one.client_id for one in found] == [bolt]


@on_each_database
async def test_the_number_of_alerts_is_bounded(database: Database, clock: FakeClock) -> None:
    """The worst ones are listed."""
    made = await keys(database, clock, "acme", count=MAX_ALERTS + 2)
    for number, key in enumerate(made, 1):
        await used(database, clock, key, rate_limited=number)
    found = await list_key_alerts(ADMINISTRATOR, database, clock)
    assert [one.client_id for one in found] == list(reversed(made))[:MAX_ALERTS]


@on_each_database
async def test_an_alert_tells_an_inactive_key(database: Database, clock: FakeClock) -> None:
    """Its program may keep trying."""
    (key,) = await keys(database, clock, "acme")
    await deactivate_credential(ADMINISTRATOR, database, clock, client_id=key)
    await used(database, clock, key, invalid_client=1)
    (found,) = await list_key_alerts(ADMINISTRATOR, database, clock)
    assert not found.is_active
