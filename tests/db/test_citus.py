"""A real Citus, where one is installed: distribution, upgrade, copy, faults of a node, and what doctor sees.

Elsewhere these tests are left out, in continuous integration too. What holds without Citus is in test_sharding.py,
test_shardable.py and test_distributable_migrations.py. Source: docs/interface.md section D1, Sharding.
"""

import asyncio
import itertools
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from stoplist.databases.opening import check_databases
from stoplist.db import Database, schema
from stoplist.db.schema import Migration, load_migrations
from stoplist.db.sharding import FEED_TABLES, DistributionResult, distribute
from stoplist.db.sharding.nodes import read_nodes
from stoplist.db.split import feeds_of
from stoplist.errors import StoreUnavailable
from stoplist.maintenance.after_restore import after_restore
from stoplist.maintenance.doctor.nodes import examine
from stoplist.proof.feed_states import compare_states
from tests.builders import (
    ADMINISTRATOR,
    apart,
    execute,
    make_key,
    make_token,
    migrated,
    on_database,
    opened,
    sql,
    value,
)
from tests.deployment import in_own_loop
from tests.fakes import FakeClock
from tests.maintenance.doctor.installation import settings
from tests.migration_fixture import ADDRESSES, assert_copied, fill_every_table, make_move
from tests.services.citus import Citus
from tests.services.postgresql import PostgresqlServer
from tests.unsubscribes.partner import OptOutDeployment, Organization, addresses, out

# The first schema with all feed tables.
DISTRIBUTABLE = 5
NEXT_RELEASE = """
ALTER TABLE unsubscribes ADD COLUMN note TEXT;
CREATE INDEX unsubscribes_by_note ON unsubscribes (feed_id, note);
CREATE TABLE feed_notes (
    feed_id BIGINT NOT NULL,
    number BIGINT NOT NULL,
    PRIMARY KEY (feed_id, number)
);
"""
NODE_OF_FEED = """SELECT p.nodeport AS port FROM pg_dist_placement d JOIN pg_dist_node p ON p.groupid = d.groupid
WHERE d.shardid = get_shard_id_for_distribution_column('feeds', CAST(:feed_id AS BIGINT))"""


@pytest.fixture
def citus_url(citus: Citus, request: pytest.FixtureRequest) -> Iterator[str]:
    """Yield the URL of an empty database on all nodes."""
    url = citus.fresh_database(request.node.name)
    yield url
    citus.drop_database(url)


async def distribution(database: Database) -> dict[str, int]:
    """Return the co-location group of each distributed table."""
    rows = await database.all(sql("SELECT CAST(logicalrelid AS text) AS name, colocationid FROM pg_dist_partition"))
    return {row["name"]: row["colocationid"] for row in rows}


@in_own_loop
async def test_the_feed_tables_are_distributed_together(citus_url: str) -> None:
    """A second run changes nothing. Every table then takes what the service writes, and after-restore renews it."""
    async with migrated(citus_url) as database:
        assert await distribute(database) == DistributionResult(FEED_TABLES)
        groups = await distribution(database)
        assert set(groups) == set(FEED_TABLES)
        assert len(set(groups.values())) == 1
        assert await distribute(database) == DistributionResult(())
        issued = await fill_every_table(database, FakeClock())
        assert {record.address for record in await issued.organization.feed()} >= set(ADDRESSES)
        renewed = await after_restore(ADMINISTRATOR, database, FakeClock())
        assert renewed.feeds > 0


@in_own_loop
async def test_existing_records_are_distributed_too(citus_url: str) -> None:
    """All of every feed; none stays behind on the coordinator."""
    async with migrated(citus_url) as database:
        issued = await fill_every_table(database, FakeClock())
        before = await issued.organization.stored()
        await distribute(database)
        assert await issued.organization.stored() == before
        local = "SELECT COUNT(*) AS n FROM pg_class WHERE relname = 'unsubscribes' AND pg_relation_size(oid) > 0"
        assert await value(database, local) == 0


async def distribute_as_then(database: Database) -> list[str]:
    """Distribute the feed tables of an earlier schema, as its release did; return them."""
    with_tables = (
        "SELECT COUNT(*) FROM pg_class WHERE relname = :name AND relnamespace = current_schema()::regnamespace"
    )
    there = [name for name in FEED_TABLES if await value(database, with_tables, name=name)]
    for name in there:
        beside = "none" if name == FEED_TABLES[0] else FEED_TABLES[0]
        statement = f"SELECT create_distributed_table('{name}', 'feed_id', colocate_with => '{beside}')"
        await execute(database, statement)
    return there


def test_a_distributed_database_is_upgraded(citus_url: str) -> None:
    """The migrations of this release upgrade it, and so does a next one with a column, an index and a feed table."""
    steps = load_migrations()
    invented = Migration(steps[-1].number + 1, NEXT_RELEASE, steps[-1].oldest_program)

    async def body() -> None:
        async with opened(citus_url) as database:
            first = steps[:DISTRIBUTABLE]
            await schema.migrate(database, environment="development", now_ms=0, migrations=first)
            earlier = await distribute_as_then(database)
            result = await schema.migrate(database, environment="development", now_ms=0)
            assert (result.before, result.after) == (DISTRIBUTABLE, steps[-1].number)
            assert await distribute(database) == DistributionResult(FEED_TABLES[len(earlier) :])
            issued = await fill_every_table(database, FakeClock())
            stored = await issued.organization.stored()
            migrations = [*steps, invented]
            await schema.migrate(database, environment="development", now_ms=0, migrations=migrations)
            after = await issued.organization.stored()
            assert [row.pop("note") for row in after["unsubscribes"]] == [None] * len(stored["unsubscribes"])
            assert after == stored
            await issued.organization.submit(out("later@example.org"))

    asyncio.run(body())


