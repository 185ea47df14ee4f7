"""The page that Prometheus reads, and the address at which it is the only page.

Source: docs/interface.md section D10.
"""

import msgspec
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from stoplist import ids
from stoplist.errors import ANSWERS, MethodNotAllowed, NotFound
from stoplist.web.request_context import AsgiApp, Headers, Receive, Scope, Send, api_envelope

METRICS_PATH = "/metrics"


def metrics_address(page: AsgiApp) -> AsgiApp:
    """Return the ASGI application of the metrics address, which answers GET and HEAD of `/metrics` with this page."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] != METRICS_PATH:
            await _refuse(send, NotFound(f"There is nothing at this path: the metrics are at {METRICS_PATH}."))
        elif scope["method"] not in ("GET", "HEAD"):
            await _refuse(send, MethodNotAllowed("Ask with GET or HEAD.", allow="GET, HEAD"))
        else:
            await page(scope, receive, send)

    return answer


async def send_page(send: Send, registry: CollectorRegistry) -> None:
    """Answer with all metrics of a registry."""
    await _send(send, 200, generate_latest(registry), [(b"content-type", CONTENT_TYPE_LATEST.encode())])


async def _refuse(send: Send, error: NotFound | MethodNotAllowed) -> None:
    headers = [(b"content-type", b"application/json")]
    if isinstance(error, MethodNotAllowed):
        headers.append((b"allow", error.allow.encode()))
    await _send(send, ANSWERS[type(error)].status, msgspec.json.encode(api_envelope(error)), headers)


async def _send(send: Send, status: int, body: bytes, headers: Headers) -> None:
    headers += [(b"content-length", str(len(body)).encode()), (b"x-request-id", ids.new_request_id().encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
