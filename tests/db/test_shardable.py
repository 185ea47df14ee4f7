"""The feed tables and their statements can be distributed by `feed_id`.

PostgreSQL's catalogue is queried for the tables, and for each statement its generic plan, which shows the restrictions
on every table in it. Source: docs/interface.md section D1, Sharding.
"""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import asyncpg
import pytest

import stoplist
from stoplist.db.query import Query, load_queries, parse_queries
from stoplist.db.sharding import FEED_TABLES
from tests.builders import NEWEST, migrate_to, on_database
from tests.services.postgresql import PostgresqlServer, on_connection

Plan = Mapping[str, Any]

MULTI_FEED_STATEMENTS = {
    "feeds": "all feeds, after a restore and to look for changed addresses; never in a request",
    "find_submission": "an id does not name its feed: each is searched by primary key, for people",
    "submissions_before": "the newest of several feeds: a page of each by its index, for people",
    "submissions_of_sender_before": "the newest of several feeds: a page of each by its index, for people",
    "find_import": "an id does not name its feed: each is searched by primary key, for people",
    "imports_of": "the imports of all feeds of an organization or deployment, for people",
    "find_upload_anywhere": "an id does not name its feed: each is searched by primary key, for people",
    "unfinished_uploads": "the uploads of the last days, for people",
    "old_uploads": "the uploads of the last days, for a chore",
    "old_work": "the work of the last days, for a chore",
    "waiting_work": "the work of the last days, for a chore of each process",
    "records_everywhere": "one address in all feeds visible to somebody: each is searched by primary key, for people",
    "erased_everywhere": "the same under the digests of these feeds",
    "digest_keys_of": "the digest keys of all feeds visible to somebody, for people",
    "feeds_that_know": "how often each of these feeds holds an address, for people",
    "file_names": "the names of all files that were imported into these feeds, for people",
    "feeds_without_digest_key": "all feeds that an older program opened, for a start",
    "feeds_with_digest_keys": "all feeds, to list or to repeat erasures",
    "changes_by_day": "the daily counts of all feeds visible to somebody, for people",
    "standing_now": "the same over all days",
    "incomplete_feeds": "all feeds without a complete state, for a chore",
    "feeds_to_clean": "all feeds in steps, for the chore that deletes old history",
    "heads": "all feeds that somebody waits for: one read a second and process, never in a request",
    "heads_and_generations": "the feeds of the organizations that somebody sees, for people and a chore",
    "followers_of_feeds": "the readers of these feeds, for people and a chore",
    "probe_all_feeds": "whether every node answers again",
    "holds_feeds": "whether there is any feed, for the doctor",
    "any_feed": "whether there is any feed, when two databases become a pair",
    "owners_of_feeds": "the organizations of all feeds, for a start and a chore",
    "highest_owner": "the highest number of an organization, for a start and after a restore",
    "entries": "what waits in the outboxes of all feeds, for a chore and the doctor",
    "oldest_entry": "since when the oldest waits there, for the metrics",
    "any_entry": "whether anything waits there, when two databases become one again",
}
"""Statements about more than one feed, and why this is acceptable: these reads go to every node."""

# Its statements need Citus functions and use only its catalogue.
_CITUS_PACKAGE = "stoplist.db.sharding"


def packages() -> list[str]:
    """Return every package with statements."""
    root = Path(stoplist.__file__).parent
    folders = (path.parent.relative_to(root.parent) for path in root.rglob("queries.sql"))
    return sorted(".".join(folder.parts) for folder in folders)


QUERIES = {
    (package, name): query
    for package in packages()
    if package != _CITUS_PACKAGE
    for name, query in load_queries(package).items()
    if query.postgresql
}


@pytest.fixture(scope="module")
def url(postgresql: PostgresqlServer) -> Iterator[str]:
    """Return a database with the schema."""
    database_url = postgresql.fresh_database("shardable")
    on_database(database_url, migrate_to, NEWEST)
    yield database_url
    postgresql.drop_database(database_url)


# The catalogue


def fetch(url: str, text: str, *values: Any) -> list[Any]:
    return list(on_connection(url, lambda connection: connection.fetch(text, *values)))


