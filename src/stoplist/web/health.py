"""Whether the process is up, and whether it can reach its stores. Source: docs/interface.md section D10."""

import asyncio
import time

from stoplist.db import Database, schema
from stoplist.errors import MethodNotAllowed, StoreUnavailable
from stoplist.web.readiness import Readiness
from stoplist.web.request_context import AsgiApp, Receive, Scope, Send, request_context_of, send_json

HEALTHZ, READYZ = "/healthz", "/readyz"
PATHS = frozenset((HEALTHZ, READYZ))
CACHED_FOR_S = 1.0


async def healthz(scope: Scope, receive: Receive, send: Send) -> None:
    """200 as long as the process answers."""
    _begin(scope, HEALTHZ)
    await send_json(send, 200, {"status": "up"})


def readyz(database: Database, readiness: Readiness) -> AsgiApp:
    """200 when the database answers; 503 when it does not, or when the server was told to stop.

    The limit store is not asked: without it requests are answered all the same. Whoever asks within a second of another
    gets the same answer, so that a flood of questions is one.
    """
    glance = _Glance(database)

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        _begin(scope, READYZ)
        readiness.asked()
        if readiness.is_leaving:
            await send_json(send, 503, {"status": "stopping"})
            return
        await glance.at_database()
        await send_json(send, 200, {"status": "ready"})

    return answer


class _Glance:
    """That the database answered, for a second."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._asked_s = -CACHED_FOR_S
        self._asking: asyncio.Task[None] | None = None

    async def at_database(self) -> None:
        """Raises StoreUnavailable when it does not answer, or holds nothing."""
        now_s = time.monotonic()
        known = self._asking
        if known is None or (known.done() and (known.exception() or now_s - self._asked_s >= CACHED_FOR_S)):
            self._asked_s = now_s
            known = self._asking = asyncio.ensure_future(self._ask())
        await asyncio.shield(known)

    async def _ask(self) -> None:
        if await schema.read(self._database) is None:
            raise StoreUnavailable("The database is empty.")


def _begin(scope: Scope, route: str) -> None:
    request_context_of(scope).route = route
    if scope["method"] not in ("GET", "HEAD"):
        raise MethodNotAllowed("Ask with GET or HEAD.", allow="GET, HEAD")
