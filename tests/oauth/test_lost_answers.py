"""A refresh whose answer from PostgreSQL is lost (docs/interface.md section D2, Rotation and reuse)."""

import asyncio
import contextlib
import sqlite3
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator
from contextlib import closing
from typing import Any

import asyncpg
import pytest

from stoplist import ids
from stoplist.db import sqlite
from stoplist.db.opening import sqlite_path
from stoplist.errors import StoreUnavailable
from tests.builders import opened, rotate_token
from tests.constants import PATIENCE_S
from tests.deployment import in_own_loop
from tests.fakes import FakeClock
from tests.keys import Key
from tests.oauth.partner import TokenDeployment, pair_of, token_deployment
from tests.services.proxy import Proxy

ROUNDS = 4
ARRIVES, STORED, RUNNING = "before it arrives", "when it is stored", "while it is under way"


class RotationProxy(Proxy):
    """A proxy between Stoplist and PostgreSQL that breaks the connection of the next rotation."""

    cuts_when: str | None = None
    stays_cut = was_cut = False

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.rotations: list[bytes] = []

    async def forward_requests(self, reader: StreamReader, writer: StreamWriter, is_doomed: asyncio.Event) -> None:
        if self.stays_cut and self.was_cut:
            raise ConnectionAbortedError
        writer.write(await _first_message(reader))
        rotations: set[bytes] = set()
        async for kind, message in _messages(reader):
            if kind == b"P" and b"ON CONFLICT (rotated_from)" in message:  # Parse: a name, and the text
                rotations.add(message[5:].split(b"\0")[0])
            elif kind == b"B":  # Bind: a portal, the name, the values
                is_doomed.clear()
                if message[5:].split(b"\0")[1] in rotations:
                    is_doomed.set()
                    self.rotations.append(message)
            if is_doomed.is_set() and self.cuts_when == ARRIVES:
                raise self._lost()
            writer.write(message)
            if kind == b"S" and is_doomed.is_set() and self.cuts_when == RUNNING:  # Sync: nothing more follows
                self._lost()
                break
        raise EOFError

    async def forward_answers(self, reader: StreamReader, writer: StreamWriter, is_doomed: asyncio.Event) -> None:
        async for kind, message in _messages(reader):
            if is_doomed.is_set() and self.cuts_when == STORED:
                if kind == b"Z":  # ReadyForQuery: it is committed
                    raise self._lost()
            else:
                writer.write(message)
        raise EOFError

    def _lost(self) -> ConnectionAbortedError:
        self.cuts_when, self.was_cut = None, True
        return ConnectionAbortedError()


async def _first_message(reader: asyncio.StreamReader) -> bytes:
    size = await reader.readexactly(4)
    return size + await reader.readexactly(int.from_bytes(size) - 4)


async def _messages(reader: asyncio.StreamReader) -> AsyncIterator[tuple[bytes, bytes]]:
    """Yield each message of PostgreSQL's protocol with its kind, until the connection ends."""
    with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
        while True:
            head = await reader.readexactly(5)
            yield head[:1], head + await reader.readexactly(int.from_bytes(head[1:]) - 4)


@contextlib.asynccontextmanager
async def rotation_proxy(url: str, clock: FakeClock) -> AsyncIterator[tuple[RotationProxy, TokenDeployment]]:
    """Yield a proxy before this server, and a deployment that uses it."""
    with RotationProxy(url) as between:
        async with token_deployment(f"{between.url(url)}?sslmode=disable", clock) as deployment:
            yield between, deployment


async def assert_rotated_once(deployment: TokenDeployment, key: Key, *, alive: str) -> None:
    """Assert one valid successor and no alarm."""
    stored = await deployment.stored_pairs(key)
    assert [row["rotated_from"] for row in stored] == [None, stored[0]["pair_id"]]
    assert await deployment.alarms(key) == []
    assert await deployment.epoch(key) == 1
    assert await deployment.is_alive(alive)


@pytest.mark.parametrize("moment", [ARRIVES, STORED])
@in_own_loop
async def test_a_lost_answer_is_replaced_by_what_is_stored(postgresql_url: str, clock: FakeClock, moment: str) -> None:
    """One rotation, no alarm: the statement is sent again, and shows whether the first one arrived."""
    async with rotation_proxy(postgresql_url, clock) as (between, deployment):
        key = await deployment.new_key()
        first = await deployment.new_pair(key)
        between.cuts_when = moment
        second = pair_of(await deployment.refresh(first.refresh_token))
        assert between.was_cut
        # Each has hashes of its own: the same hashes twice would violate a unique index.
        hash_ = ids.hash_secret(second.refresh_token)
        assert [hash_ in rotation for rotation in between.rotations] == [moment == STORED, moment == ARRIVES]
        await assert_rotated_once(deployment, key, alive=second.access_token)
        assert await deployment.is_alive(pair_of(await deployment.refresh(second.refresh_token)).access_token)


