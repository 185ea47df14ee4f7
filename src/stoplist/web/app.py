"""The ASGI application of a server: its routes and their middleware."""

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from starlette.routing import Mount, Route, Router

from stoplist.errors import NotFound
from stoplist.oauth.outcome import TokenStores
from stoplist.source import Network
from stoplist.unsubscribes.channel import CHANNELS
from stoplist.unsubscribes.model import MAX_BODY_BYTES, OptOutStores
from stoplist.web import health
from stoplist.web.api.unsubscribe import ChannelEndpoint
from stoplist.web.bearer import BearerGate
from stoplist.web.body import MemoryQuota
from stoplist.web.concurrency_limit import PerSourceConcurrency
from stoplist.web.lazy_pages import LazyPages
from stoplist.web.links.app import LinkEndpoint
from stoplist.web.middleware import RequestMiddleware
from stoplist.web.parts import Parts
from stoplist.web.processing_time import ProcessingTime
from stoplist.web.reference.documents import OPENAPI_PATH, openapi_file, reference_file
from stoplist.web.request_context import (
    API_PATH,
    DOCS_PATH,
    FAVICON_PATH,
    LINKS_PATH,
    TOKEN_PATH,
    AsgiApp,
    Receive,
    Scope,
    Send,
    header_value,
)
from stoplist.web.token_endpoint import TokenEndpoint

_MAX_BODIES_PER_CLIENT = 8
_BELOW_API = f"{API_PATH}/"
_PAGES = ("/settings", "/unsubscribes", "/organizations", "/audit")


class App(NamedTuple):
    """The ASGI application of a server, and what loads its pages ahead of the first visit."""

    asgi: AsgiApp
    load_pages: Callable[[], Awaitable[None]]


def build_app(parts: Parts, *, trusted_proxies: tuple[Network, ...]) -> App:
    """Return the application of a server."""
    stores = TokenStores(
        database=parts.database,
        clock=parts.clock,
        limiter=parts.limiter,
        refresh_chain_days=parts.refresh_chain_days,
    )
    opt_outs = OptOutStores(database=parts.database, clock=parts.clock, secret_keys=parts.secret_keys)
    quota = MemoryQuota(max_bytes=_MAX_BODIES_PER_CLIENT * MAX_BODY_BYTES)
    processing_time = ProcessingTime(parts.clock)
    channels = {
        endpoint.path: endpoint
        for endpoint in (
            ChannelEndpoint(c, opt_outs, quota, processing_time, parts.held, parts.positions, parts.metrics)
            for c in CHANNELS.values()
        )
    }

    def operations(scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        return channels.get(scope["path"], _no_route)(scope, receive, send)

    concurrency = PerSourceConcurrency()
    api = BearerGate(
        operations, database=parts.database, clock=parts.clock, limiter=parts.limiter, concurrency=concurrency
    )
    pages = LazyPages(parts, concurrency)
    token_endpoint = TokenEndpoint(stores, parts.metrics, concurrency)
    links = LinkEndpoint(opt_outs, parts.limiter, parts.metrics, parts.link_events)
    others = Router(
        [
            Route(API_PATH, api),
            Route(OPENAPI_PATH, openapi_file(parts.base_url)),
            Route(DOCS_PATH, reference_file(parts.base_url)),
            *(Route(path, pages) for path in ("/", FAVICON_PATH, *_PAGES)),
            *(Mount(path, app=pages) for path in _PAGES),
            Route(health.HEALTHZ, _AsgiFunction(health.healthz)),
            Route(health.READYZ, _AsgiFunction(health.readyz(parts.database, parts.readiness))),
        ],
        redirect_slashes=False,
        default=_NoRoute(pages),
    )
    middleware = RequestMiddleware(
        _Routes(api, token_endpoint, links, others, is_links_host=_links_host_check(parts)),
        clock=parts.clock,
        usage=parts.usage,
        metrics=parts.metrics,
        trusted=trusted_proxies,
    )
    return App(middleware, pages.load)


class _Routes:
    """Finds the application for a path: what partners call all day goes without Starlette's patterns."""

    def __init__(
        self,
        api: AsgiApp,
        token_endpoint: AsgiApp,
        links: AsgiApp,
        others: Router,
        *,
        is_links_host: Callable[[bytes], bool] | None,
    ) -> None:
        self._api, self._token_endpoint, self._links, self.others = api, token_endpoint, links, others
        self._is_links_host = is_links_host

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        path: str = scope["path"]
        if not path.startswith(LINKS_PATH) and self._is_for_links(scope):
            return _no_route(scope, receive, send)
        if path.startswith(_BELOW_API):
            return self._api(scope, receive, send)
        if path == TOKEN_PATH:
            return self._token_endpoint(scope, receive, send)
        if path.startswith(LINKS_PATH):
            return self._links(scope, receive, send)
        return self.others(scope, receive, send)

    def _is_for_links(self, scope: Scope) -> bool:
        return self._is_links_host is not None and self._is_links_host(header_value(scope["headers"], b"host"))


def _links_host_check(parts: Parts) -> Callable[[bytes], bool] | None:
    """Return a test for the `Host` of links, at which nothing else is served; None if links have no host of their own.

    If the host names of the two addresses differ, ports are ignored, because a proxy may leave one out or add one.
    """
    links, base = (
        _host_and_port(url.removeprefix("https://").encode()) for url in (parts.links_base_url, parts.base_url)
    )
    if links == base or not links.host:
        return None
    if links.host == base.host:
        return lambda host: _host_and_port(host) == links
    return lambda host: _host_and_port(host).host == links.host


class _HostAndPort(NamedTuple):
    host: bytes
    port: bytes


def _host_and_port(authority: bytes) -> _HostAndPort:
    host, colon, port = authority.rpartition(b":")
    if not colon or port.endswith(b"]"):  # an IPv6 address without a port
        host, port = authority, b""
    return _HostAndPort(host.lower().removesuffix(b"."), port or b"443")


class _AsgiFunction:
    """Wraps an ASGI function for Starlette, which would call a bare function with a Request."""

    def __init__(self, app: AsgiApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)


class _NoRoute:
    """Answers a path that does not exist: with a page if a browser asks, else as section D4 says."""

    def __init__(self, pages: LazyPages) -> None:
        self._pages = pages

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] in ("GET", "HEAD") and b"text/html" in header_value(scope["headers"], b"accept"):
            await self._pages(scope, receive, send)
        else:
            await _no_route(scope, receive, send)


async def _no_route(scope: Scope, receive: Receive, send: Send) -> None:
    raise NotFound("There is nothing at this path.")
