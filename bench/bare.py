"""The bare applications: they only answer, on the same uvicorn and with the same TLS as Stoplist.

`python -m bench.bare form_echo --port 9000 --cert FILE --key FILE --body-bytes 261`

This file imports as little as possible, because its start time is a baseline too.
"""

import argparse
from typing import Any, Literal
from urllib.parse import parse_qsl

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

Answer = dict[str, Any]


def answer_of_size(body_bytes: int) -> Answer:
    """Return a JSON object that takes `body_bytes` bytes without white space."""
    frame = len(msgspec.json.encode({"answer": ""}))
    return {"answer": "x" * (body_bytes - frame)}


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
        fields = parse_qsl((await _body(receive)).decode(), strict_parsing=True)
        if not fields:
            raise ValueError("the form is empty")
        await _send_json(send, msgspec.json.encode(answer))

    return app


def starlette(body_bytes: int) -> ASGIApp:
    """Return an application with routes that answer JSON, written as in Starlette's own documentation."""
    answer = answer_of_size(body_bytes)

    async def page(request: Request) -> JSONResponse:
        return JSONResponse(answer)

    paths = ("/api/v1/nothing", "/api/v1/unsubscribe/email", "/healthz")
    return Starlette(routes=[Route(path, page) for path in paths])


APPS = {"asgi": asgi, "form_echo": form_echo, "starlette": starlette}


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


def main() -> None:
    """Serve one of the applications until SIGTERM."""
    parser = argparse.ArgumentParser(prog="bench.bare")
    parser.add_argument("app", choices=APPS)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--cert", required=True)
    parser.add_argument("--key", required=True)
    parser.add_argument("--body-bytes", type=int, required=True)
    options = parser.parse_args()
    serve(APPS[options.app](options.body_bytes), options)


def serve(app: ASGIApp, options: argparse.Namespace, *, lifespan: Literal["auto", "off"] = "off") -> None:
    """Serve on the `port` of the options, with their `cert` and `key`, until SIGTERM."""
    uvicorn.run(
        app,
        host="127.0.0.1",
        port=options.port,
        ssl_certfile=options.cert,
        ssl_keyfile=options.key,
        loop="uvloop",
        http="httptools",
        ws="none",
        lifespan=lifespan,
        proxy_headers=False,
        access_log=False,
        log_level="warning",
    )


if __name__ == "__main__":
    main()