def test_every_table_with_a_feed_id_is_a_feed_table(url: str) -> None:
    """A new one must be distributed with the others."""
    rows = fetch(
        url,
        "SELECT table_name FROM information_schema.columns "
        "WHERE table_schema = current_schema() AND column_name = 'feed_id'",
    )
    assert sorted(row["table_name"] for row in rows) == sorted(FEED_TABLES)


FAULTS = {
    "an index that is not led by feed_id": """
        SELECT i.indexrelid::regclass::text AS what FROM pg_index i
        WHERE i.indrelid = ANY($1::regclass[]) AND i.indkey[0] <> (
            SELECT a.attnum FROM pg_attribute a WHERE a.attrelid = i.indrelid AND a.attname = 'feed_id')""",
    "a table without a primary key": """
        SELECT c.oid::regclass::text AS what FROM pg_class c WHERE c.oid = ANY($1::regclass[])
        AND NOT EXISTS (SELECT 1 FROM pg_index i WHERE i.indrelid = c.oid AND i.indisprimary)""",
    "a constraint over rows of other feeds": """
        SELECT conname::text AS what FROM pg_constraint WHERE conrelid = ANY($1::regclass[]) AND contype = 'x'""",
    "a foreign key from or to it": """
        SELECT conname::text AS what FROM pg_constraint
        WHERE contype = 'f' AND (conrelid = ANY($1::regclass[]) OR confrelid = ANY($1::regclass[]))""",
    "a trigger": """
        SELECT tgname::text AS what FROM pg_trigger WHERE tgrelid = ANY($1::regclass[])""",
    "a rule": """
        SELECT rulename::text AS what FROM pg_rewrite WHERE ev_class = ANY($1::regclass[])""",
    "a sequence": """
        SELECT c.oid::regclass::text AS what FROM pg_class c JOIN pg_depend d ON d.objid = c.oid
        WHERE c.relkind = 'S' AND d.refobjid = ANY($1::regclass[])""",
    "a column made of others or by a default": """
        SELECT a.attname::text AS what FROM pg_attribute a
        WHERE a.attrelid = ANY($1::regclass[]) AND a.attnum > 0 AND (a.attidentity <> '' OR a.attgenerated <> '')""",
    "a feed_id that may be NULL, or of another type": """
        SELECT a.attrelid::regclass::text AS what FROM pg_attribute a WHERE a.attrelid = ANY($1::regclass[])
        AND a.attname = 'feed_id' AND (NOT a.attnotnull OR a.atttypid <> 'bigint'::regtype)""",
    "row security, parents or children": """
        SELECT c.oid::regclass::text AS what FROM pg_class c
        WHERE c.oid = ANY($1::regclass[]) AND (c.relrowsecurity OR c.relkind <> 'r' OR c.relispartition
            OR EXISTS (SELECT 1 FROM pg_inherits h WHERE c.oid IN (h.inhrelid, h.inhparent)))""",
}
"""Queries for what Citus does not accept, or what would make a request use several nodes."""


@pytest.mark.parametrize("fault", FAULTS)
def test_no_feed_table_has_this_fault(url: str, fault: str) -> None:
    """Above all primary keys and unique indexes: each must begin with feed_id."""
    assert [row["what"] for row in fetch(url, FAULTS[fault], list(FEED_TABLES))] == []


