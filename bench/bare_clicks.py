"""The baseline of one-click opt-outs: a bare Starlette handler with the same statements, on SQLite or PostgreSQL.

`python -m bench.bare_clicks CERTIFICATE KEY 30 --port 9000` answers with 30 bytes. A GET reads twice. A click reads
twice, and writes in one transaction of four statements, as durably as the product does: on SQLite with a commit per
click, because a bare handler shares none. The database is in BENCH_DATABASE_URL.
"""

import contextlib
import itertools
import os
import sqlite3
import sys
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import parse_qsl

import asyncpg
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from bench.bare import serve

PATH = "/click"

_CONNECTIONS = 20
_TABLES = (
    "CREATE TABLE IF NOT EXISTS bare_heads (feed_id BIGINT PRIMARY KEY, head BIGINT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS bare_clicks (feed_id BIGINT, address TEXT, group_no INTEGER, seq BIGINT, source TEXT,"
    " PRIMARY KEY (feed_id, address, group_no))",
    "CREATE TABLE IF NOT EXISTS bare_submissions (feed_id BIGINT, submission_id TEXT, received_ms BIGINT,"
    " PRIMARY KEY (feed_id, submission_id))",
    "CREATE TABLE IF NOT EXISTS bare_days (feed_id BIGINT, day INTEGER, n BIGINT, PRIMARY KEY (feed_id, day))",
    "INSERT INTO bare_heads VALUES (17, 0) ON CONFLICT DO NOTHING",
)
_READS = (
    "SELECT k.secret, o.name, g.name FROM link_keys k JOIN organizations o ON o.organization_id = k.organization_id"
    " LEFT JOIN groups g ON g.organization_id = k.organization_id AND g.group_id = $1 WHERE k.link_key_id = $1",
    "SELECT f.generation, u.status FROM feeds f LEFT JOIN unsubscribes u ON u.feed_id = f.feed_id AND u.address = $1"
    " WHERE f.feed_id = 17",
)
_WRITES = (
    "UPDATE bare_heads SET head = head + 1 WHERE feed_id = 17 RETURNING head",
    "INSERT INTO bare_clicks VALUES (17, $1, 0, 1, 'one_click') ON CONFLICT DO NOTHING",
    "INSERT INTO bare_submissions VALUES (17, $1, 1)",
    "INSERT INTO bare_days VALUES (17, 1, 1) ON CONFLICT (feed_id, day) DO UPDATE SET n = bare_days.n + 1",
)
_numbers = itertools.count()


class Clicks:
    """The handler and its database."""

    def __init__(self, body_bytes: int) -> None:
        self._body = "x" * body_bytes
        self._sqlite: sqlite3.Connection | None = None
        self._pool: asyncpg.Pool[asyncpg.Record]

    @contextlib.asynccontextmanager
    async def open(self, _: Starlette) -> AsyncIterator[None]:
        """Open the database while the application runs."""
        url = os.environ["BENCH_DATABASE_URL"]
        if url.startswith("sqlite:///"):
            self._sqlite = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)
            self._sqlite.execute("PRAGMA journal_mode=WAL")
            self._sqlite.execute("PRAGMA synchronous=FULL")
            for table in _TABLES:
                self._sqlite.execute(table)
            yield
            self._sqlite.close()
            return
        async with asyncpg.create_pool(url, min_size=1, max_size=_CONNECTIONS, reset=_keep) as self._pool:
            for table in _TABLES:
                await self._pool.execute(table)
            yield

    async def click(self, request: Request) -> PlainTextResponse:
        parse_qsl((await request.body()).decode(), strict_parsing=True)
        name = f"{os.getpid()}-{next(_numbers)}"
        await self._read(name)
        if self._sqlite is None:
            await self._on_postgresql(name)
        else:
            self._on_sqlite(self._sqlite, name)
        return PlainTextResponse(self._body)

    async def page(self, _: Request) -> PlainTextResponse:
        await self._read(f"{os.getpid()}-{next(_numbers)}")
        return PlainTextResponse(self._body)

    async def _read(self, name: str) -> None:
        for read in _READS:
            if self._sqlite is None:
                await self._pool.fetch(read, name)
            else:
                self._sqlite.execute(read.replace("$1", "?1"), (name,)).fetchall()

    async def _on_postgresql(self, name: str) -> None:
        async with self._pool.acquire() as connection, connection.transaction():
            for write in _WRITES:
                await connection.execute(write, *([name] if "$1" in write else []))

    def _on_sqlite(self, connection: sqlite3.Connection, name: str) -> None:
        connection.execute("BEGIN IMMEDIATE")
        for write in _WRITES:
            connection.execute(write.replace("$1", "?"), (name,) if "$1" in write else ()).fetchall()
        connection.execute("COMMIT")


async def _keep(_: Any) -> None:
    """Reset nothing: no statement sets anything for a session."""


if __name__ == "__main__":
    certificate, key, body_bytes, _, port = sys.argv[1:]
    clicks = Clicks(int(body_bytes))
    routes = [Route(PATH, clicks.click, methods=["POST"]), Route(PATH, clicks.page)]
    app = Starlette(routes=routes, lifespan=clicks.open)
    serve(app, certificate, key, port, lifespan="auto")
