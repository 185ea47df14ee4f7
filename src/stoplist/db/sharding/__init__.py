"""Distribution of the feeds over many nodes: their tables by `feed_id`, all rows of a feed on one node.

The other tables stay on the coordinator: no statement joins them with a feed, and no foreign key connects them.
Source: docs/interface.md section D1, Sharding.
"""

from typing import NamedTuple

import asyncpg

from stoplist.db import Database, SchemaChange
from stoplist.db.opening import sqlite_path
from stoplist.db.query import load_queries
from stoplist.errors import SettingsError

FEED_TABLES = (
    "feeds",
    "unsubscribes",
    "unsubscribe_versions",
    "submissions",
    "feed_days",
    "reversals",
    "imports",
    "import_parts",
    "uploads",
    "upload_pieces",
    "import_rejects",
    "import_work",
    "feed_followers",
    "feed_positions",
    "erasures",
    "feed_outbox",
    "confirmed_ranges",
)
"""Every table with a `feed_id`. All are co-located with the first."""

_QUERIES = load_queries(__package__)
_CITUS = _QUERIES["citus"]
_DISTRIBUTED = _QUERIES["distributed"]
_DISTRIBUTE = {table: _QUERIES[f"distribute_{table}"] for table in FEED_TABLES}
_COPY_TO_NODES = _QUERIES["copy_to_nodes"]
_FORGET_LOCAL_ROWS = _QUERIES["forget_local_rows"]


class DistributionResult(NamedTuple):
    """The tables distributed by this run; the other feed tables were distributed before."""

    tables: tuple[str, ...]


def require_postgresql(database_url: str) -> None:
    """Raise SettingsError for a SQLite URL, before a file is created."""
    if sqlite_path(database_url) is not None:
        raise SettingsError(
            "--distribute needs PostgreSQL with the Citus extension, and this database is SQLite: move it there with "
            "`stoplist copy`, and name the new one with STOPLIST_DATABASE_URL."
        )


async def require_citus(database: Database) -> None:
    """Raise SettingsError, saying what to install, if the server cannot distribute tables."""
    row = await database.one(_CITUS)
    if row is None or row["is_there"]:
        return
    if row["is_installed"]:
        raise SettingsError(
            "--distribute needs the Citus extension, which is installed on this server but not created in this "
            "database: as its administrator run CREATE EXTENSION citus, and add the workers with citus_add_node."
        )
    raise SettingsError(
        "--distribute needs the Citus extension, which is not installed: install Citus 12 or newer for this PostgreSQL "
        "on the coordinator and its workers, add citus to shared_preload_libraries, restart, and run "
        "CREATE EXTENSION citus in this database. Without it one PostgreSQL serves all feeds."
    )


async def distribute(database: Database, *, has_accounts: bool = True) -> DistributionResult:
    """Distribute the feed tables and their rows in one transaction. Safe to run again.

    Where the accounts are in another database, any node may be asked, so the two tables that tell what a database is
    are copied to each.
    For PostgreSQL with this release's schema. Writers of feeds wait until the end. Raise SettingsError without Citus,
    or if some tables are distributed differently.
    """
    await require_citus(database)

    async def change(change: SchemaChange) -> DistributionResult:
        groups = await _groups(change)
        _check(groups)
        # `script`, not `run`: with existing rows this takes longer than the usual statement timeout.
        missing = tuple(table for table in FEED_TABLES if table not in groups)
        for table in missing:
            await change.script(_DISTRIBUTE[table].postgresql)
        if not has_accounts:
            await change.script(_COPY_TO_NODES.postgresql)
        return DistributionResult(missing)

    try:
        result = await database.under_schema_lock(change)
    except asyncpg.PostgresError as error:
        raise SettingsError(
            f"Citus did not distribute the tables ({type(error).__name__}, SQLSTATE {error.sqlstate}), and nothing was "
            "changed; the server's log says why. The account must own the tables, and every worker must be reachable "
            "(citus_check_cluster_node_health)."
        ) from None
    # In a transaction of its own, once the rows are safe on the nodes; at each run, in case the last one ended here.
    await database.under_schema_lock(lambda change: change.script(_FORGET_LOCAL_ROWS.postgresql))
    return result


async def _groups(change: SchemaChange) -> dict[str, int]:
    """Return the co-location group of each distributed feed table."""
    rows = await change.all(_DISTRIBUTED)
    return {row["table_name"]: row["group_number"] for row in rows if row["table_name"] in FEED_TABLES}


def _check(groups: dict[str, int]) -> None:
    """Raise SettingsError unless all distributed tables are co-located: a feed must be on one node."""
    separate = [table for table in groups if groups[table] != groups.get(FEED_TABLES[0])]
    if separate:
        raise SettingsError(
            f"These tables are not distributed together with {FEED_TABLES[0]}: {', '.join(separate)}. Undo it "
            "(undistribute_table) and run `stoplist migrate --distribute` again."
        )
