"""One request and its answer: uvicorn's cycle, with few TLS records per answer and failures in the usual envelope."""

import asyncio
import logging
import traceback
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Protocol, cast

from uvicorn._types import ASGI3Application, ASGIReceiveEvent, ASGISendEvent
from uvicorn.protocols.http.httptools_impl import (
    HEADER_RE,
    HEADER_VALUE_RE,
    STATUS_LINE,
    RequestResponseCycle,
)

from stoplist.ids import new_request_id
from stoplist.server import own_answers
from stoplist.server.wire_state import WireState
from stoplist.web.request_context import BODY_PROGRESS, WHOLE_ANSWER

_LOG = logging.getLogger(__name__)

Headers = list[tuple[bytes, bytes]]


class Connection(Protocol):
    """The connection of a request, as far as its answer needs it."""

    server_state: WireState

    def hang_up(self) -> None:
        """Close the connection so that the client can still read the last answer."""

    def restart_deadline(self) -> None:
        """Restart the deadline of a body that is still arriving."""


class Cycle(RequestResponseCycle):
    """One request and its answer; an exception of the application is answered in the usual envelope."""

    protocol: Connection
    _head: ASGISendEvent | None = None
    _lateness = ""

    def expire(self, text: str) -> None:
        """Stop waiting for the rest of the body: `receive` raises a TimeoutError with this text."""
        self._lateness, self.keep_alive = text, False
        self.message_event.set()

    async def receive(self) -> ASGIReceiveEvent:
        """Return the next part of the body. Raise TimeoutError if the whole did not arrive in time.

        The connection has one timer for all its deadlines, so that an application needs none for each body.
        """
        message = await super().receive()
        if self._lateness:
            raise TimeoutError(self._lateness)
        return message

    async def send(self, message: ASGISendEvent) -> None:
        """Send a message: a whole answer, a head, a part of the body, or word that the request goes on.

        A head waits for the first part of its body: one TLS record instead of two takes a tenth less CPU for a small
        answer (measured).
        """
        event: Any = message
        if event["type"] == WHOLE_ANSWER:
            if not self._write_plain(event["status"], event["headers"], event["body"]):
                await self._send_joined(*_two_messages(event))
        elif self.response_started:
            await super().send(message)
        elif event["type"] == BODY_PROGRESS:
            self.protocol.restart_deadline()
        elif self._head is None:
            self._head = message
        else:
            head: Any = self._head
            self._head = None
            if event.get("more_body") or not self._write_plain(head["status"], head["headers"], event.get("body", b"")):
                await self._send_joined(head, message)

    async def _send_joined(self, head: ASGISendEvent, message: ASGISendEvent) -> None:
        """Let uvicorn write the head and the first part of the body, and send both together."""
        transport = self.transport
        buffer = _WriteBuffer(transport, self.protocol.hang_up)
        self.transport = cast("asyncio.Transport", buffer)
        try:
            await super().send(head)
            await super().send(message)
        finally:
            self.transport = transport
        buffer.flush()

    def _write_plain(self, status: int, own_headers: Headers, body: bytes) -> bool:
        """Write a complete answer if it is plain, and return whether it was.

        A plain answer is of a declared length, and its connection stays open and takes it at once. uvicorn writes every
        other answer; where both could, the bytes are the same.
        """
        headers = [*self.default_headers, *own_headers]
        fields = dict(headers)
        names, values = b"".join(fields), b"".join([value for _, value in headers])
        if (
            fields.get(b"content-length") != b"%d" % len(body)
            or b"connection" in fields
            or b"transfer-encoding" in fields
            or not self.keep_alive
            or self.disconnected
            or self.flow.write_paused
            or self.scope["method"] == "HEAD"
            or not _are_valid(names)
            or HEADER_VALUE_RE.search(values)
        ):
            return False
        self.response_started = self.response_complete = True
        lines = b"".join([b"%b: %b\r\n" % field for field in headers])
        self.transport.write(b"%b%b\r\n%b" % (STATUS_LINE[status], lines, body))
        self.message_event.set()
        self.on_response()
        return True

    async def run_asgi(self, app: ASGI3Application) -> None:
        """Run the application, and answer 500 if it fails or does not finish its answer."""
        try:
            await app(self.scope, self.receive, self.send)
        except Exception as error:
            # The stack frames only: the text of an exception may hold what a log must not.
            frames = "".join(traceback.format_tb(error.__traceback__))
            _LOG.error("The application raised %s:\n%s", type(error).__name__, frames)
        finally:
            self.on_response = _do_nothing
        if not self.response_complete and not self.disconnected:
            _LOG.error("The application did not finish its answer to a request.")
            await self._fail()

    async def _fail(self) -> None:
        if self.response_started:
            self.transport.close()
            return
        self._head = None
        request_id = new_request_id()
        headers, body = own_answers.server_error(request_id)
        await self.send({"type": "http.response.start", "status": 500, "headers": headers})
        await self.send({"type": "http.response.body", "body": body, "more_body": False})
        client = self.scope["client"]
        self.protocol.server_state.on_own_answer(request_id, 500, client[0] if client else None)


class ExpectingCycle(Cycle):
    """A request whose client waits for `100 Continue` before it sends the body (RFC 9110 section 10.1.1)."""

    async def send(self, message: ASGISendEvent) -> None:
        """Send a message; an answer sent instead of `100 Continue` also ends the connection.

        The client may or may not send the body after such an answer, so the next request could not be told from it.
        """
        if self.waiting_for_100_continue and self.more_body:
            self.keep_alive = False
        await super().send(message)


class _WriteBuffer:
    """Takes the place of the transport while the head and the first part of the body are joined."""

    def __init__(self, transport: asyncio.Transport, hang_up: Callable[[], None]) -> None:
        self._transport, self._hang_up = transport, hang_up
        self._parts: list[bytes] = []

    def write(self, data: bytes) -> None:
        self._parts.append(data)

    def close(self) -> None:
        self.flush()
        self._hang_up()

    def flush(self) -> None:
        if self._parts:
            self._transport.write(b"".join(self._parts))
            self._parts.clear()


def _two_messages(answer: Any) -> tuple[Any, Any]:
    """Return a whole answer as the messages that every ASGI server knows."""
    start = {"type": "http.response.start", "status": answer["status"], "headers": answer["headers"]}
    return start, {"type": "http.response.body", "body": answer["body"]}


@lru_cache(maxsize=256)
def _are_valid(names: bytes) -> bool:
    """Return whether uvicorn would write these field names, which come from our code alone, as they are."""
    return not HEADER_RE.search(names) and names == names.lower()


def _do_nothing() -> None:
    pass
