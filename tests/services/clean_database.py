"""A migrated PostgreSQL database that is emptied after each test, which takes a tenth of the time of making one."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import asyncpg

from stoplist.db import schema
from stoplist.db.opening import open_database
from tests.services.postgresql import PostgresqlServer

# What a test may not leave behind: other tables, columns, indexes, triggers, constraints or settings, and other rows of
# the tables that a migration fills.
_FINGERPRINT = """
SELECT md5(concat(
    (SELECT string_agg(concat(c.relname, c.relkind, c.reloptions, a.attname, a.atttypid, a.attnotnull), ','
                       ORDER BY c.relname, a.attnum)
       FROM pg_class c LEFT JOIN pg_attribute a ON a.attrelid = c.oid
      WHERE c.relnamespace NOT IN ('pg_catalog'::regnamespace, 'information_schema'::regnamespace,
                                   'pg_toast'::regnamespace)),
    (SELECT string_agg(pg_get_constraintdef(oid), ',' ORDER BY conname, oid) FROM pg_constraint),
    (SELECT string_agg(pg_get_triggerdef(oid), ',' ORDER BY tgname, oid) FROM pg_trigger WHERE NOT tgisinternal),
    (SELECT string_agg(concat(setrole, setconfig), ',')
       FROM pg_db_role_setting
      WHERE setdatabase IN (0, (SELECT oid FROM pg_database WHERE datname = current_database())))
))"""
_TABLES = (
    "SELECT c.oid::regclass::text FROM pg_class c WHERE c.relkind = 'r' AND c.relnamespace = 'public'::regnamespace"
)
_SEQUENCES = "SELECT format('ALTER SEQUENCE %I RESTART', sequencename) FROM pg_sequences WHERE schemaname = 'public'"


class CleanDatabase:
    """Lends one database at a time, migrated and without a row; makes another where a test changed more than rows."""

    def __init__(self, server: PostgresqlServer, *, pair_part: str | None = None) -> None:
        """`pair_part`: the database is that part of a pair, `accounts` or `feeds`."""
        self._server, self._pair_part = server, pair_part
        self._runner = asyncio.Runner()
        self._url: str | None = None
        self._connection: Any = None
        self._reset = self._fingerprint = ""
        self._filled: dict[str, str] = {}

    @contextmanager
    def lent(self) -> Iterator[str]:
        """Lend the URL of the database; afterwards it is emptied."""
        if self._url is None:
            self._runner.run(self._make())
        assert self._url is not None
        yield self._url
        if not self._runner.run(self._is_clean_again()):
            self.drop()

    def close(self) -> None:
        """Drop the database, and close the loop."""
        self.drop()
        self._runner.close()

    def drop(self) -> None:
        """Drop the database; the next test gets another."""
        if self._url is not None:
            self._connection.terminate()
            self._server.drop_database(self._url)
            self._url = None

    async def _make(self) -> None:
        url = self._server.fresh_database("lent")
        database = await open_database(url, create=True, pool_size=2)
        await schema.migrate(database, environment="development", now_ms=0)
        await database.close()
        self._connection = await asyncpg.connect(url)
        if self._pair_part is not None:
            set_pair = "UPDATE deployment SET pair_id = 'pair of the tests', pair_part = $1"
            await self._connection.execute(set_pair, self._pair_part)
        tables = [row[0] for row in await self._connection.fetch(_TABLES)]
        self._filled = {table: digest for table in tables if (digest := await self._digest(table))}
        deletions = [f"DELETE FROM {table}" for table in tables if table not in self._filled]  # noqa: S608
        restarts = [row[0] for row in await self._connection.fetch(_SEQUENCES)]
        # Neither foreign keys nor triggers: the order of the tables does not matter.
        self._reset = "; ".join(["SET LOCAL session_replication_role = replica", *deletions, *restarts])
        self._fingerprint = await self._connection.fetchval(_FINGERPRINT)
        self._url = url

    async def _is_clean_again(self) -> bool:
        try:
            async with self._connection.transaction():
                await self._connection.execute("SET LOCAL lock_timeout = '2s'")
                await self._connection.execute(self._reset)
            filled = {table: await self._digest(table) for table in self._filled}
            return filled == self._filled and await self._connection.fetchval(_FINGERPRINT) == self._fingerprint
        except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError):
            return False  # a table is gone, a lock is held, or the server was restarted

    async def _digest(self, table: str) -> str | None:
        """Return a digest of all rows, None where there are none."""
        query = f"SELECT md5(string_agg(t::text, ',' ORDER BY t::text)) FROM {table} t"  # noqa: S608
        digest: str | None = await self._connection.fetchval(query)
        return digest
