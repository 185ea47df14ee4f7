"""The next release migrates under a server of this release, which keeps working and can be restarted.

Source: docs/interface.md section D1, Schema.
"""

import asyncio
import contextlib
from pathlib import Path

import pytest

from stoplist.db import schema
from stoplist.db.schema import Deployment, Migration, MigrationResult, load_migrations
from stoplist.oauth.model import PERMISSIONS
from tests.builders import opened
from tests.e2e import load
from tests.e2e.conftest import postgresql_place
from tests.e2e.partners import Follower, new_token
from tests.e2e.server_process import Key, Place, Server
from tests.server.serving import Connection

MANY = 1_000_000
PARTNERS = 4
ROUNDS = 10

NEWEST = load_migrations()[-1].number
# What a next release may do: add columns to busy tables, and a new table.
NEXT = Migration(
    NEWEST + 1,
    """
    ALTER TABLE unsubscribes ADD COLUMN weight INTEGER NOT NULL DEFAULT 1;
    ALTER TABLE feeds ADD COLUMN size BIGINT NOT NULL DEFAULT 0;
    ALTER TABLE clients ADD COLUMN remark TEXT;
    ALTER TABLE token_pairs ADD COLUMN remark TEXT;
    CREATE INDEX unsubscribes_of_day ON unsubscribes (feed_id, recorded_ms);
    CREATE TABLE later (later_id BIGINT NOT NULL PRIMARY KEY, client_id TEXT REFERENCES clients (client_id));
    """,
    "0.1.0",
)
AFTERWARDS = Deployment("development", NEWEST + 1, "0.1.0")


class _Partner:
    """Requests a token, opts a person out, opts the same person in again and reads, repeatedly."""

    def __init__(self, number: int, key: Key) -> None:
        self._number, self._key = number, key
        self._follower = Follower("email", 1_000)
        self.rounds = 0
        self.stored: list[str] = []

    async def work(self, line: Connection) -> None:
        while True:
            token = await new_token(line, load.issue(self._key))
            address = f"p{self._number}-{self.rounds}@example.org"
            for item in ({"address": address}, {"address": f"again{self._number}@example.org"}):
                answer = await load.send_once(line, load.submit(token, "email", [item]))
                assert answer.status == 200, answer.body
            await self._follower.read_page(line, token)
            self.stored.append(address)
            self.rounds += 1


@pytest.fixture
def place(tmp_path: Path, postgresql_url: str) -> Place:
    """Return a place on PostgreSQL with the schema of this release."""
    place = postgresql_place(tmp_path, postgresql_url)
    place.ok("migrate")
    return place


def test_servers_keep_working_and_restart_after_the_next_migration(place: Place) -> None:
    """No request fails before, during or after it; a server started then has everything stored."""
    key = place.new_key(per_minute=MANY, may=frozenset(PERMISSIONS))
    with place.serving() as server:
        stored = asyncio.run(_migrate_under_load(place, server, key))
        assert server.terminate() == 0
        assert not [line for line in server.log.lines if line.get("level") in ("error", "warning")], server.log.text
    place.ok("migrate")
    assert asyncio.run(_read_deployment(place)) == AFTERWARDS, "nothing is taken back"
    assert place.json("key", "list")[0]["client_id"] == key.client_id
    with place.serving() as server:
        assert set(stored) <= set(asyncio.run(_read_all(server, key)))


async def _migrate_under_load(place: Place, server: Server, key: Key) -> list[str]:
    """Return the addresses answered 200."""
    partners = [_Partner(number, key) for number in range(PARTNERS)]
    async with load.connections([server], PARTNERS) as lines:
        work = [asyncio.create_task(one.work(line)) for one, line in zip(partners, lines, strict=True)]
        await _run_rounds(partners, work)
        await _migrate_as_next(place)
        await _run_rounds(partners, work)
        for task in work:
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(*work)
    return [address for one in partners for address in one.stored]


async def _migrate_as_next(place: Place) -> None:
    """Migrate as `stoplist migrate` of release 0.2.0 would."""
    async with opened(place.database_url) as database:
        steps = [*load_migrations(), NEXT]
        done = await schema.migrate(database, environment="development", now_ms=0, migrations=steps, program="0.2.0")
        assert done == MigrationResult(NEWEST, NEWEST + 1, None)
        assert await schema.read(database) == AFTERWARDS


async def _read_deployment(place: Place) -> Deployment | None:
    async with opened(place.database_url) as database:
        return await schema.read(database)


async def _run_rounds(partners: list[_Partner], work: list["asyncio.Task[None]"]) -> None:
    """Run so many more rounds per partner; a refusal fails the test."""
    until = [one.rounds + ROUNDS for one in partners]
    while any(one.rounds < most for one, most in zip(partners, until, strict=True)):
        done, _ = await asyncio.wait(work, timeout=0.01, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()


async def _read_all(server: Server, key: Key) -> list[str]:
    follower = Follower("email", 10_000)
    async with load.connection(server) as line:
        await follower.read_all(line, await new_token(line, load.issue(key)))
    return [record["address"] for record in follower.records.values()]
