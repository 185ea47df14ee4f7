"""HTTP/1.1 on one connection: uvicorn's protocol on httptools, held within bounds.

What is added: a head of at most 64 KiB, deadlines for what a client sends and takes, a bounded number of
pipelined requests, `Upgrade` ignored without losing the body, and an envelope and a request id on the answers
that no application makes. uvicorn's timer per request is replaced by one sweep over all connections, which
costs a request less than the timer did.
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

# How far the request that is being received has come. IDLE: the one before has been answered. LINGERING: all has
# been said, and the client has a moment to read it.
_NEW, _HEAD, _BODY, _RECEIVED, _IDLE, _LINGERING = range(6)

_MAX_PIPELINED = 32
# Many short fields take ten times the memory of the bytes that came: so many may wait for the end of their head.
_MAX_FIELDS = 500

OnOwnAnswer = Callable[[str, int], None]


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """What a connection may take, in bytes and seconds."""

    head_bytes: int = 64 * 1024
    head_s: float = 60.0
    # The application's own deadline for a body is 60 s: it comes first, in the envelope of its endpoint.
    request_s: float = 65.0
    idle_s: float = 75.0
    untaken_s: float = 60.0
    linger_s: float = 5.0
    sweep_s: float = 1.0


class WireState(ServerState):
    """What the connections of one server share.

    `bad_request_code` gives the error code of a request that cannot be parsed, by its path ("" when unknown).
    `on_own_answer` is told the request id and status of each answer that the application did not make.
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
        self.now_s = now_s  # as exact as the sweep is frequent
        self.is_leaving = False  # connections are accepted, and end with their next answer
        self.is_draining = False
        self.bad_request_code = bad_request_code
        self.on_own_answer = on_own_answer


class Cycle(RequestResponseCycle):
    """One request and its answer; a defect of the application is answered as the rest of the product does."""

    protocol: "WireProtocol"
    _head: ASGISendEvent | None = None

    async def send(self, message: ASGISendEvent) -> None:
        """Sent; the head waits for the first part of the body and leaves with it.

        One TLS record instead of two: measured, a tenth less CPU for a small answer.
        """
        if self._head is None:
            if self.response_started:
                await super().send(message)
            else:
                self._head = message
            return
        head, self._head, transport = self._head, None, self.transport
        joint = _Joint(transport, self.protocol.hang_up)
        self.transport = cast("asyncio.Transport", joint)
        try:
            await super().send(head)
            await super().send(message)
        finally:
            self.transport = transport
        joint.flush()

    async def run_asgi(self, app: ASGI3Application) -> None:
        """The application has answered, or the answer is 500."""
        try:
            await app(self.scope, self.receive, self.send)
        except Exception as error:
            # The frames alone: the text of an exception may hold what a log must not.
            where = "".join(traceback.format_tb(error.__traceback__))
            _LOG.error("The application raised %s:\n%s", type(error).__name__, where)
        finally:
            self.on_response = _nothing
        if not self.response_complete and not self.disconnected:
            _LOG.error("The application left a request without a whole answer.")
            await self._fail()

    async def _fail(self) -> None:
        if self.response_started:
            self.transport.close()
            return
        self._head = None
        request_id = new_request_id()
        text = "The server has made an error; its log holds more under this request id."
        body = _envelope("server_error", text, request_id=request_id)
        headers = [*_own_headers(request_id, body), (b"connection", b"close")]
        await self.send({"type": "http.response.start", "status": 500, "headers": headers})
        await self.send({"type": "http.response.body", "body": body, "more_body": False})
        self.protocol.server_state.on_own_answer(request_id, 500)


