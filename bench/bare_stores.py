"""The baseline of a deployment on PostgreSQL and Valkey: bare Starlette handlers with the same round trips.

`python -m bench.bare_stores CERTIFICATE KEY 261 218 --port 9000` reads answers of 261 bytes and issues ones of 218. The
stores are in the variables BENCH_DATABASE_URL and BENCH_LIMITS_URL. A read sends two statements to PostgreSQL and one
script to Valkey. A token request sends one of each, and writes one row as durably as the product does.
"""

import contextlib
import os
import secrets
import sys
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import parse_qsl

import asyncpg
import redis.asyncio as redis
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from bench.bare import READ_PATHS, answer_of_size, serve
from stoplist.limits.store import SCRIPT

_CONNECTIONS = 20
_TABLE = "CREATE TABLE IF NOT EXISTS bare_pairs (LIKE token_pairs INCLUDING ALL)"
_TOKEN = """
SELECT p.client_id, p.access_expires_ms, p.epoch, c.epoch AS current_epoch, c.is_active
FROM token_pairs p JOIN clients c ON c.client_id = p.client_id WHERE p.access_hash = $1
"""
_RECORD = """
SELECT id, group_no, address, status, reason, source, occurred_ms, recorded_ms, seq
FROM unsubscribes WHERE feed_id = $1 AND address = $2
"""
_CLIENT = "SELECT client_id, secret_hash, epoch, is_active, token_per_minute FROM clients WHERE client_id = $1"
_INSERT = """
INSERT INTO bare_pairs (client_id, epoch, access_hash, refresh_hash, access_expires_ms, refresh_expires_ms)
VALUES ($1, 1, $2, $3, 1, 2) RETURNING pair_id
"""


class Handlers:
    """The two handlers and their connections, of which there are as many as the product has by default."""

    def __init__(self, body_bytes: int, token_bytes: int) -> None:
        self._answer, self._token = answer_of_size(body_bytes), answer_of_size(token_bytes)
        self._pool: asyncpg.Pool[asyncpg.Record]
        self._valkey: redis.Redis
        self._sha = ""

    @contextlib.asynccontextmanager
    async def open(self, _: Starlette) -> AsyncIterator[None]:
        """Connect to the stores while the application runs."""
        self._valkey = redis.Redis.from_url(os.environ["BENCH_LIMITS_URL"])
        self._sha = str(await self._valkey.script_load(SCRIPT))
        url = os.environ["BENCH_DATABASE_URL"]
        async with asyncpg.create_pool(url, min_size=1, max_size=_CONNECTIONS, reset=_keep) as self._pool:
            await self._pool.execute(_TABLE)
            yield
        await self._valkey.aclose()

    async def read(self, request: Request) -> JSONResponse:
        await self._pool.fetchrow(_TOKEN, b"x" * 32)
        await self._limit()
        await self._pool.fetch(_RECORD, 17, "nobody@example.com")
        return JSONResponse(self._answer)

    async def issue(self, request: Request) -> JSONResponse:
        if not parse_qsl((await request.body()).decode(), strict_parsing=True):
            raise ValueError("the form is empty")
        await self._pool.fetchrow(_CLIENT, "svc_ci_bare")
        await self._limit()
        await self._pool.fetchrow(_INSERT, "svc_ci_bare", secrets.token_bytes(32), secrets.token_bytes(32))
        return JSONResponse(self._token)

    async def _limit(self) -> None:
        await self._valkey.evalsha(self._sha, 1, "stoplist:api:{svc_ci_bare}", 1_000_000_000, 1)


async def _keep(_: Any) -> None:
    """Reset nothing: no statement sets anything for a session."""


if __name__ == "__main__":
    certificate, key, body_bytes, token_bytes, _, port = sys.argv[1:]
    handlers = Handlers(int(body_bytes), int(token_bytes))
    routes = [Route(path, handlers.read) for path in READ_PATHS] + [
        Route("/oauth/token", handlers.issue, methods=["POST"])
    ]
    serve(Starlette(routes=routes, lifespan=handlers.open), certificate, key, port, lifespan="auto")
