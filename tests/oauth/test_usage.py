"""Use of keys: collected in memory, written in few units, not lost by any failure and counted once."""

import asyncio
import itertools
from typing import Any
from urllib.parse import urlsplit

import pytest

from stoplist import ids
from stoplist.db import Database
from stoplist.errors import StoreUnavailable
from stoplist.oauth import usage as usage_module
from stoplist.oauth.usage import (
    MAX_KEPT_REFUSALS,
    DayOfUse,
    RefusedRequest,
    Usage,
    group_refusals,
    last_refusals,
    use_by_day,
)
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
from tests.constants import DAY_MS, HOUR_MS
from tests.deployment import in_own_loop
from tests.fakes import FakeClock
from tests.services.postgresql import PostgresqlServer

NOON_MS = 20_000 * DAY_MS + DAY_MS // 2
TODAY = NOON_MS // DAY_MS
KEYS = [f"{ids.CLIENT_ID}{number:022}" for number in range(40)]
KEY, OTHER = KEYS[1], KEYS[2]

_request_numbers = itertools.count()


def note(usage: Usage, at_ms: int = NOON_MS, error: str | None = None, **changes: Any) -> str:
    """Record one request; return its id. It was authenticated if it was not refused, unless stated otherwise."""
    request_id = f"{next(_request_numbers):024x}"
    given: dict[str, Any] = {"client_id": KEY, "is_authenticated": error is None} | changes
    usage.note(now_ms=at_ms, error=error, request_id=request_id, **given)
    return request_id


async def days(database: Database, client_id: str = KEY, *, since_day: int = 0) -> dict[int, tuple[int, int, int]]:
    """Return requests, refusals by a limit, and failed authentications of each day."""
    found = await stored_days(database, client_id, since_day=since_day)
    return {day.day: (day.requests, day.limit_refusals, day.failed_authentications) for day in found}


async def stored_days(database: Database, client_id: str = KEY, *, since_day: int = 0) -> list[DayOfUse]:
    await create_key(database, client_id)
    return await use_by_day(ADMINISTRATOR, database, client_id, since_day=since_day)


async def stored_refusals(database: Database, client_id: str = KEY) -> list[RefusedRequest]:
    await create_key(database, client_id)
    return await last_refusals(ADMINISTRATOR, database, client_id)


async def create_key(database: Database, client_id: str) -> None:
    """Create a key of this id, without which its use cannot be read."""
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
    """Those by a limit and those by a wrong secret are counted separately, and all as requests."""
    usage = Usage()
    for error in (None, "rate_limited", "rate_limited", "invalid_client", "invalid_grant", "not_found"):
        note(usage, error=error)
    await usage.flush(database)
    assert await stored_days(database, since_day=TODAY) == [
        DayOfUse(day=TODAY, requests=6, limit_refusals=2, failed_authentications=1)
    ]


@on_each_database
async def test_a_later_flush_adds_to_the_counts(database: Database) -> None:
    """A flush with nothing to write adds nothing."""
    usage = Usage()
    for _ in range(3):
        note(usage, error="rate_limited")
        await usage.flush(database)
        await usage.flush(database)
    assert await days(database) == {TODAY: (3, 3, 0)}
    assert len(await stored_refusals(database)) == 3


@on_each_database
async def test_an_idle_server_writes_nothing(database: Database) -> None:
    usage = Usage()
    note(usage)
    await usage.flush(database)
    before = database.counts.writes
    await usage.flush(database)
    assert database.counts.writes == before


@on_each_database
async def test_last_used_is_the_last_request_that_authenticated(database: Database) -> None:
    """Section D9: exact, also if a limit refused it; a failed authentication is no use of the key."""
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
    """A server that could not write for a while brings older times than another has written since."""
    late, early = Usage(), Usage()
    note(late, NOON_MS + 60_000)
    note(early, NOON_MS)
    await late.flush(database)
    await early.flush(database)
    assert await last_used_ms(database) == NOON_MS + 60_000
    assert await days(database) == {TODAY: (2, 0, 0)}


@on_each_database
async def test_the_last_50_refusals_of_each_code_are_kept(database: Database) -> None:
    """Newest first: time, request, code. Many of one code displace no other, and those of other keys stay."""
    usage = Usage()
    of_other = note(usage, NOON_MS, "not_found", client_id=OTHER)
    rare = RefusedRequest(NOON_MS - 1, note(usage, NOON_MS - 1, "invalid_item"), "invalid_item")
    noted = []
    for number in range(3 * MAX_KEPT_REFUSALS + 7):
        at_ms = NOON_MS + number
        code = "rate_limited" if number % 3 else "not_found"
        noted.append(RefusedRequest(at_ms, note(usage, at_ms, code), code))
        if number % 70 == 0:
            await usage.flush(database)
    await usage.flush(database)
    kept = [
        *[it for it in noted if it.code == "rate_limited"][-50:],
        *[it for it in noted if it.code == "not_found"][-50:],
        rare,
    ]
    assert MAX_KEPT_REFUSALS == 50
    assert await stored_refusals(database) == sorted(kept, key=lambda it: -it.at_ms)
    assert await stored_refusals(database, OTHER) == [RefusedRequest(NOON_MS, of_other, "not_found")]
    assert await value(database, "SELECT COUNT(*) FROM client_refusals") == len(kept) + 1


