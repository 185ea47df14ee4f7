"""`/healthz` and `/readyz`: liveness and readiness. Source: docs/interface.md section D10."""

import asyncio
import time

from stoplist.db import Database, schema
from stoplist.db.split import feeds_of
from stoplist.errors import MethodNotAllowed, StoreUnavailable
from stoplist.web.readiness import Readiness
from stoplist.web.request_context import AsgiApp, Receive, Scope, Send, request_context_of, send_json

HEALTHZ, READYZ = "/healthz", "/readyz"
PATHS = frozenset((HEALTHZ, READYZ))
CACHED_FOR_S = 1.0


async def healthz(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer 200 as long as the process runs."""
    _begin(scope, HEALTHZ)
    await send_json(send, 200, {"status": "up"})


def readyz(database: Database, readiness: Readiness) -> AsgiApp:
    """Return an application that answers 200 if the database answers, and 503 if not or if the server is stopping.

    Where the feeds are in a database of their own, both must answer: another server may reach what this one does not.
    The limit store does not count: without it requests are still answered. Probes within a second share one query, so
    that a flood of them costs the database no more.
    """
    check = _DatabaseCheck(database)

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        _begin(scope, READYZ)
        readiness.note_probe()
        if readiness.is_leaving:
            await send_json(send, 503, {"status": "stopping"})
            return
        await check.run()
        await send_json(send, 200, {"status": "ready"})

    return answer


class _DatabaseCheck:
    """A query to the database, whose success is cached for a second."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._began_s = -CACHED_FOR_S
        self._task: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Raise StoreUnavailable if a database does not answer or is empty."""
        now_s = time.monotonic()
        task = self._task
        if task is None or (task.done() and (task.exception() or now_s - self._began_s >= CACHED_FOR_S)):
            self._began_s = now_s
            task = self._task = asyncio.ensure_future(self._query())
        await asyncio.shield(task)

    async def _query(self) -> None:
        await require_answer(self._database)


async def require_answer(database: Database) -> None:
    """Raise StoreUnavailable if the database, or one of two, does not answer or is empty."""
    for each in dict.fromkeys((database, feeds_of(database))):
        if await schema.read(each) is None:
            raise StoreUnavailable("The database is empty.")


def _begin(scope: Scope, route: str) -> None:
    request_context_of(scope).route = route
    if scope["method"] not in ("GET", "HEAD"):
        raise MethodNotAllowed("Ask with GET or HEAD.", allow="GET, HEAD")
