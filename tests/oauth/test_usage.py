"""Use of keys: gathered in memory, written in few units, lost by no failure and counted once."""

import asyncio
import itertools
from typing import Any
from urllib.parse import urlsplit

import pytest

from stoplist import ids
from stoplist.clock import DAY_MS
from stoplist.db import Database
from stoplist.errors import StoreUnavailable
from stoplist.oauth import usage as usage_module
from stoplist.oauth.usage import MAX_KEPT_REFUSALS, DayOfUse, RefusedRequest, Usage, last_refusals, use_by_day
from tests.builders import (
    ADMINISTRATOR,
    contents,
    execute,
    make_key,
    make_organization,
    migrated,
    on_each_database,
    opened,
    value,
)
from tests.fakes import FakeClock
from tests.services.postgresql import Server

NOON_MS = 20_000 * DAY_MS + DAY_MS // 2
TODAY = NOON_MS // DAY_MS
KEYS = [f"{ids.CLIENT_ID}{number:022}" for number in range(40)]
KEY, OTHER = KEYS[1], KEYS[2]

_request_numbers = itertools.count()


def note(usage: Usage, at_ms: int = NOON_MS, error: str | None = None, **changes: Any) -> str:
    """One request; returns its id. One that was not refused had been authenticated, unless told otherwise."""
    request_id = f"{next(_request_numbers):024x}"
    given: dict[str, Any] = {"client_id": KEY, "is_authenticated": error is None} | changes
    usage.note(now_ms=at_ms, error=error, request_id=request_id, **given)
    return request_id


async def days(database: Database, client_id: str = KEY, *, since_day: int = 0) -> dict[int, tuple[int, int, int]]:
    """Requests, refusals by a limit, and failed authentications of each day."""
    found = await stored_days(database, client_id, since_day=since_day)
    return {day.day: (day.requests, day.limit_refusals, day.failed_authentications) for day in found}


async def stored_days(database: Database, client_id: str = KEY, *, since_day: int = 0) -> list[DayOfUse]:
    await make_known(database, client_id)
    return await use_by_day(ADMINISTRATOR, database, client_id, since_day=since_day)


async def stored_refusals(database: Database, client_id: str = KEY) -> list[RefusedRequest]:
    await make_known(database, client_id)
    return await last_refusals(ADMINISTRATOR, database, client_id)


async def make_known(database: Database, client_id: str) -> None:
    """There is a key of this id: nobody is told of the use of one that there is not."""
    clock = FakeClock()
    if await value(database, "SELECT client_id FROM clients WHERE client_id = :client_id", client_id=client_id):
        return
    if await value(database, "SELECT slug FROM organizations") is None:
        await make_organization(database, clock)
    await make_key(database, clock, client_id=client_id)


async def last_used_ms(database: Database, client_id: str = KEY) -> int | None:
    query = "SELECT MAX(last_used_ms) FROM client_days WHERE client_id = :client_id"
    found: int | None = await value(database, query, client_id=client_id)
    return found


@on_each_database
async def test_requests_are_counted_by_key_and_by_day(database: Database) -> None:
    """A day ends at midnight UTC, to the millisecond; also within one flush."""
    usage = Usage()
    midnight_ms = (TODAY + 1) * DAY_MS
    note(usage, midnight_ms - 1)
    note(usage, midnight_ms)
    note(usage, midnight_ms + 1)
    note(usage, midnight_ms, client_id=OTHER)
    await usage.flush(database)
    assert await days(database) == {TODAY: (1, 0, 0), TODAY + 1: (2, 0, 0)}
    assert await days(database, OTHER) == {TODAY + 1: (1, 0, 0)}
    assert await days(database, since_day=TODAY + 1) == {TODAY + 1: (2, 0, 0)}


@on_each_database
async def test_refusals_are_counted_by_their_kind(database: Database) -> None:
    """Those by a limit and those of a wrong secret by themselves, all of them as requests."""
    usage = Usage()
    for error in (None, "rate_limited", "rate_limited", "invalid_client", "invalid_grant", "not_found"):
        note(usage, error=error)
    await usage.flush(database)
    assert await stored_days(database, since_day=TODAY) == [
        DayOfUse(day=TODAY, requests=6, limit_refusals=2, failed_authentications=1)
    ]


@on_each_database
async def test_what_a_later_flush_brings_is_added(database: Database) -> None:
    """And a flush with nothing to write adds nothing."""
    usage = Usage()
    for _ in range(3):
        note(usage, error="rate_limited")
        await usage.flush(database)
        await usage.flush(database)
    assert await days(database) == {TODAY: (3, 3, 0)}
    assert len(await stored_refusals(database)) == 3


@on_each_database
async def test_nothing_noted_costs_no_write(database: Database) -> None:
    """An idle server is idle."""
    usage = Usage()
    note(usage)
    await usage.flush(database)
    before = database.counts.writes
    await usage.flush(database)
    assert database.counts.writes == before