def test_refusals_are_grouped_by_hour_and_code() -> None:
    """Hours in UTC, newest first. Only the oldest group of a code of which the last 50 are kept may lack some."""

    def refusals(code: str, *times_ms: int) -> list[RefusedRequest]:
        return [RefusedRequest(at_ms, f"{code} {at_ms}", code) for at_ms in times_ms]

    last = 10 * HOUR_MS
    many = refusals("rate_limited", *(last - number * 100_000 for number in range(MAX_KEPT_REFUSALS)))
    rare = refusals("invalid_item", last + 5, last - 1)
    groups = group_refusals(sorted(many + rare, key=lambda it: -it.at_ms))
    assert [(it.hour_ms // HOUR_MS, it.code, it.count, it.is_cut) for it in groups] == [
        (10, "invalid_item", 1, False),
        (10, "rate_limited", 1, False),
        (9, "invalid_item", 1, False),
        (9, "rate_limited", 36, False),
        (8, "rate_limited", 13, True),
    ]
    assert [it.newest.request_id for it in groups[:2]] == [f"invalid_item {last + 5}", f"rate_limited {last}"]
    assert group_refusals([]) == []


@on_each_database
async def test_memory_holds_at_most_50_refusals_of_a_key(database: Database) -> None:
    """The counts include all of them. Several may have the same millisecond."""
    usage = Usage()
    noted = [note(usage, error="rate_limited") for _ in range(80)]
    await usage.flush(database)
    assert {it.request_id for it in await stored_refusals(database)} == set(noted[-50:])
    assert await days(database) == {TODAY: (80, 80, 0)}


@on_each_database
async def test_use_that_cannot_be_written_is_kept(database: Database) -> None:
    """Counts and refusals, together with newer ones; nothing of the failed attempt is stored."""
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
async def test_newer_use_follows_use_that_could_not_be_written(database: Database) -> None:
    """Last used is the later one, and the last fifty of a code are the latest ones."""
    usage = Usage()
    for number in range(60):
        note(usage, NOON_MS + number, "rate_limited", is_authenticated=True)
    await _break(database)
    with pytest.raises(Exception, match="no more"):
        await usage.flush(database)
    later = [note(usage, NOON_MS + 100 + number, "rate_limited", is_authenticated=True) for number in range(20)]
    with pytest.raises(Exception, match="no more"):
        await usage.flush(database)
    await _mend(database)
    await usage.flush(database)
    kept = await stored_refusals(database)
    assert [it.request_id for it in kept[:20]] == later[::-1]
    assert [it.at_ms for it in kept[20:]] == [NOON_MS + number for number in range(59, 29, -1)]
    assert await last_used_ms(database) == NOON_MS + 119
    assert await days(database) == {TODAY: (80, 80, 0)}


@on_each_database
async def test_use_during_a_failed_write_follows_it(database: Database) -> None:
    """The same if requests went on during the attempt."""
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
async def test_only_written_keys_are_removed_from_memory(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Units are small and delay no other write; one that fails stops none. Each key counts once in the end."""
    monkeypatch.setattr(usage_module, "CLIENTS_PER_UNIT", 2)
    usage = Usage()
    clients = KEYS[:7]
    for client_id in clients * 3:
        note(usage, client_id=client_id)
    await _break(database, f"client_id = '{KEYS[5]}'")
    before = database.counts.writes
    with pytest.raises(Exception, match="no more"):
        await usage.flush(database)
    assert database.counts.writes == before + 4  # keys 0 1, 2 3, 4 5, which fails, and 6
    assert await value(database, "SELECT COUNT(*) FROM client_days") == 5
    await _mend(database)
    await usage.flush(database)
    for client_id in clients:
        assert await days(database, client_id) == {TODAY: (3, 0, 0)}


@on_each_database
async def test_use_noted_during_a_write_is_counted_once(database: Database) -> None:
    """Two concurrent flushes, such as those of a chore and of the shutdown, count it once too."""
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


@in_own_loop
async def test_the_use_of_two_servers_adds_up(database_url: str) -> None:
    """Each writes its own share of the same keys, at the same time and in any order."""
    async with migrated(database_url) as one, opened(database_url) as other:
        for _ in range(5):
            shares = Usage(), Usage()
            for share, clients in zip(shares, ((KEY, OTHER), (OTHER, KEY)), strict=True):
                for client_id in clients:
                    note(share, error="rate_limited", client_id=client_id)
            await asyncio.gather(shares[0].flush(one), shares[1].flush(other))
        assert await days(one) == await days(other, OTHER) == {TODAY: (10, 10, 0)}
        assert len(await stored_refusals(one)) == 10


def test_two_servers_never_deadlock(postgresql: PostgresqlServer, postgresql_url: str) -> None:
    """They write keys in one order. A deadlock would be noticed only when a lock times out.

    That takes 5 s, after which the write is refused.
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
async def test_nothing_that_was_sent_is_stored(database: Database) -> None:
    """Key, day, counts, time, request id and code are all that is."""
    usage = Usage()
    request_id = note(usage, error="invalid_client")
    await usage.flush(database)
    stored = await contents(database, "client_days", "client_refusals")
    assert stored == {
        "client_days": [(KEY, TODAY, 1, 0, 1, None)],
        "client_refusals": [(KEY, NOON_MS, request_id, "invalid_client")],
    }


@in_own_loop
async def test_a_closed_database_loses_no_use(database_url: str) -> None:
    """Uses that a server cannot write at its end are still in memory, and the failure is raised."""
    usage = Usage()
    note(usage)
    async with migrated(database_url) as database:
        await database.close()
        with pytest.raises(StoreUnavailable):
            await usage.flush(database)
    async with opened(database_url) as database:
        await usage.flush(database)
        assert await days(database) == {TODAY: (1, 0, 0)}


async def _break(database: Database, where: str = "1 = 1") -> None:
    """Refuse to store use of the keys `where`."""
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