BAD_TABLES = {
    "an index that is not led by feed_id": [
        "CREATE TABLE bad (address TEXT, feed_id BIGINT, UNIQUE (address, feed_id))"
    ],
    "a table without a primary key": ["CREATE TABLE bad (feed_id BIGINT)"],
    "a constraint over rows of other feeds": [
        "CREATE TABLE bad (feed_id BIGINT, r INT4RANGE, EXCLUDE USING gist (r WITH &&))"
    ],
    "a foreign key from or to it": [
        "CREATE TABLE bad (feed_id BIGINT PRIMARY KEY)",
        "CREATE TABLE other (feed_id BIGINT REFERENCES bad (feed_id))",
    ],
    "a trigger": [
        "CREATE TABLE bad (feed_id BIGINT)",
        "CREATE TRIGGER t BEFORE UPDATE ON bad FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger()",
    ],
    "a rule": ["CREATE TABLE bad (feed_id BIGINT)", "CREATE RULE r AS ON INSERT TO bad DO INSTEAD NOTHING"],
    "a sequence": ["CREATE TABLE bad (feed_id BIGSERIAL)"],
    "a column made of others or by a default": ["CREATE TABLE bad (feed_id BIGINT GENERATED ALWAYS AS IDENTITY)"],
    "a feed_id that may be NULL, or of another type": ["CREATE TABLE bad (feed_id BIGINT)"],
    "row security, parents or children": ["CREATE TABLE bad (feed_id BIGINT) PARTITION BY HASH (feed_id)"],
}


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_of_a_table_is_detected(url: str, fault: str) -> None:
    """The check above can fail."""

    async def find_faults(connection: asyncpg.Connection) -> list[Any]:
        transaction = connection.transaction()
        await transaction.start()
        try:
            for statement in BAD_TABLES[fault]:
                await connection.execute(statement)
            return list(await connection.fetch(FAULTS[fault], ["bad"]))
        finally:
            await transaction.rollback()

    assert on_connection(url, find_faults)


# The statements


@pytest.fixture(scope="module")
def plans(url: str) -> dict[tuple[str, str], Plan]:
    """Return the plan of every statement."""

    async def explained(connection: asyncpg.Connection) -> dict[tuple[str, str], Plan]:
        return {key: await plan_of(connection, query) for key, query in QUERIES.items()}

    return on_connection(url, explained)


async def plan_of(connection: Any, query: Query) -> Plan:
    """Return the generic plan; its parameters are `$1`, `$2`, …."""
    await connection.execute("SET plan_cache_mode = force_generic_plan")
    await connection.execute(f"PREPARE it AS {query.postgresql}")
    arguments = f"({', '.join('NULL' for _ in query.parameters)})" if query.parameters else ""
    text = await connection.fetchval(f"EXPLAIN (VERBOSE, COSTS OFF, FORMAT JSON) EXECUTE it {arguments}")
    await connection.execute("DEALLOCATE it")
    plan: Plan = json.loads(text)[0]["Plan"]
    return plan


def nodes(plan: Plan) -> Iterator[Plan]:
    """Yield every step of a plan."""
    yield plan
    for part in plan.get("Plans", []):
        yield from nodes(part)


def tables(plan: Plan) -> set[str]:
    """Return the tables that a statement reads or writes."""
    return {node["Relation Name"] for node in nodes(plan) if "Relation Name" in node}


def faults(query: Query, plan: Plan) -> list[str]:
    """Return why a statement about feeds cannot run on the node of one feed; empty if it can."""
    result = [f"joins {table}" for table in sorted(tables(plan) - set(FEED_TABLES))]
    if "feed_id" not in query.parameters:
        return [*result, "names no feed"]
    parameter = f"${query.parameters.index('feed_id') + 1}"
    for node in nodes(plan):
        result += _faults_of_step(node, parameter)
    if re.search(r"\bSET\s(?:(?!\bWHERE\b|\bRETURNING\b)[\s\S])*?\bfeed_id\s*=", query.postgresql):
        result.append("moves a row to another feed")
    return result


def _faults_of_step(node: Plan, parameter: str) -> Iterator[str]:
    if node["Node Type"] == "ModifyTable":
        if node["Operation"] == "Insert":
            yield from (
                f"inserts {it} as the feed"
                for it in _inserted_ids(node["Plans"][0])
                if not _is_parameter(it, parameter)
            )
    elif "Relation Name" in node:
        wanted = rf"\({node['Alias']}\.feed_id = {re.escape(parameter)}\)"
        if not re.search(wanted, str(node.get("Index Cond"))):
            yield f"reads {node['Relation Name']} of any feed"


def _inserted_ids(source: Plan) -> list[str]:
    """Return the expression of the first column, feed_id, in each branch of a UNION ALL."""
    if "Output" in source:
        return [source["Output"][0]]
    return [first for part in source["Plans"] for first in _inserted_ids(part)]


def _is_parameter(first: str, parameter: str) -> bool:
    # Or it is copied from a row that was found by the same feed.
    return first == parameter or bool(re.fullmatch(r"(\w+\.)?feed_id", first))