@on_each_database
async def test_last_used_is_the_last_request_that_authenticated(database: Database) -> None:
    """Section D9: exact, also where it was refused by a limit; a failed authentication is no use of the key."""
    usage = Usage()
    note(usage, NOON_MS, "invalid_client")
    await usage.flush(database)
    assert await last_used_ms(database) is None
    note(usage, NOON_MS + 5)
    note(usage, NOON_MS + 7, "rate_limited", is_authenticated=True)
    note(usage, NOON_MS + 9, "invalid_client")
    await usage.flush(database)
    assert await last_used_ms(database) == NOON_MS + 7
    note(usage, NOON_MS + 11, "invalid_client")
    await usage.flush(database)
    assert await last_used_ms(database) == NOON_MS + 7


@on_each_database
async def test_last_used_never_goes_back(database: Database) -> None:
    """A server that could not write for a while brings what is older than what another one wrote since."""
    late, early = Usage(), Usage()
    note(late, NOON_MS + 60_000)
    note(early, NOON_MS)
    await late.flush(database)
    await early.flush(database)
    assert await last_used_ms(database) == NOON_MS + 60_000
    assert await days(database) == {TODAY: (2, 0, 0)}


@on_each_database
async def test_the_last_fifty_refusals_of_a_key_are_kept(database: Database) -> None:
    """Newest first: when, which request, which code. Other keys' are not touched."""
    usage = Usage()
    of_other = note(usage, NOON_MS, "not_found", client_id=OTHER)
    noted = []
    for number in range(2 * MAX_KEPT_REFUSALS + 7):
        at_ms = NOON_MS + number
        noted.append(RefusedRequest(at_ms, note(usage, at_ms, "rate_limited" if number % 2 else "not_found"), "?"))
        if number % 10 == 0:
            await usage.flush(database)
    await usage.flush(database)
    kept = await stored_refusals(database)
    assert len(kept) == MAX_KEPT_REFUSALS == 50
    assert [(it.at_ms, it.request_id) for it in kept] == [(it.at_ms, it.request_id) for it in noted[:-51:-1]]
    assert [it.code for it in kept[:2]] == ["not_found", "rate_limited"]
    assert await stored_refusals(database, OTHER) == [RefusedRequest(NOON_MS, of_other, "not_found")]
    assert await value(database, "SELECT COUNT(*) FROM client_refusals") == MAX_KEPT_REFUSALS + 1


@on_each_database
async def test_more_than_fifty_refusals_between_two_flushes_keep_the_last(database: Database) -> None:
    """Memory holds no more than will be kept; the counts hold them all. Several may fall on one millisecond."""
    usage = Usage()
    noted = [note(usage, error="rate_limited") for _ in range(80)]
    await usage.flush(database)
    assert {it.request_id for it in await stored_refusals(database)} == set(noted[-50:])
    assert await days(database) == {TODAY: (80, 80, 0)}


@on_each_database
async def test_what_cannot_be_written_is_kept_for_the_next_time(database: Database) -> None:
    """Counts and refusals, together with what came since; nothing of the failed try is stored."""
    usage = Usage()
    first = [note(usage, NOON_MS + number, "rate_limited") for number in range(3)]
    note(usage, NOON_MS + 10)
    await _break(database)
    with pytest.raises(Exception, match="no more"):
        await usage.flush(database)
    await _mend(database)
    assert await days(database) == {}
    later = note(usage, NOON_MS + 20, "not_found")
    await usage.flush(database)
    assert await days(database) == {TODAY: (5, 3, 0)}
    assert await last_used_ms(database) == NOON_MS + 10
    assert [it.request_id for it in await stored_refusals(database)] == [later, *reversed(first)]


@on_each_database
async def test_what_came_since_is_later_than_what_could_not_be_written(database: Database) -> None:
    """Last used is the later one, and the last fifty are those that came last."""
    usage = Usage()
    for number in range(60):
        note(usage, NOON_MS + number, "rate_limited", is_authenticated=True)
    await _break(database)
    with pytest.raises(Exception, match="no more"):
        await usage.flush(database)
    later = [note(usage, NOON_MS + 100 + number, "not_found", is_authenticated=True) for number in range(20)]
    with pytest.raises(Exception, match="no more"):
        await usage.flush(database)
    await _mend(database)
    await usage.flush(database)
    kept = await stored_refusals(database)
    assert [it.request_id for it in kept[:20]] == later[::-1]
    assert [it.at_ms for it in kept[20:]] == [NOON_MS + number for number in range(59, 29, -1)]
    assert await last_used_ms(database) == NOON_MS + 119
    assert await days(database) == {TODAY: (80, 60, 0)}


@on_each_database
async def test_what_comes_while_a_try_fails_is_later_than_what_it_tried(database: Database) -> None:
    """The same when the requests went on during the try itself."""
    usage = Usage()
    first = note(usage, NOON_MS, "rate_limited", is_authenticated=True)
    await _break(database)
    flushing = asyncio.create_task(usage.flush(database))
    await asyncio.sleep(0)
    later = note(usage, NOON_MS + 5, "not_found", is_authenticated=True)
    with pytest.raises(Exception, match="no more"):
        await flushing
    await _mend(database)
    await usage.flush(database)
    assert await last_used_ms(database) == NOON_MS + 5
    assert [it.request_id for it in await stored_refusals(database)] == [later, first]
    assert await days(database) == {TODAY: (2, 1, 0)}


