"""The baselines with databases: bare Starlette handlers that send the same statements as the product.

`python -m bench.bare_handlers clicks CERTIFICATE KEY 30 --port 9000` answers opt-out links with 30 bytes, on SQLite or
PostgreSQL. A GET reads twice. A click reads twice, and writes in one transaction of four statements, as durably as the
product does: on SQLite with a commit per click, because a bare handler shares none.

`python -m bench.bare_handlers stores CERTIFICATE KEY 261 218 --port 9000` reads answers of 261 bytes and issues ones of
218, on PostgreSQL and Valkey. A read sends two statements and one script. A token request sends one of each, and writes
one row.

The stores are in the variables BENCH_DATABASE_URL and BENCH_LIMITS_URL.
"""

import contextlib
import itertools
import os
import secrets
import sqlite3
import sys
from collections.abc import AsyncIterator, Iterable
from typing import Any
from urllib.parse import parse_qsl

import asyncpg
import redis.asyncio as redis
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.routing import Route

from bench.bare import READ_PATHS, answer_of_size, serve
from stoplist.limits.store import SCRIPT

CLICK_PATH = "/click"

_CONNECTIONS = 20
_CLICK_TABLES = (
    "CREATE TABLE IF NOT EXISTS bare_heads (feed_id BIGINT PRIMARY KEY, head BIGINT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS bare_clicks (feed_id BIGINT, address TEXT, group_no INTEGER, seq BIGINT, source TEXT,"
    " PRIMARY KEY (feed_id, address, group_no))",
    "CREATE TABLE IF NOT EXISTS bare_submissions (feed_id BIGINT, submission_id TEXT, received_ms BIGINT,"
    " PRIMARY KEY (feed_id, submission_id))",
    "CREATE TABLE IF NOT EXISTS bare_days (feed_id BIGINT, day INTEGER, n BIGINT, PRIMARY KEY (feed_id, day))",
    "INSERT INTO bare_heads VALUES (17, 0) ON CONFLICT DO NOTHING",
)
_CLICK_READS = (
    "SELECT k.secret, o.name, g.name FROM link_keys k JOIN organizations o ON o.organization_id = k.organization_id"
    " LEFT JOIN groups g ON g.organization_id = k.organization_id AND g.group_id = $1 WHERE k.link_key_id = $1",
    "SELECT f.generation, u.status FROM feeds f LEFT JOIN unsubscribes u ON u.feed_id = f.feed_id AND u.address = $1"
    " WHERE f.feed_id = 17",
)
_CLICK_WRITES = (
    "UPDATE bare_heads SET head = head + 1 WHERE feed_id = 17 RETURNING head",
    "INSERT INTO bare_clicks VALUES (17, $1, 0, 1, 'one_click') ON CONFLICT DO NOTHING",
    "INSERT INTO bare_submissions VALUES (17, $1, 1)",
    "INSERT INTO bare_days VALUES (17, 1, 1) ON CONFLICT (feed_id, day) DO UPDATE SET n = bare_days.n + 1",
)
_PAIRS_TABLE = "CREATE TABLE IF NOT EXISTS bare_pairs (LIKE token_pairs INCLUDING ALL)"
_TOKEN = """
SELECT p.client_id, p.access_expires_ms, p.epoch, c.epoch AS current_epoch, c.is_active
FROM token_pairs p JOIN clients c ON c.client_id = p.client_id WHERE p.access_hash = $1
"""
_RECORD = """
SELECT id, group_no, address, status, reason, source, occurred_ms, recorded_ms, seq
FROM unsubscribes WHERE feed_id = $1 AND address = $2
"""
_CLIENT = "SELECT client_id, secret_hash, epoch, is_active, token_per_minute FROM clients WHERE client_id = $1"
_INSERT_PAIR = """
INSERT INTO bare_pairs (client_id, epoch, access_hash, refresh_hash, access_expires_ms, refresh_expires_ms)
VALUES ($1, 1, $2, $3, 1, 2) RETURNING pair_id
"""
_numbers = itertools.count()


