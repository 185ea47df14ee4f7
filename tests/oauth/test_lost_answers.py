"""A refresh whose answer from PostgreSQL is lost (docs/interface.md section D2, Rotation and reuse)."""

import asyncio
import contextlib
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import pytest

from stoplist import ids
from stoplist.db import sqlite
from stoplist.db.opening import sqlite_path
from stoplist.errors import StoreUnavailable
from stoplist.oauth.tokens import rotate_pair
from tests.builders import opened
from tests.fakes import FakeClock
from tests.oauth.partner import Key, Service, deployed, pair_of

PATIENCE_S = 60.0
ROUNDS = 10
ARRIVES, STORED, RUNNING = "before it arrives", "when it is stored", "while it is under way"


class Relay:
    """A proxy between Stoplist and PostgreSQL that cuts the connection of the next rotation."""

    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host, port
        self._writers: list[asyncio.StreamWriter] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._server: asyncio.Server
        self.cuts_when: str | None = None
        self.stays_cut = False
        self.was_cut = asyncio.Event()
        self.rotations: list[bytes] = []

    async def listen(self) -> int:
        """Start to listen; return the port."""
        self._server = await asyncio.start_server(self._relay, "127.0.0.1", 0)
        return int(self._server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for writer in self._writers:
            writer.transport.abort()

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        if self.stays_cut and self.was_cut.is_set():
            writer.transport.abort()
            return
        server_reader, server_writer = await asyncio.open_connection(self._host, self._port)
        self._writers.append(server_writer)
        rotates = asyncio.Event()
        self._tasks += [
            asyncio.create_task(self._to_server(reader, server_writer, writer, rotates)),
            asyncio.create_task(self._to_client(server_reader, writer, rotates)),
        ]

    async def _to_server(
        self,
        reader: asyncio.StreamReader,
        server: asyncio.StreamWriter,
        client: asyncio.StreamWriter,
        rotates: asyncio.Event,
    ) -> None:
        server.write(await _first_message(reader))
        rotations: set[bytes] = set()
        async for kind, message in _messages(reader):
            if kind == b"P" and b"ON CONFLICT (rotated_from)" in message:  # Parse: a name, and the text
                rotations.add(message[5:].split(b"\0")[0])
            elif kind == b"B":  # Bind: a portal, the name, the values
                rotates.clear()
                if message[5:].split(b"\0")[1] in rotations:
                    rotates.set()
                    self.rotations.append(message)
            if rotates.is_set() and self.cuts_when == ARRIVES:
                self._cut(client)
                return
            server.write(message)
            if kind == b"S" and rotates.is_set() and self.cuts_when == RUNNING:  # Sync: nothing more follows
                self._cut(client)
                return
        server.close()

    async def _to_client(
        self, reader: asyncio.StreamReader, client: asyncio.StreamWriter, rotates: asyncio.Event
    ) -> None:
        async for kind, message in _messages(reader):
            if rotates.is_set() and self.cuts_when == STORED:
                if kind == b"Z":  # ReadyForQuery: it is committed
                    self._cut(client)
                    return
                continue
            client.write(message)
        client.close()

    def _cut(self, client: asyncio.StreamWriter) -> None:
        self.cuts_when = None
        self.was_cut.set()
        client.transport.abort()


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
async def relayed(url: str) -> AsyncIterator[tuple[Relay, str]]:
    """Yield a relay before this server, and its URL."""
    parts = urlsplit(url)
    relay = Relay(parts.hostname or "127.0.0.1", parts.port or 5432)
    port = await relay.listen()
    account = parts.netloc.rpartition("@")[0]
    try:
        yield relay, urlunsplit(parts._replace(netloc=f"{account}@127.0.0.1:{port}", query="sslmode=disable"))
    finally:
        await relay.close()


async def assert_rotated_once(service: Service, key: Key, *, alive: str) -> None:
    """Assert one valid successor and no alarm."""
    stored = await service.stored_pairs(key)
    assert [row["rotated_from"] for row in stored] == [None, stored[0]["pair_id"]]
    assert await service.alarms(key) == []
    assert await service.epoch(key) == 1
    assert await service.is_alive(alive)


@pytest.mark.parametrize("moment", [ARRIVES, STORED])
def test_a_lost_answer_is_replaced_by_what_is_stored(postgresql_url: str, clock: FakeClock, moment: str) -> None:
    """One rotation, no alarm: the statement is sent again, and shows whether the first one arrived."""

    async def body() -> None:
        async with relayed(postgresql_url) as (relay, url), deployed(url, clock) as service:
            key = await service.new_key()
            first = await service.new_pair(key)
            relay.cuts_when = moment
            second = pair_of(await service.refresh(first.refresh_token))
            assert relay.was_cut.is_set()
            # Each has hashes of its own: the same hashes twice would violate a unique index.
            hash_ = ids.hash_secret(second.refresh_token)
            assert [hash_ in rotation for rotation in relay.rotations] == [moment == STORED, moment == ARRIVES]
            await assert_rotated_once(service, key, alive=second.access_token)
            assert await service.is_alive(pair_of(await service.refresh(second.refresh_token)).access_token)

    asyncio.run(body())


def test_a_running_refresh_is_waited_for(postgresql_url: str, clock: FakeClock) -> None:
    """The server does not notice the cut and continues: both attempts meet, and one of them stores its pair."""

    async def body() -> None:
        async with relayed(postgresql_url) as (relay, url), deployed(url, clock) as service:
            other = await asyncpg.connect(postgresql_url)
            try:
                for _ in range(ROUNDS):
                    key = await service.new_key()
                    first = await service.new_pair(key)
                    async with held_up(other, await service.stored_pairs(key)):
                        relay.cuts_when = RUNNING
                        refresh = asyncio.create_task(service.refresh(first.refresh_token))
                        await until_two_wait(other)
                    second = pair_of(await refresh)
                    await assert_rotated_once(service, key, alive=second.access_token)
            finally:
                await other.close()

    asyncio.run(body())


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
def test_an_unknown_outcome_says_not_to_send_the_token_again(
    postgresql_url: str, clock: FakeClock, moment: str
) -> None:
    """The database stays away: a second presentation might raise the alarm. Nothing is promised, nothing lost."""

    async def body() -> None:
        async with relayed(postgresql_url) as (relay, url), deployed(url, clock) as service:
            key = await service.new_key()
            first = await service.new_pair(key)
            relay.cuts_when, relay.stays_cut = moment, True
            error = (await service.refresh(first.refresh_token)).error
            assert isinstance(error, StoreUnavailable)
            assert "do not send it again" in error.text
            assert "client_credentials" in error.text
            assert error.retry_after_s == 1
            async with opened(postgresql_url) as database:
                service.database = database
                assert len(await service.stored_pairs(key)) == (2 if moment == STORED else 1)
                assert await service.alarms(key) == []

    asyncio.run(body())


def test_a_failed_refresh_on_sqlite_stores_nothing(
    sqlite_url: str, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is refused with the advice to try again, and the token is still valid."""
    monkeypatch.setattr(sqlite, "LOCK_WAIT_S", 0.01)

    async def body() -> None:
        async with deployed(sqlite_url, clock) as service:
            key = await service.new_key()
            first = await service.new_pair(key)
            path = sqlite_path(sqlite_url)
            assert path is not None
            with closing(sqlite3.connect(path, isolation_level=None)) as other:
                other.execute("BEGIN IMMEDIATE")
                with pytest.raises(StoreUnavailable, match="try again shortly") as failure:
                    await rotate_pair(service.database, clock, first.refresh_token)
                assert not failure.value.is_uncertain
                error = (await service.refresh(first.refresh_token)).error
                assert isinstance(error, StoreUnavailable)
                assert error.text == failure.value.text
            second = pair_of(await service.refresh(first.refresh_token))
            await assert_rotated_once(service, key, alive=second.access_token)

    asyncio.run(body())