class ExpectingCycle(Cycle):
    """A request whose client waits for `100 Continue` before it sends the body (RFC 9110 section 10.1.1)."""

    async def send(self, message: ASGISendEvent) -> None:
        """Sent; an answer given instead of `100 Continue` also ends the connection.

        The client may or may not send the body then, and the next request could not be told from it.
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
        # Bytes since the last head was whole or the last part of a body came: the head, and also what else
        # could go on without end (empty lines, trailers, chunk extensions).
        self._overhead_bytes = 0
        self._is_deaf = False
        self._untaken_bytes = 0
        self._untaken_since_s = server_state.now_s

    # What the transport calls

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """The connection is counted; one that comes while the server stops is closed."""
        super().connection_made(transport)
        if self.server_state.is_draining:
            transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """The application learns of it; nothing refers in a circle, so that all is freed at once."""
        super().connection_lost(exc)
        self.cycle = None  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        """Parsed, as far as the bounds allow."""
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
            # Of a head that waits for its end: one that is whole is soon gone.
            if self._phase == _HEAD and len(self.headers) > _MAX_FIELDS:
                self._refuse(f"The head of the request has more than {_MAX_FIELDS} fields and no end.")

    # What the parser calls

    def on_message_begin(self) -> None:
        """A new request; its head has a deadline from here."""
        super().on_message_begin()
        self._phase = _HEAD
        self._since_s = self.server_state.now_s

    def on_headers_complete(self) -> None:
        """The application is started, or has its turn after those before it."""
        parser = self.parser
        if parser.should_upgrade():
            return  # see _receive_without_upgrade
        if len(self.pipeline) >= _MAX_PIPELINED:
            raise _TooManyPipelinedError
        if not _is_unambiguous(self.headers, parser.get_http_version()):
            raise _AmbiguousHeadError
        self._complete_scope()
        # Trailers go to a list that nobody reads: in the head they would count (RFC 9110 section 6.5.1).
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
        """Kept for the application, or dropped when that has answered already."""
        self._overhead_bytes = 0
        cycle = self.cycle
        if cycle.response_complete:
            return
        cycle.body += body
        if len(cycle.body) > HIGH_WATER_LIMIT:
            self.flow.pause_reading()
        cycle.message_event.set()

    def on_message_complete(self) -> None:
        """The request is there; from here on it is the application's time that passes."""
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
        """The next pipelined request is begun, else the connection rests."""
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
        """Closed, but not before the client could read what it was told.

        A socket that is closed with bytes unread is reset, and the reset may overtake the answer; so as long as
        the client is still sending, only our side is closed (TLS does the like by itself).
        """
        self._stop_listening()
        if self._phase == _RECEIVED or not self.transport.can_write_eof():
            self.transport.close()
            return
        self._phase = _LINGERING
        self._since_s = self.server_state.now_s
        self.transport.write_eof()
        self.flow.resume_reading()

    # What the server calls

    def enforce_bounds(self, now_s: float) -> None:
        """A connection that let one of its deadlines pass is ended; called for each once per sweep."""
        bounds, waited_s = self.server_state.bounds, now_s - self._since_s
        if self._is_untaken(now_s):
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

    def be_last(self) -> None:
        """The request under way, if there is one, is the last; a connection that rests may have one more."""
        if self.is_answering:
            self.cycle.keep_alive = False

    def shutdown(self) -> None:
        """No further request is accepted: closed at once when idle, else after what is under way."""
        if self._phase == _LINGERING:
            self.transport.close()
        elif self.is_answering:
            self.cycle.keep_alive = False
        elif self._phase != _HEAD:
            self.transport.close()

    @property
    def is_unused(self) -> bool:
        """Whether nothing has come on this connection yet."""
        return self._phase == _NEW

    @property
    def is_answering(self) -> bool:
        """Whether a request has been accepted whose answer is not complete."""
        return self.cycle is not None and not self.cycle.response_complete

    # How

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
        """`data`, which might be too much overhead if all of it were: never more at once than is allowed."""
        rest = memoryview(data)
        while rest and not self._is_deaf:
            allowed_bytes = self._max_head_bytes - self._overhead_bytes
            if allowed_bytes <= 0:
                self._refuse(f"The head of the request is larger than {self._max_head_bytes // 1024} KiB.")
                return
            self.data_received(bytes(rest[:allowed_bytes]))
            rest = rest[allowed_bytes:]

    def _receive_without_upgrade(self, rest: bytes) -> None:
        """The request goes on as if it had not asked for another protocol (RFC 9110 section 7.8 allows it).

        The parser takes such a request for one without a body, and would take its body for the next request;
        so the head is parsed once more without the field. CONNECT cannot be helped that way, nor answered.
        """
        method = self.parser.get_method()
        if method == b"CONNECT":
            self._refuse("This server is no proxy.")
            return
        fields = [b"%b: %b\r\n" % field for field in self.headers if field[0] != b"upgrade"]
        version = self.parser.get_http_version().encode("ascii")
        head = b"%b %b HTTP/%b\r\n%b\r\n" % (method, self.url, version, b"".join(fields))
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self._overhead_bytes = -len(head)  # it has been counted once
        self.data_received(head)
        self.data_received(rest)

    def _rest(self) -> None:
        self._phase = _IDLE
        self._since_s = self.server_state.now_s

    def _refuse(self, text: str) -> None:
        """The connection ends: with a 400, unless the requests before this one are still to be answered."""
        if self._is_deaf or self.transport.is_closing():
            return
        if self._phase != _BODY and self.is_answering:
            self._stop_listening()
            self.cycle.keep_alive = False
        elif self._may_answer():
            self._answer_400(text)
            self.hang_up()
        else:
            self._stop_listening()
            self.transport.close()

    def _stop_listening(self) -> None:
        self._is_deaf = True
        # Sends all that comes to where `_is_deaf` is asked, which other connections need not do.
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

    def _is_untaken(self, now_s: float) -> bool:
        """Whether the client has not taken one byte of what waits for it within the time it has for that."""
        untaken_bytes = self.transport.get_write_buffer_size()
        if untaken_bytes == 0 or untaken_bytes != self._untaken_bytes:
            self._untaken_bytes, self._untaken_since_s = untaken_bytes, now_s
            return False
        return now_s - self._untaken_since_s > self.server_state.bounds.untaken_s


class _Joint:
    """Stands for the transport while the head and the first part of the body are put together."""

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
    """Stops the parser; what was accepted is still answered, the rest is the client's to send again.

    Source: RFC 9112 section 9.3.2.
    """


class _AmbiguousHeadError(Exception):
    """Stops the parser: a proxy could read this head otherwise than we do (RFC 9112 sections 3.2 and 6.1)."""


def _is_unambiguous(headers: list[tuple[bytes, bytes]], version: str) -> bool:
    """Whether it is HTTP/1, there is one `Host`, as 1.1 demands, and no transfer coding but one `chunked`."""
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
    # The token endpoint's envelope has two fields, and only its code for a bad request is this one (section 7.1).
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


def _nothing() -> None:
    pass