class _Clicks:
    """The handlers of opt-out links, on PostgreSQL."""

    def __init__(self, body_bytes: int) -> None:
        self._body = "x" * body_bytes
        self._pool: asyncpg.Pool[asyncpg.Record]
        self.routes = [Route(CLICK_PATH, self.click, methods=["POST"]), Route(CLICK_PATH, self.page)]

    @contextlib.asynccontextmanager
    async def open(self, _: Starlette) -> AsyncIterator[None]:
        async with _connected() as self._pool:
            for table in _CLICK_TABLES:
                await self._pool.execute(table)
            yield

    async def click(self, request: Request) -> PlainTextResponse:
        parse_qsl((await request.body()).decode(), strict_parsing=True)
        name = f"{os.getpid()}-{next(_numbers)}"
        await self.read(name)
        await self.write(name)
        return PlainTextResponse(self._body)

    async def page(self, _: Request) -> PlainTextResponse:
        await self.read(f"{os.getpid()}-{next(_numbers)}")
        return PlainTextResponse(self._body)

    async def read(self, name: str) -> None:
        for statement in _CLICK_READS:
            await self._pool.fetch(statement, name)

    async def write(self, name: str) -> None:
        async with self._pool.acquire() as connection, connection.transaction():
            for statement in _CLICK_WRITES:
                await connection.execute(statement, *([name] if "$1" in statement else []))


class _ClicksOnSqlite(_Clicks):
    @contextlib.asynccontextmanager
    async def open(self, _: Starlette) -> AsyncIterator[None]:
        file = os.environ["BENCH_DATABASE_URL"].removeprefix("sqlite:///")
        with contextlib.closing(sqlite3.connect(file, isolation_level=None)) as self._sqlite:
            for statement in ("PRAGMA journal_mode=WAL", "PRAGMA synchronous=FULL", *_CLICK_TABLES):
                self._sqlite.execute(statement)
            yield

    async def read(self, name: str) -> None:
        self._execute(_CLICK_READS, name)

    async def write(self, name: str) -> None:
        self._execute(("BEGIN IMMEDIATE", *_CLICK_WRITES, "COMMIT"), name)

    def _execute(self, statements: Iterable[str], name: str) -> None:
        for statement in statements:
            values = (name,) if "$1" in statement else ()
            self._sqlite.execute(statement.replace("$1", "?1"), values).fetchall()


class _Stores:
    """The handlers of reads and of token requests."""

    def __init__(self, body_bytes: int, token_bytes: int) -> None:
        self._answer, self._token = answer_of_size(body_bytes), answer_of_size(token_bytes)
        self._pool: asyncpg.Pool[asyncpg.Record]
        self._valkey: redis.Redis
        self._sha = ""
        self.routes = [Route(path, self.read) for path in READ_PATHS]
        self.routes.append(Route("/oauth/token", self.issue, methods=["POST"]))

    @contextlib.asynccontextmanager
    async def open(self, _: Starlette) -> AsyncIterator[None]:
        self._valkey = redis.Redis.from_url(os.environ["BENCH_LIMITS_URL"])
        self._sha = str(await self._valkey.script_load(SCRIPT))
        async with _connected() as self._pool:
            await self._pool.execute(_PAIRS_TABLE)
            yield
        await self._valkey.aclose()

    async def read(self, _: Request) -> JSONResponse:
        await self._pool.fetchrow(_TOKEN, b"x" * 32)
        await self._limit()
        await self._pool.fetch(_RECORD, 17, "nobody@example.com")
        return JSONResponse(self._answer)

    async def issue(self, request: Request) -> JSONResponse:
        if not parse_qsl((await request.body()).decode(), strict_parsing=True):
            raise ValueError("the form is empty")
        await self._pool.fetchrow(_CLIENT, "svc_ci_bare")
        await self._limit()
        await self._pool.fetchrow(_INSERT_PAIR, "svc_ci_bare", secrets.token_bytes(32), secrets.token_bytes(32))
        return JSONResponse(self._token)

    async def _limit(self) -> None:
        await self._valkey.evalsha(self._sha, 1, "stoplist:api:{svc_ci_bare}", 1_000_000_000, 1)


def _connected() -> "asyncpg.Pool[asyncpg.Record]":
    """Return as many connections as the product has by default. Nothing is reset, because nothing sets anything."""

    async def keep(_: Any) -> None: ...

    return asyncpg.create_pool(os.environ["BENCH_DATABASE_URL"], min_size=1, max_size=_CONNECTIONS, reset=keep)


if __name__ == "__main__":
    name, certificate, key, *sizes, _, port = sys.argv[1:]
    is_on_sqlite = os.environ["BENCH_DATABASE_URL"].startswith("sqlite:")
    kinds = {"clicks": _ClicksOnSqlite if is_on_sqlite else _Clicks, "stores": _Stores}
    handlers = kinds[name](*map(int, sizes))
    serve(Starlette(routes=handlers.routes, lifespan=handlers.open), certificate, key, port, lifespan="auto")
