"""Whether the process is up, and whether it can reach its stores. Source: docs/interface.md section D10."""

from stoplist.db import Database, schema
from stoplist.errors import MethodNotAllowed, StoreUnavailable
from stoplist.web.exchange import AsgiApp, Receive, Scope, Send, exchange_of, send_json
from stoplist.web.readiness import Readiness

HEALTHZ, READYZ = "/healthz", "/readyz"
PATHS = frozenset((HEALTHZ, READYZ))


async def healthz(scope: Scope, receive: Receive, send: Send) -> None:
    """200 as long as the process answers."""
    _begin(scope, HEALTHZ)
    await send_json(send, 200, {"status": "up"})


def readyz(database: Database, readiness: Readiness) -> AsgiApp:
    """200 when the database answers; 503 when it does not, or when the server was told to stop.

    The limit store is not asked: without it requests are answered all the same.
    """

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        _begin(scope, READYZ)
        readiness.asked()
        if readiness.is_leaving:
            await send_json(send, 503, {"status": "stopping"})
            return
        if await schema.read(database) is None:
            raise StoreUnavailable("The database is empty.")
        await send_json(send, 200, {"status": "ready"})

    return answer


def _begin(scope: Scope, route: str) -> None:
    exchange_of(scope).route = route
    if scope["method"] not in ("GET", "HEAD"):
        raise MethodNotAllowed("Ask with GET or HEAD.", allow="GET, HEAD")
