"""Every node of a distributed database is examined, by `doctor` and by a start (docs/operate.md, Sharding)."""

import logging
from pathlib import Path

import msgspec
import pytest

from stoplist.db.sharding.nodes import Node, NodeFacts, read_nodes
from stoplist.errors import SettingsError
from stoplist.maintenance.doctor.nodes import assess_nodes, examine
from stoplist.server.start_checks import check_nodes
from tests.builders import execute, migrated, opened
from tests.db import citus
from tests.deployment import in_own_loop
from tests.maintenance.doctor.installation import settings

GOOD = NodeFacts(
    synchronous_commit="on",
    fsync="on",
    full_page_writes="on",
    postgresql=17,
    citus="13.2-1",
    connections=97,
    is_standby=False,
    is_read_only=False,
    old_prepared=0,
)
NODES = [Node(name=f"node{number}:5432", is_active=True, facts=GOOD) for number in range(3)]

PROBLEMS = {
    "a setting that loses commits": ({"synchronous_commit": "off"}, "synchronous_commit = off on node1:5432"),
    "a node that does not sync": ({"fsync": "off"}, "fsync = off on node1:5432"),
    "torn pages": ({"full_page_writes": "off"}, "full_page_writes = off on node1:5432"),
    "a standby": ({"is_standby": True}, "citus_update_node"),
    "a read-only node": ({"is_read_only": True}, "Take no writes: node1:5432"),
    "an old PostgreSQL": ({"postgresql": 14}, "needs PostgreSQL 15 or newer, also on node1:5432"),
    "another PostgreSQL": ({"postgresql": 16}, "node1:5432 has PostgreSQL 16 and Citus 13.2-1"),
    "another Citus": ({"citus": "13.1-1"}, "ALTER EXTENSION citus UPDATE"),
    "no Citus": ({"citus": None}, "Citus (none)"),
    "too few connections": ({"connections": 39}, "up to 40 connections to each node"),
    "transactions left prepared": ({"old_prepared": 2}, "recover_prepared_transactions()"),
}


@pytest.mark.parametrize(("change", "text"), PROBLEMS.values(), ids=PROBLEMS)
def test_a_problem_of_one_node_is_named_with_the_node(tmp_path: Path, change: dict[str, object], text: str) -> None:
    """The text says what to do about it."""
    configured = settings(tmp_path, DATABASE_POOL="40")
    assert [finding.status for finding in assess_nodes(NODES, configured)] == ["ok"]
    bad = msgspec.structs.replace(NODES[1], facts=msgspec.structs.replace(GOOD, **change))
    findings = assess_nodes([NODES[0], bad, NODES[2]], configured)
    assert {(finding.check, finding.status) for finding in findings} == {("nodes", "wrong")}
    assert any(text in finding.text and "node1:5432" in finding.text for finding in findings)
    assert not any("node2:5432" in finding.text for finding in findings if "versions" not in finding.text)


def test_a_node_that_is_away_is_named(tmp_path: Path) -> None:
    """Inactive, as an administrator made it, or not reached."""
    away = [Node(name="a:1", is_active=False, facts=None), Node(name="b:2", is_active=True, facts=None)]
    inactive, lost = assess_nodes([*NODES, *away], settings(tmp_path))
    assert ("Inactive: a:1." in inactive.text, "citus_activate_node" in inactive.text) == (True, True)
    assert "Not reached by the coordinator: b:2." in lost.text


@in_own_loop
async def test_a_database_on_one_node_has_no_finding(tmp_path: Path, database_url: str) -> None:
    async with migrated(database_url) as database:
        configured = settings(tmp_path, DATABASE_URL=database_url)
        if database.kind == "postgresql":
            assert (await examine(database, configured)).findings == []
        await check_nodes(configured, database)


@in_own_loop
async def test_each_node_is_asked(tmp_path: Path, postgresql_url: str) -> None:
    """It asks the nodes that hold data and are active; the others are named as well."""
    async with migrated(postgresql_url) as database:
        await citus.install(database)
        assert await read_nodes(database) == []
        await execute(
            database,
            """INSERT INTO pg_dist_node (nodeid, groupid, nodename, isactive, noderole, is_reached) VALUES
                (4, 2, 'gone', true, 'primary', false), (3, 1, 'off', false, 'primary', true),
                (2, 1, 'standby', true, 'secondary', true), (1, 0, 'coordinator', true, 'primary', true)""",
        )
        nodes = await read_nodes(database)
        assert [node.name for node in nodes] == ["coordinator:5432", "off:5432", "gone:5432"]
        assert [node.facts is not None for node in nodes] == [True, False, False]
        facts = nodes[0].facts
        assert facts is not None
        assert (facts.synchronous_commit, facts.old_prepared, facts.is_standby) == ("on", 0, False)
        assert facts.postgresql >= 15
        assert facts.connections > 50


@in_own_loop
async def test_a_server_refuses_a_node_that_loses_commits(
    tmp_path: Path, postgresql_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Anything else is logged: a node that is away must not keep the feeds of the others from being served."""
    async with migrated(postgresql_url) as database:
        await citus.install(database)
        configured = settings(tmp_path, DATABASE_URL=postgresql_url)
        await execute(
            database,
            """INSERT INTO pg_dist_node (nodeid, groupid, nodename, is_reached)
                VALUES (1, 0, 'coordinator', true), (2, 1, 'gone', false)""",
        )
        with caplog.at_level(logging.WARNING):
            await check_nodes(configured, database)
        assert any("Not reached by the coordinator: gone:5432" in str(vars(line)) for line in caplog.records)
        await execute(
            database, "UPDATE pg_dist_node SET is_reached = true, synchronous_commit = 'off' WHERE groupid = 1"
        )
        with pytest.raises(SettingsError, match="gone:5432"):
            await check_nodes(configured, database)


@in_own_loop
async def test_a_node_that_hangs_is_a_finding(tmp_path: Path, postgresql_url: str) -> None:
    """It fails the statement that asks all nodes. Which one hangs, Citus says."""
    async with migrated(postgresql_url) as database:
        await citus.install(database)
        await execute(database, "INSERT INTO pg_dist_node (nodeid, groupid, nodename) VALUES (1, 0, 'hangs')")
        await execute(database, "DROP FUNCTION run_command_on_all_nodes")
        await execute(
            database,
            """CREATE FUNCTION run_command_on_all_nodes(command text,
                give_warning_for_connection_errors boolean, OUT nodeid integer, OUT success boolean, OUT result text)
                RETURNS SETOF record LANGUAGE plpgsql AS $$
                BEGIN RAISE EXCEPTION 'canceling statement due to statement timeout' USING ERRCODE = '57014'; END $$""",
        )
    async with opened(postgresql_url) as database:
        (finding,) = (await examine(database, settings(tmp_path, DATABASE_URL=postgresql_url))).findings
        assert finding.status == "wrong"
        assert "citus_check_cluster_node_health" in finding.text