def test_feeds_apart_are_used_at_any_node(citus: Citus, citus_url: str, postgresql: PostgresqlServer) -> None:
    """The accounts are elsewhere. A worker takes what the service writes, and `after-restore` renews all feeds."""
    accounts = postgresql.fresh_database("accounts")
    worker = citus.workers[0].url(urlsplit(citus_url).path[1:])

    async def body() -> None:
        async with migrated(apart(accounts, citus_url), pool_size=2) as database:
            await distribute(feeds_of(database), has_accounts=False)
        async with opened(apart(accounts, worker), pool_size=2) as database:
            assert await check_databases(database, environment="development")
            issued = await fill_every_table(database, FakeClock())
            assert {record.address for record in await issued.organization.feed()} >= set(ADDRESSES)
            renewed = await after_restore(ADMINISTRATOR, database, FakeClock())
            compared = await compare_states(database)
            assert (compared.compared, compared.differing, compared.open) == (renewed.feeds, [], 0)

    asyncio.run(body())
    postgresql.drop_database(accounts)


def test_a_deployment_is_copied_to_many_nodes(sqlite_url: str, citus_url: str) -> None:
    """All rows, after an interruption as well."""
    move = make_move(sqlite_url, citus_url)
    on_database(citus_url, distribute)
    move.interrupt()
    move.copy()
    assert_copied(move)


class PersistentPartner:
    """A partner that submits one address after the other, and remembers what was answered."""

    def __init__(self, organization: Organization) -> None:
        self._organization = organization
        self.answered: list[str] = []
        self.refusals = 0
        self.is_done = False
        self._answer = asyncio.Condition()

    async def work(self) -> None:
        """Submit until `is_done`; what is refused is sent again, as a partner does."""
        for number in itertools.count():
            address = f"person-{number}@example.org"
            while not self.is_done:
                try:
                    await self._organization.submit(out(address))
                except StoreUnavailable:
                    self.refusals += 1
                    with suppress(StoreUnavailable):
                        await self._organization.deployment.database.clock_ms()  # so that the loop turns
                else:
                    async with self._answer:
                        self.answered.append(address)
                        self._answer.notify_all()
                    break
            if self.is_done:
                return

    async def has_answered(self, count: int) -> None:
        """Wait until so many addresses were answered."""
        async with self._answer:
            await self._answer.wait_for(lambda: len(self.answered) >= count)

    async def require_all_stored(self) -> None:
        """Assert that nothing that was answered is lost."""
        assert set(self.answered) <= set(addresses(await self._organization.feed()))


async def until_answered(partners: list[PersistentPartner], *, more: int) -> None:
    """Wait until each of these has so many more answers."""
    async with asyncio.timeout(60):
        for partner in partners:
            await partner.has_answered(len(partner.answered) + more)


@in_own_loop
async def test_a_crash_of_a_node_loses_nothing(citus: Citus, citus_url: str) -> None:
    """Feeds on it are refused until it is back. Other feeds and tokens go on without a failure."""
    async with migrated(citus_url) as database:
        await distribute(database)
        deployment = OptOutDeployment(database, FakeClock())
        organizations = [await deployment.new_organization() for _ in range(8)]
        ports = [await value(database, NODE_OF_FEED, feed_id=each.feed_id) for each in organizations]
        assert len(set(ports)) == 2, "feeds on both workers"
        failing = next(worker for worker in citus.workers if worker.port == ports[0])
        partners = [PersistentPartner(organization) for organization in organizations]
        hit = [partner for partner, port in zip(partners, ports, strict=True) if port == failing.port]
        others = [partner for partner, port in zip(partners, ports, strict=True) if port != failing.port]
        async with asyncio.TaskGroup() as group:
            for partner in partners:
                group.create_task(partner.work())
            await until_answered(partners, more=5)
            failing.kill()
            await until_answered(others, more=20)
            key = await make_key(database, deployment.clock, organizations[-1].slug)
            await make_token(database, deployment.clock, key)
            failing.start()
            await until_answered(partners, more=5)
            for partner in partners:
                partner.is_done = True
        assert any(partner.refusals for partner in hit)
        assert [partner.refusals for partner in others] == [0] * len(others)
        for partner in partners:
            await partner.require_all_stored()


@in_own_loop
async def test_every_node_is_examined(citus: Citus, citus_url: str, tmp_path: Path) -> None:
    """A setting of one worker that loses commits is noticed, and so is a worker that is inactive."""
    async with migrated(citus_url) as database:
        configured = settings(tmp_path, DATABASE_URL=citus_url)
        nodes = await read_nodes(database)
        assert [node.name for node in nodes] == [f"127.0.0.1:{node.port}" for node in citus.nodes]
        assert len({(node.facts.postgresql, node.facts.citus) for node in nodes if node.facts}) == 1
        assert all(node.facts is not None and node.facts.old_prepared == 0 for node in nodes)
        worker = citus.workers[1]
        name = f"127.0.0.1:{worker.port}"
        stem = citus_url.rpartition("/")[2]
        worker.execute(f'ALTER DATABASE "{stem}" SET synchronous_commit = off')
        await execute(database, f"SELECT citus_disable_node('127.0.0.1', {citus.workers[0].port}, true)")
    async with opened(citus_url) as database:
        found = await examine(database, configured)
        assert found.lossy == [name]
        assert any(f"synchronous_commit = off on {name};" in finding.text for finding in found.findings)
        inactive = f"Inactive: 127.0.0.1:{citus.workers[0].port}."
        assert any(inactive in finding.text for finding in found.findings)