@in_own_loop
async def test_a_running_refresh_is_waited_for(postgresql_url: str, clock: FakeClock) -> None:
    """The server does not notice the cut and continues: both attempts meet, and one of them stores its pair."""
    async with rotation_proxy(postgresql_url, clock) as (between, deployment):
        other = await asyncpg.connect(postgresql_url)
        try:
            for _ in range(ROUNDS):
                key = await deployment.new_key()
                first = await deployment.new_pair(key)
                async with held_up(other, await deployment.stored_pairs(key)):
                    between.cuts_when = RUNNING
                    refresh = asyncio.create_task(deployment.refresh(first.refresh_token))
                    await until_two_wait(other)
                second = pair_of(await refresh)
                await assert_rotated_once(deployment, key, alive=second.access_token)
        finally:
            await other.close()


@contextlib.asynccontextmanager
async def held_up(other: "asyncpg.Connection[asyncpg.Record]", pairs: list[Any]) -> AsyncIterator[None]:
    """Let every rotation of this pair wait for another one, which is rolled back in the end."""
    transaction = other.transaction()
    await transaction.start()
    await other.execute(
        """INSERT INTO token_pairs (client_id, epoch, access_hash, refresh_hash, rotated_from, access_expires_ms,
                                    refresh_expires_ms) VALUES ($1, 1, '1', '2', $2, 0, 0)""",
        pairs[0]["client_id"],
        pairs[0]["pair_id"],
    )
    try:
        yield
    finally:
        await transaction.rollback()


async def until_two_wait(connection: "asyncpg.Connection[asyncpg.Record]") -> None:
    """Wait until two backends wait for a lock. Inside a transaction pg_stat_activity would not change."""
    async with asyncio.timeout(PATIENCE_S):
        while await connection.fetchval("SELECT COUNT(DISTINCT pid) FROM pg_locks WHERE NOT granted") < 2:
            pass


@pytest.mark.parametrize("moment", [ARRIVES, STORED])
@in_own_loop
async def test_an_unknown_outcome_says_not_to_send_the_token_again(
    postgresql_url: str, clock: FakeClock, moment: str
) -> None:
    """The database stays away: a second presentation might raise the alarm. Nothing is promised, nothing lost."""
    async with rotation_proxy(postgresql_url, clock) as (between, deployment):
        key = await deployment.new_key()
        first = await deployment.new_pair(key)
        between.cuts_when, between.stays_cut = moment, True
        error = (await deployment.refresh(first.refresh_token)).error
        assert isinstance(error, StoreUnavailable)
        assert "do not send it again" in error.text
        assert "client_credentials" in error.text
        assert error.retry_after_s == 1
        async with opened(postgresql_url) as database:
            deployment.database = database
            assert len(await deployment.stored_pairs(key)) == (2 if moment == STORED else 1)
            assert await deployment.alarms(key) == []


def test_a_failed_refresh_on_sqlite_stores_nothing(
    sqlite_url: str, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is refused with the advice to try again, and the token is still valid."""
    monkeypatch.setattr(sqlite, "LOCK_WAIT_S", 0.01)

    async def body() -> None:
        async with token_deployment(sqlite_url, clock) as deployment:
            key = await deployment.new_key()
            first = await deployment.new_pair(key)
            path = sqlite_path(sqlite_url)
            assert path is not None
            with closing(sqlite3.connect(path, isolation_level=None)) as other:
                other.execute("BEGIN IMMEDIATE")
                with pytest.raises(StoreUnavailable, match="try again shortly") as failure:
                    await rotate_token(deployment.database, clock, first.refresh_token)
                assert not failure.value.is_uncertain
                error = (await deployment.refresh(first.refresh_token)).error
                assert isinstance(error, StoreUnavailable)
                assert error.text == failure.value.text
            second = pair_of(await deployment.refresh(first.refresh_token))
            await assert_rotated_once(deployment, key, alive=second.access_token)

    asyncio.run(body())
