"""The next release migrates under a server of this release, which keeps working and can be restarted.

Source: docs/interface.md section D1, Schema.
"""

import asyncio
import contextlib
from pathlib import Path

import pytest

from stoplist import __version__
from stoplist.db import schema
from stoplist.db.schema import Deployment, Migration, MigrationResult, load_migrations
from tests.builders import NEWEST, on_database, opened
from tests.constants import HIGH_LIMIT
from tests.e2e import load
from tests.e2e.conftest import postgresql_installation
from tests.e2e.partners import Follower, new_token, read_feed
from tests.e2e.server_process import Installation, RunningServer
from tests.keys import EVERY_PERMISSION, Key
from tests.server.serving import RawConnection

PARTNERS = 4
ROUNDS = 10

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
    __version__,
)
NEXT_RELEASE = "99.0.0"
AFTERWARDS = Deployment("development", NEWEST + 1, __version__)


class _Partner:
    """Requests a token, opts a person out, opts the same person in again and reads, repeatedly."""

    def __init__(self, number: int, key: Key) -> None:
        self._number, self._key = number, key
        self._follower = Follower("email", 1_000)
        self.rounds = 0
        self.stored: list[str] = []

    async def work(self, line: RawConnection) -> None:
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
def installation(tmp_path: Path, postgresql_url: str) -> Installation:
    """Return an installation on PostgreSQL with the schema of this release."""
    installation = postgresql_installation(tmp_path, postgresql_url)
    installation.migrate()
    return installation


def test_servers_keep_working_and_restart_after_the_next_migration(installation: Installation) -> None:
    """No request fails before, during or after it; a server started then has everything stored."""
    key = installation.new_key(per_minute=HIGH_LIMIT, may=EVERY_PERMISSION)
    with installation.serving() as server:
        stored = asyncio.run(_migrate_under_load(installation, server, key))
        assert server.terminate() == 0
        assert not [line for line in server.log.lines if line.get("level") in ("error", "warning")], server.log.text
    installation.ok("migrate")
    assert on_database(installation.database_url, schema.read) == AFTERWARDS, "nothing is taken back"
    assert installation.json("key", "list")[0]["client_id"] == key.client_id
    with installation.serving() as server:
        feed = asyncio.run(read_feed(server, key))
    assert set(stored) <= {record["address"] for record in feed.records.values()}


async def _migrate_under_load(installation: Installation, server: RunningServer, key: Key) -> list[str]:
    """Return the addresses answered 200."""
    partners = [_Partner(number, key) for number in range(PARTNERS)]
    async with load.connections([server], PARTNERS) as lines:
        work = [asyncio.create_task(one.work(line)) for one, line in zip(partners, lines, strict=True)]
        await _run_rounds(partners, work)
        await _migrate_as_next(installation)
        await _run_rounds(partners, work)
        for task in work:
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(*work)
    return [address for one in partners for address in one.stored]


async def _migrate_as_next(installation: Installation) -> None:
    """Migrate as `stoplist migrate` of the next release would."""
    async with opened(installation.database_url) as database:
        steps = [*load_migrations(), NEXT]
        done = await schema.migrate(
            database, environment="development", now_ms=0, migrations=steps, program=NEXT_RELEASE
        )
        assert done == MigrationResult(NEWEST, NEWEST + 1, None)
        assert await schema.read(database) == AFTERWARDS


async def _run_rounds(partners: list[_Partner], work: list["asyncio.Task[None]"]) -> None:
    """Run so many more rounds per partner; a refusal fails the test."""
    until = [one.rounds + ROUNDS for one in partners]
    await load.run_until(work, lambda: all(one.rounds >= least for one, least in zip(partners, until, strict=True)))
