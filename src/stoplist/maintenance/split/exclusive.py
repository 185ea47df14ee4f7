"""Transactions in which nothing else reads or writes a database, and in which two databases are compared."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple

from stoplist.databases.pair import Place, place_of
from stoplist.db import schema
from stoplist.db.opening import open_database
from stoplist.db.postgresql import SCHEMA_LOCK
from stoplist.db.query import load_queries
from stoplist.errors import Refused, SettingsError
from stoplist.maintenance.copy.connection import LongConnection, LongTransaction, open_connection
from stoplist.maintenance.copy.contents import Table, quote_name
from stoplist.maintenance.copy.tables import OWN_TABLES, require_same_tables

_QUERIES = load_queries(__package__)
_FORGET_SNAPSHOT = _QUERIES["forget_snapshot"]
_OTHER_CONNECTIONS = _QUERIES["other_connections"]
_TRY_LOCK = _QUERIES["try_lock"]

# A connection that was just closed is counted for some milliseconds.
_LOOKS, _PAUSE_S = 50, 0.1

# A Citus keeps it at its coordinator.
_A_TABLE_OF_ACCOUNTS = "organizations"

# Named after an organization was created or a feed was opened, so that the two databases may differ in them.
_OWNER_COLUMNS = frozenset(("uid", "organization_uid"))


class ComparedTables(NamedTuple):
    """The progress of a comparison: `tables` of `all_tables` are done, and `table` is the next one."""

    table: str
    tables: int
    all_tables: int


Report = Callable[[ComparedTables], None]


class ExclusiveDatabase:
    """One of the two databases. `setting` names it in errors."""

    def __init__(self, connection: LongConnection, setting: str) -> None:
        self._connection, self.setting = connection, setting

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[LongTransaction]:
        """Open a transaction. Refused while another of these, or a migration, is open."""
        async with self._connection.transaction() as transaction:
            (row,) = await transaction.all(_TRY_LOCK, number=SCHEMA_LOCK)
            if not row["is_locked"]:
                raise Refused(
                    f"Another command changes the database that {self.setting} names, or an interrupted one has not "
                    "ended there yet (or both settings name the same database): run this again when it has ended."
                )
            yield transaction

    @asynccontextmanager
    async def locked(self) -> AsyncIterator[LongTransaction]:
        """Open a transaction that excludes all others until its end. Refused while other programs are connected.

        A program that starts meanwhile waits before it knows whether it may use the database; one that ran before would
        go on as before, and write where nobody looks.
        """
        async with self.transaction() as transaction:
            await self._wait_until_alone(transaction)
            names = [table.name for table in await transaction.tables()]
            await transaction.execute(f"LOCK TABLE {listed([*names, *sorted(OWN_TABLES)])} IN ACCESS EXCLUSIVE MODE")
            await self._wait_until_alone(transaction)
            yield transaction

    async def check(self, transaction: LongTransaction, *, environment: str | None) -> tuple[str, Place]:
        """Return the environment of the database and its place in a pair. SettingsError if it cannot be used."""
        deployment = await schema.require(transaction, self.setting, environment=environment)
        if _A_TABLE_OF_ACCOUNTS not in {table.name for table in await transaction.tables()}:
            raise SettingsError(
                f"{self.setting} names a worker of a Citus, where only the tables of the feeds are: name its "
                "coordinator for this command."
            )
        return deployment.environment, await place_of(transaction)

    async def _wait_until_alone(self, transaction: LongTransaction) -> None:
        for _ in range(_LOOKS):
            await transaction.one(_FORGET_SNAPSHOT)
            (row,) = await transaction.all(_OTHER_CONNECTIONS)
            if not row["number"]:
                return
            await asyncio.sleep(_PAUSE_S)
        raise Refused(
            f"Other programs are connected to the database that {self.setting} names (connections: {row['number']}, "
            f"accounts: {row['accounts']}). What they write now would be lost: stop all servers and whatever else is "
            "connected, poolers included. Nothing was changed."
        )


@asynccontextmanager
async def open_exclusive(url: str, setting: str) -> AsyncIterator[ExclusiveDatabase]:
    """Connect to a database. SettingsError if it cannot be reached or must not be used."""
    await (await open_database(url, create=False, pool_size=2, prepared=False, setting=setting)).close()
    async with open_connection(url) as connection:
        yield ExclusiveDatabase(LongConnection(connection), setting)


async def require_same_rows(
    accounts: LongTransaction, feeds: LongTransaction, names: Sequence[str], report: Report
) -> dict[str, int]:
    """Return the number of rows by table. Raise Refused unless the named tables hold the same in both databases."""
    tables = await accounts.tables()
    require_same_tables(
        {table.name: {column.name for column in table.columns} for table in await feeds.tables()}, tables
    )
    compared = [table for table in tables if table.name in names]
    rows = {}
    for number, table in enumerate(compared):
        report(ComparedTables(table.name, number, len(compared)))
        rows[table.name] = await _require_same_table(accounts, feeds, table)
    report(ComparedTables("", len(compared), len(compared)))
    return rows


def listed(names: Sequence[str]) -> str:
    """Return the names of tables for a statement."""
    return ", ".join(map(quote_name, names))


async def _require_same_table(accounts: LongTransaction, feeds: LongTransaction, table: Table) -> int:
    columns = tuple(column for column in table.columns if column.name not in _OWNER_COLUMNS)
    compared = table._replace(columns=columns)
    here, there = await asyncio.gather(accounts.count_and_digest(compared), feeds.count_and_digest(compared))
    if not here.matches(there):
        raise Refused(
            f"The two databases do not hold the same: the table {table.name} has {here.rows} rows with the digest "
            f"{here.digest} in that of STOPLIST_DATABASE_URL, and {there.rows} with {there.digest} in that of "
            "STOPLIST_FEEDS_URL. Nothing was deleted. Make the copy anew while nothing uses either database, and run "
            "this again (docs/operate.md, Move an existing deployment)."
        )
    return here.rows