@on_each_database
async def test_of_many_keys_only_those_that_were_written_are_gone(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They go in units of a few keys, so that none holds up other writes; each key is counted once in the end."""
    monkeypatch.setattr(usage_module, "CLIENTS_PER_UNIT", 2)
    usage = Usage()
    clients = KEYS[:7]
    for client_id in clients * 3:
        note(usage, client_id=client_id)
    await _break(database, f"client_id = '{KEYS[5]}'")
    before = database.counts.writes
    with pytest.raises(Exception, match="no more"):
        await usage.flush(database)
    assert database.counts.writes == before + 3  # keys 0 1, 2 3, 4 5
    assert await value(database, "SELECT COUNT(*) FROM client_days") == 4
    await _mend(database)
    await usage.flush(database)
    for client_id in clients:
        assert await days(database, client_id) == {TODAY: (3, 0, 0)}


@on_each_database
async def test_what_is_noted_while_it_is_written_is_counted_once(database: Database) -> None:
    """Also by two that flush at the same time, as a chore and the shutdown may."""
    usage = Usage()
    for _ in range(5):
        note(usage)
    flushing = asyncio.gather(usage.flush(database), usage.flush(database))
    for _ in range(10):
        note(usage)
        await asyncio.sleep(0)
    await flushing
    await usage.flush(database)
    assert await days(database) == {TODAY: (15, 0, 0)}


def test_two_servers_add_up(database_url: str) -> None:
    """Each brings its own share of the same keys; at once, and in whatever order."""

    async def body() -> None:
        async with migrated(database_url) as one, opened(database_url) as other:
            for _ in range(5):
                shares = Usage(), Usage()
                for share, clients in zip(shares, ((KEY, OTHER), (OTHER, KEY)), strict=True):
                    for client_id in clients:
                        note(share, error="rate_limited", client_id=client_id)
                await asyncio.gather(shares[0].flush(one), shares[1].flush(other))
            assert await days(one) == await days(other, OTHER) == {TODAY: (10, 10, 0)}
            assert len(await stored_refusals(one)) == 10

    asyncio.run(body())


def test_two_servers_do_not_wait_for_one_another_in_a_circle(postgresql: Server, postgresql_url: str) -> None:
    """They write keys in one order, so there is no deadlock: here it would not be noticed until patience ends.

    That for a lock is 5 s, and whoever has waited so long is refused.
    """
    name = urlsplit(postgresql_url).path[1:]
    postgresql.execute(f'ALTER DATABASE "{name}" SET deadlock_timeout = 60000')

    async def body() -> None:
        async with migrated(postgresql_url) as one, opened(postgresql_url) as other:
            clients = KEYS
            for _ in range(3):
                shares = Usage(), Usage()
                for client_id in clients:
                    note(shares[0], client_id=client_id)
                for client_id in reversed(clients):
                    note(shares[1], client_id=client_id)
                await asyncio.gather(shares[0].flush(one), shares[1].flush(other))
            assert await days(one, clients[7]) == {TODAY: (6, 0, 0)}

    asyncio.run(body())


@on_each_database
async def test_no_more_than_this_is_stored_of_a_request(database: Database) -> None:
    """Never what was sent: key, day, counts, time, request id and code."""
    usage = Usage()
    request_id = note(usage, error="invalid_client")
    await usage.flush(database)
    stored = await contents(database, "client_days", "client_refusals")
    assert stored == {
        "client_days": [(KEY, TODAY, 1, 0, 1, None)],
        "client_refusals": [(KEY, NOON_MS, request_id, "invalid_client")],
    }


def test_a_database_that_is_closed_loses_nothing(database_url: str) -> None:
    """What a server cannot write at its end is still there, and its end learns of it."""

    async def body() -> None:
        usage = Usage()
        note(usage)
        async with migrated(database_url) as database:
            await database.close()
            with pytest.raises(StoreUnavailable):
                await usage.flush(database)
        async with opened(database_url) as database:
            await usage.flush(database)
            assert await days(database) == {TODAY: (1, 0, 0)}

    asyncio.run(body())


async def _break(database: Database, where: str = "1 = 1") -> None:
    """From now on no use can be stored of the keys `where`."""
    await execute(
        database,
        f"""
        CREATE TRIGGER no_more BEFORE INSERT ON client_days WHEN NEW.{where} BEGIN  -- only: sqlite
            SELECT RAISE(ABORT, 'no more'); END  -- only: sqlite
        ALTER TABLE client_days ADD CONSTRAINT "no more" CHECK (NOT ({where})) NOT VALID  -- only: postgresql
        """.replace("NEW.1", "1"),
    )


async def _mend(database: Database) -> None:
    await execute(
        database,
        """
        DROP TRIGGER no_more  -- only: sqlite
        ALTER TABLE client_days DROP CONSTRAINT "no more"  -- only: postgresql
        """,
    )
