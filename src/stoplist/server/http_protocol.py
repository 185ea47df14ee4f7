"""HTTP/1.1 on one connection: uvicorn's httptools protocol with bounds.

It adds a head of at most 64 KiB, deadlines for what a client sends and reads, a bounded number of pipelined requests,
`Upgrade` ignored without losing the body, and an envelope and a request id on the answers that the application does
not make. One sweep over all connections replaces uvicorn's timer per request and costs each request less.
Source: docs/interface.md section D4 (head, envelope, `X-Request-Id`); RFC 9112.
"""

import asyncio
import logging
from typing import Any, Final

import httptools
from uvicorn.config import Config
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from stoplist.ids import new_request_id
from stoplist.server import own_answers
from stoplist.server.bounds import BODY, HEAD, IDLE, LINGERING, NEW, RECEIVED, SHAKING_HANDS, UnreadAnswer
from stoplist.server.connection_table import NOT_LISTED
from stoplist.server.request_cycle import Cycle, ExpectingCycle
from stoplist.server.request_head import complete_scope, head_without_upgrade, is_unambiguous
from stoplist.server.wire_state import WireState

_LOG = logging.getLogger(__name__)

_MAX_PIPELINED = 32
# Bounds the fields of an unfinished head: many short fields take ten times the memory of the bytes received.
_MAX_FIELDS = 500
# About what a request that is not complete takes beside its bytes: a field, and the task that waits for a body.
_FIELD_BYTES, _TASK_BYTES = 160, 16 * 1024


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
        self._phase = NEW
        self._since_s = server_state.now_s
        # Bytes since the last complete head or the last part of a body: the next head, and everything else that could
        # go on without end (empty lines, trailers, chunk extensions).
        self._overhead_bytes = 0
        self._is_input_ignored = False
        self.unread_answer = UnreadAnswer(server_state.now_s)
        self._is_held = False
        self._fields = 0
        self.listed_s = NOT_LISTED

    # Called by the transport

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Register the connection, or close it while the server drains. TLS is not established yet."""
        super().connection_made(transport)
        if self.scheme == "https":
            self._phase = SHAKING_HANDS
        self.server_state.table.add(self, self.client[0] if self.client else None, self.server_state.now_s)
        if self.server_state.is_draining:
            transport.close()

    def secured(self) -> None:
        """Start the deadline for the first request: TLS is established."""
        self._phase = NEW
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the application, and break the reference cycle so that memory is freed at once."""
        super().connection_lost(exc)
        self.server_state.table.remove(self)
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
            if self._phase == HEAD or self._phase == BODY:  # not `in`, which takes twice the time
                self._hold_incomplete()

    # Called by the parser

    def on_message_begin(self) -> None:
        """Start the deadline for the head of a new request."""
        super().on_message_begin()
        self._phase = HEAD
        self._wait()

    def on_headers_complete(self) -> None:
        """Start the application, or queue the request behind those before it."""
        parser = self.parser
        if parser.should_upgrade():
            return  # see _receive_without_upgrade
        if len(self.pipeline) >= _MAX_PIPELINED:
            raise _TooManyPipelinedError
        if not is_unambiguous(self.headers, parser.get_http_version()):
            raise _AmbiguousHeadError
        complete_scope(self.scope, parser, self.url)
        self._fields = len(self.headers)
        # Trailers go to a list that is never read: they must not become headers (RFC 9110 section 6.5.1).
        self.headers = []
        earlier = self.cycle
        cycle = self.cycle = self._new_cycle()
        self._overhead_bytes = 0
        self._phase = BODY
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
        if self._phase != BODY:
            return  # see _receive_without_upgrade
        self._overhead_bytes = 0
        if self._is_held:
            self._release()
        cycle = self.cycle
        if cycle.response_complete:
            self._rest()
            return
        self._phase = RECEIVED
        cycle.more_body = False
        cycle.message_event.set()

    def on_response_complete(self) -> None:
        """Start the next pipelined request, or let the connection rest."""
        if self._phase == LINGERING or self.transport.is_closing():
            return
        if self.pipeline:
            cycle, app = self.pipeline.pop()
            self._start_asgi_task(cycle, app)
            self.server_state.table.touch(self, self.server_state.now_s)  # it may have to send the body
            return
        self.flow.resume_reading()
        if self._phase == RECEIVED:
            self._rest()

    def hang_up(self) -> None:
        """Close the connection so that the client can still read the last answer.

        Closing a socket with unread input resets the connection, and the reset may overtake the answer. So while the
        client is still sending, only our side is closed.
        """
        self._ignore_input()
        if self._phase == RECEIVED:
            self.transport.close()
            return
        self._phase = LINGERING
        self._wait()
        self._release()
        self.transport.write_eof()
        self.flow.resume_reading()

    def restart_deadline(self) -> None:
        """Restart the deadline of a body: a large file may take long to arrive, but not stand still."""
        if self._phase == BODY:
            self._since_s = self.server_state.now_s

    # Called by the server

    def enforce_bounds(self, now_s: float) -> None:
        """End the connection if one of its deadlines has passed; called once per sweep."""
        bounds, phase = self.server_state.bounds, self._phase
        unread_bytes = self.transport.get_write_buffer_size()
        if self.unread_answer.waited_s(unread_bytes, now_s) > bounds.unread_s:
            self.transport.abort()
        elif self.transport.is_closing() or now_s - self._since_s <= bounds.deadline_s(phase):
            return
        elif phase == IDLE:
            self.transport.close()
        elif phase == LINGERING:
            self.transport.abort()
        elif phase == BODY:
            self._end_late_body()
        else:
            self._refuse(f"The head of the request did not arrive within {bounds.head_s:g} seconds.")

    def leave(self) -> None:
        """Make the request under way the last one; an idle connection may have one more."""
        if self.is_answering:
            self.cycle.keep_alive = False

    def shutdown(self) -> None:
        """Accept no further request: close an idle connection at once, and a busy one after its answer."""
        if self._phase == LINGERING:
            self.transport.close()
        elif self.is_answering:
            self.cycle.keep_alive = False
        elif self._phase != HEAD:
            self.transport.close()

    @property
    def is_unused(self) -> bool:
        """Return whether nothing has been received on this connection yet."""
        return self._phase in (NEW, SHAKING_HANDS)

    @property
    def is_answering(self) -> bool:
        """Return whether an accepted request is not answered completely yet."""
        return self.cycle is not None and not self.cycle.response_complete

    @property
    def is_idle(self) -> bool:
        """Return whether the server waits for this client, and owes no answer."""
        return self.is_sending_body or not self.is_answering

    @property
    def is_sending_body(self) -> bool:
        """Return whether the server waits for the rest of the body of its only request."""
        return self._phase == BODY and not self.pipeline and not self.cycle.response_started

    def abort(self) -> None:
        """Close the connection at once."""
        self.transport.abort()

    # Internals

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
        if self.parser.get_method() == b"CONNECT":
            self._refuse("This server is not a proxy.")
            return
        head = head_without_upgrade(self.parser, self.url, self.headers)
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self._overhead_bytes = -len(head)  # it is counted already
        self.data_received(head)
        self.data_received(rest)

    def _end_late_body(self) -> None:
        """Let the application refuse the request, or close the connection if it has begun an answer."""
        if self.cycle.response_started:
            self._ignore_input()
            self.transport.close()
        else:
            self.cycle.expire(f"The body did not arrive within {self.server_state.bounds.request_s:g} seconds.")

    def _rest(self) -> None:
        self._phase = IDLE
        self._wait()

    def _wait(self) -> None:
        """Start the deadline of a new phase."""
        state = self.server_state
        self._since_s = now_s = state.now_s
        if self.listed_s != now_s:  # once a second, since `now_s` moves with the sweep
            state.table.touch(self, now_s)

    def _hold_incomplete(self) -> None:
        """Count the memory of a request that is not complete. The table may close this connection for it."""
        if self._phase == HEAD:
            if len(self.headers) > _MAX_FIELDS:
                self._refuse(f"The head of the request has more than {_MAX_FIELDS} fields and no end.")
                return
            size_bytes = self._overhead_bytes + len(self.headers) * _FIELD_BYTES
        else:
            size_bytes = _TASK_BYTES + len(self.cycle.body) + self._fields * _FIELD_BYTES
        self._is_held = True
        self.server_state.table.hold(self, size_bytes, is_body=self._phase == BODY)

    def _release(self) -> None:
        self._is_held = False
        self.server_state.table.release(self)

    def _refuse(self, text: str) -> None:
        """End the connection, with a 400 where one can be sent, after the answers to earlier requests."""
        if self._is_input_ignored or self.transport.is_closing():
            return
        if self._phase != BODY and self.is_answering:
            self._ignore_input()
            self.cycle.keep_alive = False
        elif self._phase == BODY and self.pipeline:
            # Requests before this one are still to be answered: the application refuses it when its turn comes.
            self._ignore_input()
            self.cycle.expire(text)
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
        if self.is_unused:
            return self._overhead_bytes > 0
        return self._phase != BODY or not self.cycle.response_started

    def _answer_400(self, text: str) -> None:
        state, path = self.server_state, ""
        if self._phase == BODY:
            path = self.scope["path"]
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        request_id = new_request_id()
        answer = own_answers.bad_request(
            state.bad_request_code(path), text, request_id=request_id, default_headers=state.default_headers
        )
        self.transport.write(answer)
        state.on_own_answer(request_id, 400, self.client[0] if self.client else None)


class _TooManyPipelinedError(Exception):
    """Stops the parser; accepted requests are still answered, and the client must send the others again.

    Source: RFC 9112 section 9.3.2.
    """


class _AmbiguousHeadError(Exception):
    """Stops the parser: a proxy could read this head differently (RFC 9112 sections 3.2 and 6.1)."""
