"""Raw requests over TLS: bytes are written before any answer is read, so that many are in progress at once."""

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlencode

from tests.constants import PATIENCE_S
from tests.e2e.server_process import RunningServer
from tests.keys import CLIENT_CREDENTIALS, Key
from tests.server.serving import RawConnection, WireAnswer

BROKEN = (ConnectionError, asyncio.IncompleteReadError, ssl.SSLError)
"""Catch these where a server may have ended during a request."""


async def connect(server: RunningServer) -> RawConnection:
    """Open a connection, which the caller closes."""
    return RawConnection(*await asyncio.open_connection("localhost", server.port, ssl=server.tls))


@asynccontextmanager
async def connections(servers: list[RunningServer], count: int) -> AsyncIterator[list[RawConnection]]:
    """Open kept-alive connections, distributed evenly over the servers."""
    lines = await asyncio.gather(*(connect(servers[n % len(servers)]) for n in range(count)))
    try:
        yield lines
    finally:
        await asyncio.gather(*map(hang_up, lines))


@asynccontextmanager
async def connection(server: RunningServer) -> AsyncIterator[RawConnection]:
    """Open one connection."""
    async with connections([server], 1) as (line,):
        yield line


@asynccontextmanager
async def in_flight(server: RunningServer, key: Key) -> AsyncIterator[tuple[RawConnection, bytes]]:
    """Open a connection whose token request the application is handling; yield it and the missing body."""
    head, _, body = issue(key).partition(b"\r\n\r\n")
    async with connection(server) as line:
        await line.send(head + b"\r\nExpect: 100-continue\r\n\r\n")
        # The application waits for the body.
        assert await line.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        yield line, body


async def wait_until_refused(server: RunningServer) -> None:
    """Wait until the server refuses new connections."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", server.port)
            except ConnectionError:
                return
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()


async def answer_across_stop(server: RunningServer, key: Key, stop: Callable[[], Any]) -> WireAnswer:
    """Return the answer to a token request whose body arrives after `stop`, when new connections are refused."""
    async with in_flight(server, key) as (line, body):
        stop()
        await wait_until_refused(server)
        await line.send(body)
        return await line.answer()


async def run_until(work: Sequence["asyncio.Task[None]"], is_done: Callable[[], bool]) -> None:
    """Wait until `is_done`; a task that fails meanwhile fails the test."""
    while not is_done():
        done, _ = await asyncio.wait(work, timeout=0.01, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()


async def send_once(line: RawConnection, request: bytes) -> WireAnswer:
    """Send a request and return its answer."""
    await line.send(request)
    return await line.answer()


def issue(key: Key) -> bytes:
    """Return a request for a new pair."""
    name, credentials = key.basic
    return _post(CLIENT_CREDENTIALS, f"{name}: {credentials.decode()}\r\n")


def refresh(refresh_token: str) -> bytes:
    """Return a request to refresh a token."""
    return _post({"grant_type": "refresh_token", "refresh_token": refresh_token}, "")


def call(access_token: str) -> bytes:
    """Return a request to an unknown path of the API, answered 404 if the token is valid."""
    return f"GET /api/v1/x HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {access_token}\r\n\r\n".encode()


def submit(access_token: str, channel: str, items: list[dict[str, Any]]) -> bytes:
    """Return a request to store these items, for all groups."""
    body = json.dumps({"all_groups": True, "items": items}).encode()
    return (
        f"POST /api/v1/unsubscribe/{channel} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {access_token}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    ).encode() + body


def follow(access_token: str, channel: str, *, limit: int, cursor: str | None) -> bytes:
    """Return a request for the next page."""
    return _get(access_token, channel, {"limit": limit} | ({} if cursor is None else {"cursor": cursor}))


def wait_for_change(access_token: str, channel: str, cursor: str, *, wait_s: int = 30) -> bytes:
    """Return a request for the changes after a cursor that is held for so long if there is none."""
    head, _, _ = _get(access_token, channel, {"cursor": cursor}).rpartition(b"\r\n")
    return head + f"Prefer: wait={wait_s}\r\n\r\n".encode()


def look_up(access_token: str, channel: str, address: str) -> bytes:
    """Return a request for the records of one address."""
    return _get(access_token, channel, {"address": address})


def _get(access_token: str, channel: str, query: dict[str, Any]) -> bytes:
    return (
        f"GET /api/v1/unsubscribe/{channel}?{urlencode(query)} HTTP/1.1\r\nHost: localhost\r\n"
        f"Authorization: Bearer {access_token}\r\n\r\n"
    ).encode()


def _post(form: dict[str, str], headers: str) -> bytes:
    body = urlencode(form)
    return (
        f"POST /oauth/token HTTP/1.1\r\nHost: localhost\r\n{headers}"
        f"Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {len(body)}\r\n\r\n{body}"
    ).encode()


async def hang_up(line: RawConnection) -> None:
    """End a connection at once. May be repeated."""
    line.writer.transport.abort()
    with contextlib.suppress(OSError):
        await line.writer.wait_closed()
