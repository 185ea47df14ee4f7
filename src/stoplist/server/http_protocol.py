"""HTTP/1.1 on one connection: uvicorn's httptools protocol with bounds.

It adds a head of at most 64 KiB, deadlines for what a client sends and reads, a bounded number of pipelined requests,
`Upgrade` ignored without losing the body, and an envelope and a request id on the answers that the application does
not make. One sweep over all connections replaces uvicorn's timer per request and costs each request less.
Source: docs/interface.md section D4 (head, envelope, `X-Request-Id`); RFC 9112.
"""

import asyncio
import logging
import traceback
from collections.abc import Callable
from typing import Any, Final, cast
from urllib.parse import unquote

import httptools
import msgspec
from uvicorn._types import ASGI3Application, ASGISendEvent
from uvicorn.config import Config
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from stoplist.ids import new_request_id

_LOG = logging.getLogger(__name__)

# The progress of the request that is being received. IDLE: the previous one is answered, the next has not begun.
# LINGERING: the last answer is sent, and the client has a moment to read it.
_NEW, _HEAD, _BODY, _RECEIVED, _IDLE, _LINGERING = range(6)

_MAX_PIPELINED = 32
# Bounds the fields of an unfinished head: many short fields take ten times the memory of the bytes received.
_MAX_FIELDS = 500

OnOwnAnswer = Callable[[str, int], None]


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """The bounds of a connection, in bytes and seconds."""

    head_bytes: int = 64 * 1024
    head_s: float = 60.0
    # Longer than the application's own 60 s for a body, whose refusal has the envelope of the endpoint.
    request_s: float = 65.0
    idle_s: float = 75.0
    unread_s: float = 60.0
    linger_s: float = 5.0
    sweep_s: float = 1.0


class WireState(ServerState):
    """The state that all connections of one server share.

    `bad_request_code` returns the error code for a request that cannot be parsed, given its path ("" if unknown).
    `on_own_answer` is called with the request id and status of each answer that the application did not make.
    """

    def __init__(
        self,
        bounds: Bounds,
        *,
        now_s: float,
        bad_request_code: Callable[[str], str],
        on_own_answer: OnOwnAnswer,
    ) -> None:
        super().__init__()
        self.bounds = bounds
        self.now_s = now_s  # updated by every sweep
        self.is_leaving = False  # connections are still accepted, and close after their next answer
        self.is_draining = False
        self.bad_request_code = bad_request_code
        self.on_own_answer = on_own_answer


class Cycle(RequestResponseCycle):
    """One request and its answer; an exception of the application is answered in the usual envelope."""

    protocol: "WireProtocol"
    _head: ASGISendEvent | None = None

    async def send(self, message: ASGISendEvent) -> None:
        """Send a message, the head together with the first part of the body.

        One TLS record instead of two takes a tenth less CPU for a small answer (measured).
        """
        if self._head is None:
            if self.response_started:
                await super().send(message)
            else:
                self._head = message
            return
        head, self._head, transport = self._head, None, self.transport
        buffer = _WriteBuffer(transport, self.protocol.hang_up)
        self.transport = cast("asyncio.Transport", buffer)
        try:
            await super().send(head)
            await super().send(message)
        finally:
            self.transport = transport
        buffer.flush()

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
        text = "The server failed; its log has more under this request id."
        body = _envelope("server_error", text, request_id=request_id)
        headers = [*_own_headers(request_id, body), (b"connection", b"close")]
        await self.send({"type": "http.response.start", "status": 500, "headers": headers})
        await self.send({"type": "http.response.body", "body": body, "more_body": False})
        self.protocol.server_state.on_own_answer(request_id, 500)


class ExpectingCycle(Cycle):
    """A request whose client waits for `100 Continue` before it sends the body (RFC 9110 section 10.1.1)."""

    async def send(self, message: ASGISendEvent) -> None:
        """Send a message; an answer sent instead of `100 Continue` also ends the connection.

        The client may or may not send the body after such an answer, so the next request could not be told from it.
        """
        if self.waiting_for_100_continue and self.more_body:
            self.keep_alive = False
        await super().send(message)


