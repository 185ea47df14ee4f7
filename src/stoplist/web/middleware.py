"""The outermost layer of the application, which every request and answer passes.

It assigns the request id, requires HTTPS, renders errors, and accounts for each answer: one log line, the metrics, the
usage of the key.
"""

import logging
import time
from collections.abc import Awaitable

from stoplist import ids, log
from stoplist.clock import Clock
from stoplist.errors import ANSWERS, BadRequest, ServerFault, StoplistError, StoreUnavailable
from stoplist.oauth.usage import Usage
from stoplist.source import Network
from stoplist.web.body import ClientGone
from stoplist.web.forwarded import OriginReader
from stoplist.web.health import PATHS as WITHOUT_HTTPS
from stoplist.web.metrics import REQUEST, Metrics
from stoplist.web.request_context import (
    WHOLE_ANSWER,
    AsgiApp,
    Message,
    Receive,
    RequestContext,
    Scope,
    Send,
    send_error,
)

_LOG = logging.getLogger(__name__)
_NOT_HTTPS = "This service answers over HTTPS alone: send the request to its https:// address."


class RequestMiddleware:
    """The ASGI application around the routes."""

    def __init__(
        self, routes: AsgiApp, *, clock: Clock, usage: Usage, metrics: Metrics, trusted: tuple[Network, ...]
    ) -> None:
        self._routes = routes
        self._clock, self._usage, self._metrics, self._origin_of = clock, usage, metrics, OriginReader(trusted).origin

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        began_ns = time.perf_counter_ns()
        if "\n" in scope["path"]:
            # Starlette's patterns ignore a newline at the end of a path, and do not match any other.
            scope["path"] = scope["path"].replace("\n", "\N{REPLACEMENT CHARACTER}")
        peer = scope["client"]
        origin = self._origin_of(peer[0] if peer else None, scope["scheme"], scope["headers"])
        context = RequestContext(request_id=ids.new_request_id(), source_ip=origin.source_ip)
        scope["stoplist.request_context"] = context
        request_id = (b"x-request-id", context.request_id.encode())

        def answer(message: Message) -> Awaitable[None]:
            if message["type"] in ("http.response.start", WHOLE_ANSWER):
                context.status = message["status"]
                message["headers"].append(request_id)
            return send(message)

        try:
            if not origin.is_https and scope["path"] not in WITHOUT_HTTPS:
                raise BadRequest(_NOT_HTTPS)
            await self._routes(scope, receive, answer)
        except ClientGone:
            context.error_code = "client_gone"
        except StoplistError as error:
            await self._refuse(scope, answer, error)
        except Exception:
            _LOG.exception("A request failed", extra={"fields": {"request_id": context.request_id}})
            await self._refuse(scope, answer, self._fault(context))
        finally:
            self._account(scope, context, time.perf_counter_ns() - began_ns)

    async def _refuse(self, scope: Scope, answer: Send, error: StoplistError) -> None:
        context: RequestContext = scope["stoplist.request_context"]
        if isinstance(error, StoreUnavailable):
            self._metrics.count_store_error()
            _LOG.warning(error.text, extra={"fields": {"request_id": context.request_id}})
        elif type(error) not in ANSWERS:
            # An error for the operator, such as a setting of the database that was changed while we ran.
            _LOG.error(error.text, extra={"fields": {"request_id": context.request_id}})
            error = self._fault(context)
        if context.status:
            return  # the answer has begun: closing the connection shows the client that it is incomplete
        await send_error(scope, answer, error)

    def _account(self, scope: Scope, context: RequestContext, took_ns: int) -> None:
        self._metrics.count_answer(context, took_ns)
        now_ms = self._clock.now_ms()
        if context.client_id is not None:
            self._usage.note(
                context.client_id,
                now_ms=now_ms,
                is_authenticated=context.is_authenticated,
                error=context.error_code,
                request_id=context.request_id,
            )
        log.log_request(
            at_ms=now_ms,
            request_id=context.request_id,
            client_id=context.client_id,
            method=scope["method"],
            path=scope["path"],
            status=context.status,
            duration_ms=took_ns / 1_000_000,
            source_ip=context.source_ip,
            person=context.person,
        )

    def _fault(self, context: RequestContext) -> ServerFault:
        """Count a defect, and return what its client is told."""
        self._metrics.count_defect(REQUEST)
        return ServerFault(
            "The server failed to answer this request. Try again; if it fails again, tell its operator the request_id.",
            request_id=context.request_id,
        )
