"""Expired tokens are deleted in small batches, oldest first; others are not."""

import asyncio

import pytest

from stoplist.db import Database, Transaction
from stoplist.oauth import tokens
from stoplist.oauth.model import REFRESH_TTL_S, TokenPair
from stoplist.oauth.tokens import TokenState, delete_expired, find_refresh_token, state_of
from tests.builders import (
    execute,
    make_key,
    make_organization,
    make_token,
    migrated,
    on_each_database,
    opened,
    rotate_token,
    sql,
    value,
)
from tests.deployment import in_own_loop
from tests.fakes import FakeClock

ISSUE = sql("""
    INSERT INTO token_pairs (client_id, epoch, access_hash, refresh_hash, access_expires_ms, refresh_expires_ms)
    WITH RECURSIVE n (i) AS (SELECT CAST(:first AS bigint) UNION ALL SELECT i + 1 FROM n WHERE i < :last)
    SELECT 'svc_ci_1', 1, CAST('a' || i AS bytea), CAST('r' || i AS bytea), 0, i FROM n  -- only: postgresql
    SELECT 'svc_ci_1', 1, 'a' || i, 'r' || i, 0, i FROM n  -- only: sqlite
""")


async def fill(database: Database, first: int, last: int) -> None:
    """Store pairs whose refresh tokens expire at the milliseconds `first` to `last`, issued in that order."""
    await database.write(lambda transaction: transaction.run(ISSUE, first=first, last=last))


async def left(database: Database) -> list[int]:
    rows = await database.all(sql("SELECT refresh_expires_ms FROM token_pairs ORDER BY pair_id"))
    return [row["refresh_expires_ms"] for row in rows]


async def rotated(database: Database, clock: FakeClock, pair: TokenPair) -> TokenPair:
    successor = await rotate_token(database, clock, pair.refresh_token)
    assert successor is not None
    return successor


@pytest.mark.parametrize(
    ("is_rotated", "is_revoked", "has_expired", "state"),
    [
        (False, False, False, TokenState.ACTIVE),
        (True, False, False, TokenState.ROTATED),
        (False, True, False, TokenState.REVOKED),
        (True, True, False, TokenState.REVOKED),
        (False, False, True, TokenState.EXPIRED),
        (True, False, True, TokenState.EXPIRED),
        (False, True, True, TokenState.EXPIRED),
        (True, True, True, TokenState.EXPIRED),
    ],
)
def test_state_follows_from_expiry_revocation_and_rotation(
    is_rotated: bool, is_revoked: bool, has_expired: bool, state: TokenState
) -> None:
    """Section D2, Reuse: neither an expired token nor a revoked one raises the alarm, rotated or not."""
    now_ms = 1_000 if has_expired else 999
    assert state_of(is_rotated=is_rotated, is_revoked=is_revoked, expires_ms=1_000, now_ms=now_ms) is state


@on_each_database
async def test_a_batch_is_small(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """No delete delays other writes for long; it returns its number, and 0 at the end."""
    monkeypatch.setattr(tokens, "EXPIRED_BATCH_ROWS", 10)
    await fill(database, 1, 25)
    went = [await delete_expired(database, 1_000) for _ in range(4)]
    assert went == [10, 10, 5, 0]


@on_each_database
async def test_the_oldest_expired_tokens_are_deleted_first(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """A token that expires now counts as expired."""
    monkeypatch.setattr(tokens, "EXPIRED_BATCH_ROWS", 10)
    await fill(database, 1, 25)
    assert await delete_expired(database, 4) == 4
    assert await left(database) == list(range(5, 26))
    assert await delete_expired(database, 25) == 10
    assert await left(database) == list(range(15, 26))
    assert await delete_expired(database, 14) == 0


@on_each_database
async def test_a_batch_is_500_rows(database: Database) -> None:
    """Some milliseconds of work."""
    await fill(database, 1, 1_203)
    assert [await delete_expired(database, 10_000) for _ in range(4)] == [500, 500, 203, 0]


@on_each_database
async def test_a_rotated_token_is_known_until_it_expires(database: Database, clock: FakeClock) -> None:
    """Section D2, Reuse: until then it must raise the alarm; its successors outlive it."""
    await make_organization(database, clock)
    first = await make_token(database, clock, await make_key(database, clock))
    clock.advance(60)
    second = await rotated(database, clock, first)
    clock.advance(REFRESH_TTL_S - 60 - 0.001)
    assert await delete_expired(database, clock.now_ms()) == 0
    found = await find_refresh_token(database, first.refresh_token, clock.now_ms())
    assert found is not None
    assert found.state is TokenState.ROTATED
    clock.advance(0.001)
    assert await delete_expired(database, clock.now_ms()) == 1
    assert await find_refresh_token(database, first.refresh_token, clock.now_ms()) is None
    third = await rotated(database, clock, second)
    assert await rotate_token(database, clock, second.refresh_token) is None
    found = await find_refresh_token(database, third.refresh_token, clock.now_ms())
    assert found is not None
    assert found.state is TokenState.ACTIVE


@on_each_database
async def test_a_reused_row_number_is_no_proof_of_use(database: Database, clock: FakeClock) -> None:
    """SQLite reuses the number of a deleted last row: a new pair must not look rotated."""
    await make_organization(database, clock)
    key = await make_key(database, clock)
    await rotated(database, clock, await make_token(database, clock, key))
    clock.advance(REFRESH_TTL_S)
    assert await delete_expired(database, clock.now_ms()) == 2
    fresh = [await make_token(database, clock, key) for _ in range(3)]
    for pair in fresh:
        found = await find_refresh_token(database, pair.refresh_token, clock.now_ms())
        assert found is not None
        assert found.state is TokenState.ACTIVE
        await rotated(database, clock, pair)


@in_own_loop
async def test_concurrent_servers_delete_each_row_once(database_url: str) -> None:
    """Two processes: the sum of their counts is right, and neither fails."""
    async with migrated(database_url) as one, opened(database_url) as other:
        await fill(one, 1, 3_000)
        went = await asyncio.gather(*(delete_expired((one, other)[turn % 2], 2_500) for turn in range(12)))
        went += [await delete_expired(one, 2_500) for _ in range(6)]
        assert sum(went) == 2_500
        assert await value(one, "SELECT COUNT(*) FROM token_pairs") == 500


@in_own_loop
async def test_only_one_process_deletes_at_a_time(postgresql_url: str) -> None:
    """Another process skips it without waiting, and takes over when the first is done or dead."""
    async with migrated(postgresql_url) as one, opened(postgresql_url) as other:
        await fill(one, 1, 600)
        at_it, go_on = asyncio.Event(), asyncio.Event()

        async def slowly(transaction: Transaction) -> None:
            await transaction.one(tokens._MAY_DELETE_EXPIRED)
            at_it.set()
            await go_on.wait()

        slow = asyncio.create_task(one.write(slowly))
        await at_it.wait()
        assert await delete_expired(other, 1_000) == 0
        assert len(await left(one)) == 600
        go_on.set()
        await slow
        assert [await delete_expired(other, 1_000) for _ in range(3)] == [500, 100, 0]


@on_each_database
async def test_tokens_of_any_client_are_deleted(database: Database, clock: FakeClock) -> None:
    """The client may no longer exist: only the time counts."""
    await fill(database, 1, 3)
    await execute(database, "UPDATE token_pairs SET client_id = 'nobody'")
    assert await delete_expired(database, clock.now_ms()) == 3