class WireProtocol(HttpToolsProtocol):
    """One connection of the server."""

    server_state: WireState
    cycle: Cycle

    def __init__(
        self,
        config: Config,
        server_state: WireState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._max_head_bytes: Final = server_state.bounds.head_bytes
        self._phase = _NEW
        self._since_s = server_state.now_s
        # Bytes since the last complete head or the last part of a body: the next head, and everything else that could
        # go on without end (empty lines, trailers, chunk extensions).
        self._overhead_bytes = 0
        self._is_input_ignored = False
        self._unread_bytes = 0
        self._unread_since_s = server_state.now_s

    # Called by the transport

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Register the connection, or close it while the server drains."""
        super().connection_made(transport)
        if self.server_state.is_draining:
            transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the application, and break the reference cycle so that memory is freed at once."""
        super().connection_lost(exc)
        self.cycle = None  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        """Parse the data, as far as the bounds allow."""
        overhead_bytes = self._overhead_bytes + len(data)
        if overhead_bytes > self._max_head_bytes:
            self._receive_in_parts(data)
            return
        self._overhead_bytes = overhead_bytes
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserError:
            self._refuse("The request is not well-formed HTTP.")
        except httptools.HttpParserUpgrade as upgrade:
            self._receive_without_upgrade(data[upgrade.args[0] :])
        else:
            # Checked for an unfinished head only: a complete one is soon freed.
            if self._phase == _HEAD and len(self.headers) > _MAX_FIELDS:
                self._refuse(f"The head of the request has more than {_MAX_FIELDS} fields and no end.")

    # Called by the parser

    def on_message_begin(self) -> None:
        """Start the deadline for the head of a new request."""
        super().on_message_begin()
        self._phase = _HEAD
        self._since_s = self.server_state.now_s

    def on_headers_complete(self) -> None:
        """Start the application, or queue the request behind those before it."""
        parser = self.parser
        if parser.should_upgrade():
            return  # see _receive_without_upgrade
        if len(self.pipeline) >= _MAX_PIPELINED:
            raise _TooManyPipelinedError
        if not _is_unambiguous(self.headers, parser.get_http_version()):
            raise _AmbiguousHeadError
        self._complete_scope()
        # Trailers go to a list that is never read: they must not become headers (RFC 9110 section 6.5.1).
        self.headers = []
        earlier = self.cycle
        cycle = self.cycle = self._new_cycle()
        self._overhead_bytes = 0
        self._phase = _BODY
        if earlier is None or earlier.response_complete:
            self._start_asgi_task(cycle, self.app)
        else:
            self.flow.pause_reading()
            self.pipeline.appendleft((cycle, self.app))

    def on_body(self, body: bytes) -> None:
        """Buffer a part of the body for the application, or drop it if the request is answered already."""
        self._overhead_bytes = 0
        cycle = self.cycle
        if cycle.response_complete:
            return
        cycle.body += body
        if len(cycle.body) > HIGH_WATER_LIMIT:
            self.flow.pause_reading()
        cycle.message_event.set()

    def on_message_complete(self) -> None:
        """End the deadline for the request, which has been received completely."""
        if self._phase != _BODY:
            return  # see _receive_without_upgrade
        self._overhead_bytes = 0
        cycle = self.cycle
        if cycle.response_complete:
            self._rest()
            return
        self._phase = _RECEIVED
        cycle.more_body = False
        cycle.message_event.set()

    def on_response_complete(self) -> None:
        """Start the next pipelined request, or let the connection rest."""
        if self._phase == _LINGERING or self.transport.is_closing():
            return
        if self.pipeline:
            cycle, app = self.pipeline.pop()
            self._start_asgi_task(cycle, app)
            return
        self.flow.resume_reading()
        if self._phase == _RECEIVED:
            self._rest()

    def hang_up(self) -> None:
        """Close the connection so that the client can still read the last answer.

        Closing a socket with unread input resets the connection, and the reset may overtake the answer. So while the
        client is still sending, only our side is closed (TLS does the same by itself).
        """
        self._ignore_input()
        if self._phase == _RECEIVED or not self.transport.can_write_eof():
            self.transport.close()
            return
        self._phase = _LINGERING
        self._since_s = self.server_state.now_s
        self.transport.write_eof()
        self.flow.resume_reading()

    # Called by the server

    def enforce_bounds(self, now_s: float) -> None:
        """End the connection if one of its deadlines has passed; called once per sweep."""
        bounds, waited_s = self.server_state.bounds, now_s - self._since_s
        if self._is_answer_unread(now_s):
            self.transport.abort()
        elif self.transport.is_closing() or self._phase == _RECEIVED:
            pass
        elif self._phase == _IDLE:
            if waited_s > bounds.idle_s:
                self.transport.close()
        elif self._phase == _LINGERING:
            if waited_s > bounds.linger_s:
                self.transport.abort()
        elif self._phase == _BODY:
            if waited_s > bounds.request_s:
                self._refuse(f"The request did not arrive within {bounds.request_s:g} seconds.")
        elif waited_s > bounds.head_s:
            self._refuse(f"The head of the request did not arrive within {bounds.head_s:g} seconds.")

    def leave(self) -> None:
        """Make the request under way the last one; an idle connection may have one more."""
        if self.is_answering:
            self.cycle.keep_alive = False

    def shutdown(self) -> None:
        """Accept no further request: close an idle connection at once, and a busy one after its answer."""
        if self._phase == _LINGERING:
            self.transport.close()
        elif self.is_answering:
            self.cycle.keep_alive = False
        elif self._phase != _HEAD:
            self.transport.close()

    @property
    def is_unused(self) -> bool:
        """Whether nothing has been received on this connection yet."""
        return self._phase == _NEW

    @property
    def is_answering(self) -> bool:
        """Whether an accepted request is not answered completely yet."""
        return self.cycle is not None and not self.cycle.response_complete

    # Internals

    def _complete_scope(self) -> None:
        scope, parser = self.scope, self.parser
        scope["method"] = parser.get_method().decode("ascii")
        scope["http_version"] = parser.get_http_version()
        url = httptools.parse_url(self.url)
        path = url.path.decode("ascii")
        scope["path"] = unquote(path) if "%" in path else path
        scope["raw_path"] = url.path
        scope["query_string"] = url.query or b""

    def _new_cycle(self) -> Cycle:
        state = self.server_state
        is_persistent = self.scope["http_version"] == "1.1" and self.parser.should_keep_alive()
        cycle = (ExpectingCycle if self.expect_100_continue else Cycle)(
            scope=self.scope,
            transport=self.transport,
            flow=self.flow,
            logger=_LOG,
            access_logger=self.access_logger,
            access_log=False,
            default_headers=state.default_headers,
            message_event=asyncio.Event(),
            expect_100_continue=self.expect_100_continue,
            keep_alive=is_persistent and not (state.is_leaving or state.is_draining),
            on_response=self.on_response_complete,
        )
        cycle.protocol = self
        return cycle

    def _receive_in_parts(self, data: bytes) -> None:
        """Parse data that might exceed the bound of the head, never more at once than the bound allows."""
        rest = memoryview(data)
        while rest and not self._is_input_ignored:
            allowed_bytes = self._max_head_bytes - self._overhead_bytes
            if allowed_bytes <= 0:
                self._refuse(f"The head of the request is larger than {self._max_head_bytes // 1024} KiB.")
                return
            self.data_received(bytes(rest[:allowed_bytes]))
            rest = rest[allowed_bytes:]

    def _receive_without_upgrade(self, rest: bytes) -> None:
        """Continue as if the request had not asked for another protocol, as RFC 9110 section 7.8 allows.

        The parser assumes that such a request has no body and would parse its body as the next request, so the head is
        parsed again without the field. CONNECT cannot be continued that way and is refused.
        """
        method = self.parser.get_method()
        if method == b"CONNECT":
            self._refuse("This server is not a proxy.")
            return
        fields = [b"%b: %b\r\n" % field for field in self.headers if field[0] != b"upgrade"]
        version = self.parser.get_http_version().encode("ascii")
        head = b"%b %b HTTP/%b\r\n%b\r\n" % (method, self.url, version, b"".join(fields))
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self._overhead_bytes = -len(head)  # it is counted already
        self.data_received(head)
        self.data_received(rest)

    def _rest(self) -> None:
        self._phase = _IDLE
        self._since_s = self.server_state.now_s

    def _refuse(self, text: str) -> None:
        """End the connection, with a 400 unless earlier requests are still to be answered."""
        if self._is_input_ignored or self.transport.is_closing():
            return
        if self._phase != _BODY and self.is_answering:
            self._ignore_input()
            self.cycle.keep_alive = False
        elif self._may_answer():
            self._answer_400(text)
            self.hang_up()
        else:
            self._ignore_input()
            self.transport.close()

    def _ignore_input(self) -> None:
        self._is_input_ignored = True
        # Routes all input to `_receive_in_parts`, so that other connections need not check the flag.
        self._overhead_bytes = self._max_head_bytes

    def _may_answer(self) -> bool:
        if self._phase == _NEW:
            return self._overhead_bytes > 0
        return self._phase != _BODY or not (self.cycle.response_started or self.pipeline)

    def _answer_400(self, text: str) -> None:
        state, path = self.server_state, ""
        if self._phase == _BODY:
            path = self.scope["path"]
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        request_id = new_request_id()
        body = _envelope(state.bad_request_code(path), text)
        headers = [*state.default_headers, *_own_headers(request_id, body), (b"connection", b"close")]
        fields = [b"%b: %b\r\n" % field for field in headers]
        self.transport.write(b"".join([STATUS_LINE[400], *fields, b"\r\n", body]))
        state.on_own_answer(request_id, 400)

    def _is_answer_unread(self, now_s: float) -> bool:
        """Return whether the client has read no byte of a waiting answer for longer than the bounds allow."""
        unread_bytes = self.transport.get_write_buffer_size()
        if unread_bytes == 0 or unread_bytes != self._unread_bytes:
            self._unread_bytes, self._unread_since_s = unread_bytes, now_s
            return False
        return now_s - self._unread_since_s > self.server_state.bounds.unread_s


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


class _TooManyPipelinedError(Exception):
    """Stops the parser; accepted requests are still answered, and the client must send the others again.

    Source: RFC 9112 section 9.3.2.
    """


class _AmbiguousHeadError(Exception):
    """Stops the parser: a proxy could read this head differently (RFC 9112 sections 3.2 and 6.1)."""


def _is_unambiguous(headers: list[tuple[bytes, bytes]], version: str) -> bool:
    """Return whether this is HTTP/1 with one `Host`, as 1.1 requires, and no transfer coding but one `chunked`."""
    if version not in ("1.1", "1.0"):
        return False
    hosts = 0
    codings: list[bytes] = []
    for name, value in headers:
        if name == b"host":
            hosts += 1
        elif name == b"transfer-encoding":
            codings.append(value.lower())
    return (hosts == 1 or (hosts == 0 and version == "1.0")) and codings in ([], [b"chunked"])


def _envelope(code: str, text: str, **extra: str) -> bytes:
    # `invalid_request` is a code of the token endpoint, whose envelope has two fields (section 7.1).
    message = {} if code == "invalid_request" else {"message": text}
    return msgspec.json.encode({"error": code, **message, "error_description": text, **extra})


def _own_headers(request_id: str, body: bytes) -> list[tuple[bytes, bytes]]:
    return [
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(body)),
        (b"cache-control", b"no-store"),
        (b"pragma", b"no-cache"),
        (b"x-request-id", request_id.encode("ascii")),
    ]


def _do_nothing() -> None:
    pass
