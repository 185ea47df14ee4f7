"""`/api/v1/unsubscribe/{email,sms,phone}`: reads the request, calls one operation, and renders its answer.

Source: docs/interface.md sections 4.2, D4 and D6.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from stoplist.actor import Actor
from stoplist.errors import BadRequest, MethodNotAllowed
from stoplist.oauth.model import Bearer
from stoplist.proof.held_requests import HeldRequest, HeldRequests
from stoplist.proof.positions import Positions
from stoplist.slicing import in_slices
from stoplist.unsubscribes.channel import Channel
from stoplist.unsubscribes.follow import FollowedPage, follow, look_up
from stoplist.unsubscribes.model import MAX_BODY_BYTES, OptOutStores, Page, Submission
from stoplist.unsubscribes.submit import submit
from stoplist.web.api.batch import read_batch
from stoplist.web.api.coding import answer_coding, compress, decompress_gzip, request_coding
from stoplist.web.api.prefer import read_preferences, read_wait_s, reads_ahead
from stoplist.web.api.query import ReadQuery, read_query
from stoplist.web.bearer import require_bearer
from stoplist.web.body import MemoryQuota, read_body, unless_gone
from stoplist.web.metrics import Metrics
from stoplist.web.processing_time import MeteredWork, ProcessingTime
from stoplist.web.request_context import (
    API_PATH,
    NO_STORE,
    Headers,
    Receive,
    RequestContext,
    Scope,
    Send,
    header_value,
    request_context_of,
    send_body,
)

PATH = API_PATH + "/unsubscribe/{channel}"
_ALLOW = "GET, HEAD, POST"
_SMALL_PAGE = 200
# The approximate size of a record as JSON.
_RECORD_BYTES = 400
_VARY = (b"vary", b"accept-encoding")


class ChannelEndpoint:
    """The ASGI application for the two operations of one channel."""

    def __init__(
        self,
        channel: Channel,
        stores: OptOutStores,
        quota: MemoryQuota,
        processing_time: ProcessingTime,
        held: HeldRequests,
        positions: Positions,
        metrics: Metrics,
    ) -> None:
        self.path = path_of(channel)
        self._metrics = metrics
        self._channel, self._stores, self._quota = channel, stores, quota
        self._processing_time, self._held, self._positions = processing_time, held, positions

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        context = request_context_of(scope)
        context.route = self.path
        if scope["method"] not in ("GET", "HEAD", "POST"):
            raise MethodNotAllowed("Ask with GET, submit with POST.", allow=_ALLOW)
        bearer: Bearer = scope["stoplist.bearer"]
        if scope["method"] == "POST":
            self._processing_time.check(bearer.client_id)
            with self._quota.reserving(bearer.client_id) as reserve:
                await self._post(scope, receive, send, reserve)
            return
        query = read_query(scope["query_string"])
        if query.addresses:
            await self._look_up(scope, receive, send, bearer, query)
            return
        wait_s = None if query.cursor is None or scope["method"] == "HEAD" else read_wait_s(scope["headers"])
        held = None if wait_s is None else self._held.hold(bearer.client_id, wait_s)
        ahead = b"read-ahead" if reads_ahead(scope["headers"]) else b""
        if wait_s is None or held is None:
            await self._follow(scope, send, bearer, query, _applied(ahead), is_ahead=bool(ahead))
        else:
            await self._wait(scope, receive, send, bearer, query, held, _applied(b"wait=%d" % wait_s, ahead), ahead)

    async def _look_up(self, scope: Scope, receive: Receive, send: Send, bearer: Bearer, query: ReadQuery) -> None:
        """Answer with the records of these addresses. Several of them are work whose time is bounded."""
        work = None
        if len(query.addresses) > 1:
            self._processing_time.check(bearer.client_id)
            work = MeteredWork(receive, self._processing_time, bearer.client_id)
        try:
            page = await look_up(
                _actor(bearer, request_context_of(scope)),
                self._stores,
                self._channel,
                query.requested,
                addresses=query.addresses,
                default=bearer.default_target,
                work=work,
            )
        finally:
            if work is not None:
                work.end()
        await _answer(scope, send, await _encoded(page, page.items))

    async def _wait(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        bearer: Bearer,
        query: ReadQuery,
        held: HeldRequest,
        applied: Headers,
        ahead: bytes,
    ) -> None:
        """Answer with the page after the cursor once anything has changed, or unchanged at the end of the time."""
        context = request_context_of(scope)
        with held:
            unchanged = await self._follow(scope, send, bearer, query, applied, is_ahead=bool(ahead), holds=True)
            while unchanged is not None:
                began_ns = time.perf_counter_ns()
                change = held.until_changed(unchanged.feed.feed_id, after=unchanged.feed.head_seq)
                is_changed = await unless_gone(change, receive)
                context.held_ns += time.perf_counter_ns() - began_ns
                if not is_changed:
                    page = unchanged.page
                    applied = _applied(ahead) if self._held.is_ended else applied
                    await _answer(scope, send, await _encoded(page, page.items), applied)
                    return
                # The key may have lost its rights in that time.
                bearer = await require_bearer(scope["headers"], self._stores.database, self._stores.clock)
                query = query._replace(cursor=unchanged.page.next_cursor)
                # This cursor is ours, and the client has not presented it: nothing is noted.
                unchanged = await self._follow(scope, send, bearer, query, applied, is_ahead=None, holds=True)

    async def _follow(
        self,
        scope: Scope,
        send: Send,
        bearer: Bearer,
        query: ReadQuery,
        applied: Headers,
        *,
        is_ahead: bool | None,
        holds: bool = False,
    ) -> FollowedPage | None:
        """Answer with the page after the cursor. With `holds`, return the page instead if nothing has changed.

        The position of the cursor is noted, unless the request `is_ahead` of what the client has stored. If `is_ahead`
        is None, nothing is noted, because this request was noted before.
        """
        with self._quota.reserving(bearer.client_id) as reserve:
            reserve(query.limit * _RECORD_BYTES)
            followed = await follow(
                _actor(bearer, request_context_of(scope)),
                self._stores,
                self._channel,
                query.requested,
                limit=query.limit,
                cursor=query.cursor,
                default=bearer.default_target,
            )
            if is_ahead is not None:
                self._note(bearer.client_id, followed, is_ahead=is_ahead)
            page = followed.page
            if holds and not (page.items or page.has_more):
                return followed
            await _answer(scope, send, await _encoded(page, page.items), applied)
            return None

    def _note(self, client_id: str, followed: FollowedPage, *, is_ahead: bool) -> None:
        reader, now_ms = (client_id, followed.group_no), self._stores.clock.now_ms()
        if is_ahead:
            self._positions.note_read_ahead(followed.feed, reader, now_ms=now_ms)
        else:
            self._positions.note(followed.feed, reader, followed.position, now_ms=now_ms)

    async def _post(self, scope: Scope, receive: Receive, send: Send, reserve: Callable[[int], None]) -> None:
        headers: Headers = scope["headers"]
        if scope["query_string"]:
            raise BadRequest("A submission takes no query parameters: name the organization and group in the body.")
        _check_content_type(headers)
        coding = request_coding(headers)
        body = await read_body(receive, headers, max_bytes=MAX_BODY_BYTES, reserve=reserve)
        # A body may take a minute to arrive, and its key may be revoked in that time.
        bearer = await require_bearer(headers, self._stores.database, self._stores.clock)
        if coding == "gzip":
            compressed_bytes = len(body)
            body = await decompress_gzip(body, max_bytes=MAX_BODY_BYTES)
            reserve(max(0, len(body) - compressed_bytes))
        work = MeteredWork(receive, self._processing_time, bearer.client_id)
        try:
            requested, items = await read_batch(body, work)
            preferences = read_preferences(headers)
            submission = await submit(
                _actor(bearer, request_context_of(scope)),
                self._stores,
                self._channel,
                requested,
                items,
                is_lenient=preferences.is_lenient,
                is_minimal=preferences.is_minimal,
                work=work,
            )
        finally:
            work.end()
        self._metrics.count_submission(self._channel.name, submission)
        applied: Headers = []
        if preferences.applied:
            applied.append((b"preference-applied", preferences.applied.encode()))
        await _answer(scope, send, await _encoded(submission, submission.items), applied)


def _actor(bearer: Bearer, context: RequestContext) -> Actor:
    return Actor(
        kind="client",
        id=bearer.client_id,
        may=bearer.permissions,
        source_ip=context.source_ip,
        request_id=context.request_id,
    )


def _applied(*preferences: bytes) -> Headers:
    """Return the header that names these preferences; none are empty."""
    names = b", ".join(filter(None, preferences))
    return [(b"preference-applied", names)] if names else []


def path_of(channel: Channel) -> str:
    """Return the path of the two operations of a channel."""
    return PATH.format(channel=channel.name)


def _check_content_type(headers: Headers) -> None:
    values = [value for name, value in headers if name == b"content-type"]
    if len(values) != 1 or values[0].split(b";", 1)[0].strip().lower() != b"application/json":
        raise BadRequest("The content type must be application/json.")


async def _encoded(answer: Page | Submission, items: Sequence[Any] | msgspec.UnsetType) -> bytes:
    """Return the answer as JSON; many items are encoded in slices, between which other tasks run."""
    if items is msgspec.UNSET or len(items) < _SMALL_PAGE:
        return msgspec.json.encode(answer)
    rest = msgspec.json.encode(msgspec.structs.replace(answer, items=msgspec.UNSET))
    parts = [msgspec.json.encode(part)[1:-1] async for part in in_slices(items)]
    return b'{"items":[' + b",".join(parts) + b"]," + rest[1:]


async def _answer(scope: Scope, send: Send, body: bytes, more_headers: Headers | None = None) -> None:
    coding = answer_coding(header_value(scope["headers"], b"accept-encoding"))
    headers: Headers = [NO_STORE, _VARY, *request_context_of(scope).headers, *(more_headers or ())]
    if coding != "identity":
        body = await compress(body, coding)
        headers.append((b"content-encoding", coding.encode()))
    await send_body(send, 200, body, headers)
