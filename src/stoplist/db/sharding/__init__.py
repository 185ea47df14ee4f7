"""The feeds on many nodes: their tables distributed by `feed_id`, all rows of a feed on one node.

Everything else stays where it is, on the coordinator: no statement joins it with a feed, and no foreign key leads
there. Source: docs/interface.md section D1, Sharding.
"""

from typing import NamedTuple

import asyncpg

from stoplist.db import Database, SchemaChange
from stoplist.db.opening import sqlite_path
from stoplist.db.query import load_queries
from stoplist.errors import SettingsError

FEED_TABLES = ("feeds", "unsubscribes", "unsubscribe_versions", "submissions", "feed_days", "reversals")
"""Every table with a `feed_id`; the others are co-located with the first."""

_QUERIES = load_queries(__package__)
_CITUS = _QUERIES["citus"]
_DISTRIBUTED = _QUERIES["distributed"]
_DISTRIBUTE = {table: _QUERIES[f"distribute_{table}"] for table in FEED_TABLES}
_FORGET_LOCAL_ROWS = _QUERIES["forget_local_rows"]


class Distributed(NamedTuple):
    """Which tables were distributed just now; the others were so before."""

    tables: tuple[str, ...]


def refuse_sqlite(database_url: str) -> None:
    """SettingsError where the address names no PostgreSQL: asked before a file would be made."""
    if sqlite_path(database_url) is not None:
        raise SettingsError(
            "--distribute needs PostgreSQL with the Citus extension, and this database is SQLite: move it there with "
            "`stoplist copy`, and name the new one with STOPLIST_DATABASE_URL."
        )


async def require_citus(database: Database) -> None:
    """SettingsError, with what is to be installed, where the PostgreSQL cannot distribute tables."""
    row = await database.one(_CITUS)
    if row is None or row["is_there"]:
        return
    if row["is_installed"]:
        raise SettingsError(
            "--distribute needs the Citus extension, which this server has and this database has not: as its "
            "administrator run CREATE EXTENSION citus, and add the workers with citus_add_node."
        )
    raise SettingsError(
        "--distribute needs the Citus extension, which is not installed: install Citus 12 or newer for this PostgreSQL "
        "on the coordinator and its workers, add citus to shared_preload_libraries, restart, and run "
        "CREATE EXTENSION citus in this database. Without it one PostgreSQL serves all feeds."
    )


async def distribute(database: Database) -> Distributed:
    """The tables of the feeds are distributed, with the rows that are in them; all in one step, and safe to run again.

    PostgreSQL alone, with this release's schema. Writers of feeds wait as long as it takes. SettingsError without
    Citus, and where some tables were distributed otherwise.
    """
    await require_citus(database)

    async def change(change: SchemaChange) -> Distributed:
        groups = await _groups(change)
        _check(groups)
        # Not by `run`: with rows in them this takes longer than any other statement may.
        missing = tuple(table for table in FEED_TABLES if table not in groups)
        for table in missing:
            await change.script(_DISTRIBUTE[table].postgresql)
        return Distributed(missing)

    try:
        done = await database.under_schema_lock(change)
    except asyncpg.PostgresError as error:
        raise SettingsError(
            f"Citus did not distribute the tables ({type(error).__name__}, SQLSTATE {error.sqlstate}), and nothing was "
            "changed; the server's log says why. The account must own the tables, and every worker must be reachable "
            "(citus_check_cluster_node_health)."
        ) from None
    # By itself, once the rows are safe elsewhere; and again at each run, should the last one have been cut off here.
    await database.under_schema_lock(lambda change: change.script(_FORGET_LOCAL_ROWS.postgresql))
    return done


async def _groups(change: SchemaChange) -> dict[str, int]:
    """The co-location group of each feed table that is distributed."""
    rows = await change.all(_DISTRIBUTED)
    return {row["table_name"]: row["group_number"] for row in rows if row["table_name"] in FEED_TABLES}


def _check(groups: dict[str, int]) -> None:
    """Refuse tables of which some are apart from the others: a feed must lie on one node."""
    apart = [table for table in groups if groups[table] != groups.get(FEED_TABLES[0])]
    if apart:
        raise SettingsError(
            f"These tables are not distributed together with {FEED_TABLES[0]}: {', '.join(apart)}. Undo it "
            "(undistribute_table) and run `stoplist migrate --distribute` again."
        )
