"""Migrations can be run by a Citus whose feed tables are distributed. Source: docs/interface.md section D1, Sharding.

Each statement of the list of faults was refused by Citus 13.2; the others that migrations may use were accepted, one
by one in one transaction.
"""

import re

import asyncpg
import pytest

from stoplist.db import Database, SchemaChange
from stoplist.db.query import only_for, statements
from stoplist.db.schema import Migration, load_migrations
from stoplist.db.sharding import FEED_TABLES
from tests.builders import on_postgresql

# The first release has it, and a database is distributed by a release: none is distributed without it.
BEFORE_DISTRIBUTION = {4}
_FEED_TABLE = "|".join(FEED_TABLES)
FAULTS = {
    "changes feed_id": re.compile(rf"ALTER TABLE (?:{_FEED_TABLE})\b.*\bCOLUMN feed_id\b"),
    "sets the statistics of a feed table": re.compile(rf"ALTER TABLE (?:{_FEED_TABLE})\b.*\bSET STATISTICS\b"),
    "builds an index outside the transaction": re.compile(r"\bCONCURRENTLY\b"),
    "has a trigger or rule on a feed table": re.compile(rf"CREATE .*\b(?:TRIGGER|RULE)\b.*\b(?:{_FEED_TABLE})\b"),
    "lets the database number a feed table": re.compile(
        rf"ALTER TABLE (?:{_FEED_TABLE})\b.*\b(?:IDENTITY|SERIAL|BIGSERIAL|nextval)\b"
    ),
    "runs a program, which cannot be split into statements": re.compile(r"\bDO \$|\$\$"),
}
BAD = {
    "changes feed_id": "ALTER TABLE feeds ALTER COLUMN feed_id TYPE BIGINT",
    "sets the statistics of a feed table": "ALTER TABLE feeds ALTER COLUMN writes\n    SET STATISTICS 0",
    "builds an index outside the transaction": "CREATE INDEX CONCURRENTLY x ON feeds (feed_id)",
    "has a trigger or rule on a feed table": "CREATE TRIGGER x AFTER INSERT ON feeds EXECUTE FUNCTION y()",
    "lets the database number a feed table": "ALTER TABLE feeds ADD COLUMN x BIGINT GENERATED ALWAYS AS IDENTITY",
    "runs a program, which cannot be split into statements": "DO $$ BEGIN PERFORM 1; END $$",
}


def faults(text: str) -> list[str]:
    """Return what a Citus could not do of a migration."""
    return [
        fault
        for statement in statements(only_for("postgresql", text))
        for fault, pattern in FAULTS.items()
        if pattern.search(" ".join(statement.split()))
    ]


@pytest.mark.parametrize("migration", load_migrations(), ids=lambda migration: str(migration.number))
def test_a_citus_can_run_every_migration(migration: Migration) -> None:
    assert bool(faults(migration.text)) == (migration.number in BEFORE_DISTRIBUTION)


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_of_a_migration_is_detected(fault: str) -> None:
    """The check above can fail."""
    assert fault in faults(f"CREATE TABLE x (y INTEGER);\n{BAD[fault]};\n")


@on_postgresql
async def test_a_script_is_sent_statement_by_statement(database: Database) -> None:
    """Citus refuses an index of a distributed table beside other statements; all are still one transaction."""
    sent: list[str] = []

    async def change(change: SchemaChange) -> None:
        connection = change._connection  # type: ignore[attr-defined]
        with connection.query_logger(lambda record: sent.append(record.query.strip())):
            await change.script("CREATE TABLE x (\n  y TEXT DEFAULT ';'\n);\nCREATE INDEX x_y ON x (y);\nSELECT 1")

    await database.under_schema_lock(change)
    assert sent == ["CREATE TABLE x (\n  y TEXT DEFAULT ';'\n);", "CREATE INDEX x_y ON x (y);", "SELECT 1"]


@on_postgresql
async def test_a_script_that_fails_leaves_nothing(database: Database) -> None:
    """The effects of its first statements are undone too."""

    async def change(change: SchemaChange) -> None:
        await change.script("CREATE TABLE x (y TEXT);\nCREATE INDEX x_z ON x (z);")

    for _ in range(2):
        with pytest.raises(asyncpg.UndefinedColumnError):
            await database.under_schema_lock(change)
