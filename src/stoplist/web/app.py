"""The ASGI application of a server: its routes and their middleware."""

import msgspec
from starlette.routing import Mount, Route, Router

from stoplist.clock import Clock
from stoplist.db import Database
from stoplist.errors import NotFound
from stoplist.limits.limiter import Limiter
from stoplist.oauth.outcome import TokenStores
from stoplist.oauth.usage import Usage
from stoplist.unsubscribes.channel import CHANNELS
from stoplist.unsubscribes.model import MAX_BODY_BYTES, OptOutStores
from stoplist.web import health
from stoplist.web.api.unsubscribe import ChannelEndpoint
from stoplist.web.bearer import BearerGate
from stoplist.web.body import MemoryQuota
from stoplist.web.concurrency_limit import PerSourceConcurrency
from stoplist.web.forwarded import Network
from stoplist.web.metrics import Metrics
from stoplist.web.middleware import RequestMiddleware
from stoplist.web.readiness import Readiness
from stoplist.web.reference.documents import OPENAPI_PATH, openapi_file, reference_file
from stoplist.web.request_context import API_PATH, DOCS_PATH, TOKEN_PATH, AsgiApp, Receive, Scope, Send
from stoplist.web.token_endpoint import TokenEndpoint

_MAX_BODIES_PER_CLIENT = 8
_PAGES = ("/settings", "/unsubscribes", "/organizations", "/audit")


class Parts(msgspec.Struct, frozen=True, kw_only=True):
    """The parts that an application is built from."""

    database: Database
    clock: Clock
    limiter: Limiter
    usage: Usage
    metrics: Metrics
    readiness: Readiness
    secret_keys: tuple[str, ...]
    base_url: str


def build_app(parts: Parts, *, trusted_proxies: tuple[Network, ...]) -> AsgiApp:
    """Return the ASGI application of a server."""
    stores = TokenStores(database=parts.database, clock=parts.clock, limiter=parts.limiter)
    opt_outs = OptOutStores(database=parts.database, clock=parts.clock, secret_keys=parts.secret_keys)
    quota = MemoryQuota(max_bytes=_MAX_BODIES_PER_CLIENT * MAX_BODY_BYTES)
    channels = {
        endpoint.path: endpoint for endpoint in (ChannelEndpoint(c, opt_outs, quota) for c in CHANNELS.values())
    }

    async def operations(scope: Scope, receive: Receive, send: Send) -> None:
        await channels.get(scope["path"], _no_route)(scope, receive, send)

    concurrency = PerSourceConcurrency()
    api = BearerGate(
        operations, database=parts.database, clock=parts.clock, limiter=parts.limiter, concurrency=concurrency
    )
    pages = _LazyPages(parts, concurrency)
    routes = Router(
        [
            Mount(API_PATH, app=api),
            Route(TOKEN_PATH, TokenEndpoint(stores, parts.metrics, concurrency)),
            Route(API_PATH, api),
            Route(OPENAPI_PATH, openapi_file(parts.base_url)),
            Route(DOCS_PATH, reference_file(parts.base_url)),
            *(Route(path, pages) for path in ("/", *_PAGES)),
            *(Mount(path, app=pages) for path in _PAGES),
            Route(health.HEALTHZ, _AsgiFunction(health.healthz)),
            Route(health.READYZ, _AsgiFunction(health.readyz(parts.database, parts.readiness))),
        ],
        redirect_slashes=False,
        default=_no_route,
    )
    return RequestMiddleware(
        routes,
        clock=parts.clock,
        usage=parts.usage,
        metrics=parts.metrics,
        trusted=trusted_proxies,
    )


class _AsgiFunction:
    """Wraps an ASGI function for Starlette, which would call a bare function with a Request."""

    def __init__(self, app: AsgiApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)


class _LazyPages:
    """The pages, imported on the first request so that the server starts without them."""

    def __init__(self, parts: Parts, concurrency: PerSourceConcurrency) -> None:
        self._parts, self._concurrency = parts, concurrency
        self._app: AsgiApp | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._app is None:
            from stoplist.web.admin.pages import pages  # noqa: PLC0415 - a start needs no templates

            self._app = pages(
                self._concurrency,
                database=self._parts.database,
                clock=self._parts.clock,
                limiter=self._parts.limiter,
                usage=self._parts.usage,
                secret_keys=self._parts.secret_keys,
                base_url=self._parts.base_url,
            )
        # A mount has split the path; the routes of the pages match the full path.
        scope["root_path"], scope["path_params"] = "", {}
        await self._app(scope, receive, send)


async def _no_route(scope: Scope, receive: Receive, send: Send) -> None:
    raise NotFound("There is nothing at this path.")