def feed_plans(plans: Mapping[tuple[str, str], Plan]) -> list[tuple[str, str]]:
    return [key for key, plan in plans.items() if tables(plan) & set(FEED_TABLES)]


def test_every_feed_statement_runs_on_one_node(plans: dict[tuple[str, str], Plan]) -> None:
    """It restricts every table to the same feed_id, or inserts only that one, and joins nothing else."""
    by_statement = {
        key[1]: faults(QUERIES[key], plans[key]) for key in feed_plans(plans) if key[1] not in MULTI_FEED_STATEMENTS
    }
    assert {name: why for name, why in by_statement.items() if why} == {}
    assert {"lock_feed", "put_records", "records_after", "keep_versions"} <= set(by_statement)


def test_the_driver_knows_every_feed_statement(plans: dict[tuple[str, str], Plan]) -> None:
    """It bounds the connections that they hold."""
    assert [key for key in feed_plans(plans) if not QUERIES[key].reads_feeds] == []


@pytest.mark.parametrize(
    "name",
    [
        "add_records",
        "put_records",
        "put_records_of_acts",
        "record_submissions",
        "touch_records",
        "keep_versions",
        "count_changes",
    ],
)
def test_a_batch_is_sent_whole_to_its_node(plans: dict[tuple[str, str], Plan], name: str) -> None:
    """Its rows come from a table of the feed, too: rows of a parameter alone are copied there by the coordinator."""
    (source,) = plans["stoplist.unsubscribes", name]["Plans"]
    assert tables(source) & set(FEED_TABLES)


def test_every_exception_is_needed(plans: dict[tuple[str, str], Plan]) -> None:
    """None of them joins a table that stays on the coordinator."""
    by_name = {key[1]: key for key in feed_plans(plans)}
    assert set(MULTI_FEED_STATEMENTS) <= set(by_name)
    for name in MULTI_FEED_STATEMENTS:
        assert faults(QUERIES[by_name[name]], plans[by_name[name]])
        assert tables(plans[by_name[name]]) <= set(FEED_TABLES)


def test_feed_id_is_the_first_column_of_each_table(url: str) -> None:
    """The check of inserts relies on this."""
    rows = fetch(
        url,
        "SELECT attrelid::regclass::text AS name FROM pg_attribute "
        "WHERE attrelid = ANY($1::regclass[]) AND attnum = 1 AND attname = 'feed_id'",
        list(FEED_TABLES),
    )
    assert sorted(row["name"] for row in rows) == sorted(FEED_TABLES)


BAD_STATEMENTS = {
    "names no feed": "SELECT head_seq FROM feeds WHERE organization_id = :organization_id",
    "reads unsubscribes of any feed": "SELECT id FROM unsubscribes WHERE address = :address AND seq > :feed_id",
    "reads feeds of any feed": """
        SELECT 1 FROM feeds f JOIN submissions s ON s.feed_id = :feed_id AND f.head_seq = s.first_seq""",
    "joins organizations": """
        SELECT o.slug FROM feeds f JOIN organizations o ON o.organization_id = f.organization_id
        WHERE f.feed_id = :feed_id""",
    "reads feed_days of any feed": """
        SELECT 1 FROM feed_days WHERE feed_id = :feed_id OR feed_id = :day""",
    "inserts $1 as the feed": """
        INSERT INTO feed_days (feed_id, day, status, reason, changes, standing)
        SELECT CAST(:other AS BIGINT), day, status, reason, changes, standing FROM feed_days
        WHERE feed_id = :feed_id""",
    "moves a row to another feed": "UPDATE feeds SET writes = 1, feed_id = feed_id + 1 WHERE feed_id = :feed_id",
    "reads submissions of any feed": """
        UPDATE feeds SET writes = 1 FROM submissions s
        WHERE feeds.feed_id = :feed_id AND s.first_seq = feeds.head_seq""",
}


@pytest.mark.parametrize("fault", BAD_STATEMENTS)
def test_each_fault_of_a_statement_is_detected(url: str, fault: str) -> None:
    """The check above can fail."""
    query = parse_queries(f"-- name: bad\n{BAD_STATEMENTS[fault]}")["bad"]
    assert fault in faults(query, on_connection(url, lambda connection: plan_of(connection, query)))
