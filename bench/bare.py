"""The bare applications: they only answer, on the same uvicorn and with the same TLS as Stoplist.

`python -m bench.bare form_echo CERTIFICATE KEY 261 --port 9000` answers with bodies of 261 bytes.

This file imports as little as possible, because its start time is a baseline too.
"""

import sys
from typing import Any, Literal
from urllib.parse import parse_qsl

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

READ_PATHS = ("/api/v1/nothing", "/api/v1/unsubscribe/email", "/healthz")


def answer_of_size(body_bytes: int) -> dict[str, Any]:
    """Return a JSON object that takes `body_bytes` bytes without white space."""
    return {"answer": "x" * (body_bytes - len(b'{"answer":""}'))}


def asgi(body_bytes: int) -> ASGIApp:
    """Return an application that answers every request without reading it: the maximum of this uvicorn."""
    answer = answer_of_size(body_bytes)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await _send_json(send, msgspec.json.encode(answer))

    return app


def form_echo(body_bytes: int) -> ASGIApp:
    """Return an application that reads a form, as a token endpoint must, and answers JSON of `body_bytes` bytes."""
    answer = answer_of_size(body_bytes)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if not parse_qsl((await _body(receive)).decode(), strict_parsing=True):
            raise ValueError("the form is empty")
        await _send_json(send, msgspec.json.encode(answer))

    return app


def starlette(body_bytes: int) -> ASGIApp:
    """Return an application with routes that answer JSON, written as in Starlette's own documentation."""
    answer = answer_of_size(body_bytes)

    async def page(request: Request) -> JSONResponse:
        return JSONResponse(answer)

    return Starlette(routes=[Route(path, page) for path in READ_PATHS])


def serve(app: ASGIApp, certificate: str, key: str, port: str, *, lifespan: Literal["auto", "off"] = "off") -> None:
    """Serve until SIGTERM."""
    uvicorn.run(
        app,
        host="127.0.0.1",
        port=int(port),
        ssl_certfile=certificate,
        ssl_keyfile=key,
        loop="uvloop",
        http="httptools",
        ws="none",
        lifespan=lifespan,
        proxy_headers=False,
        access_log=False,
        log_level="warning",
    )


async def _body(receive: Receive) -> bytes:
    message = await receive()
    body: bytes = message["body"]
    while message.get("more_body", False):
        message = await receive()
        body += message["body"]
    return body


async def _send_json(send: Send, body: bytes) -> None:
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


if __name__ == "__main__":
    name, certificate, key, body_bytes, _, port = sys.argv[1:]
    serve({"asgi": asgi, "form_echo": form_echo, "starlette": starlette}[name](int(body_bytes)), certificate, key, port)
