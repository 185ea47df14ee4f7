"""Serves `/u/…`: the page behind an opt-out link, its form, and one-click opt-outs. GET and HEAD write nothing.

Paths are never logged, traced or put into labels. Source: docs/interface.md section D15; RFC 8058.
"""

import logging
from collections.abc import Awaitable, Callable

from stoplist.actor import Actor
from stoplist.errors import (
    ANSWERS,
    MethodNotAllowed,
    Missing,
    RateLimited,
    StoplistError,
)
from stoplist.limits.limiter import Limiter
from stoplist.links.clicked_link import AnyLink, ClickedLink, EndedLink, UnusableLink, find_link
from stoplist.links.events import LinkEvents
from stoplist.links.opt_out import find_opt_out_state, opt_out, undo_opt_out
from stoplist.source import source_key
from stoplist.unsubscribes.act_groups import ActGroups
from stoplist.unsubscribes.model import OptOutStores
from stoplist.web.body import read_beginning
from stoplist.web.links.languages import texts_for
from stoplist.web.links.link_form import MAX_BODY_BYTES, read_link_form
from stoplist.web.links.page import (
    LinkPage,
    ask_page,
    done_page,
    ended_page,
    expired_undo_page,
    one_click_answer,
    problem_page,
    undone_page,
    unknown_page,
    unusable_page,
)
from stoplist.web.links.texts import Texts
from stoplist.web.links.undo_field import read_undo_field, undo_field
from stoplist.web.metrics import Metrics
from stoplist.web.request_context import (
    LINKS_PATH,
    WHOLE_ANSWER,
    Headers,
    Receive,
    Scope,
    Send,
    header_value,
    request_context_of,
)

_LOG = logging.getLogger(__name__)
ROUTE = f"{LINKS_PATH}*"


class LinkEndpoint:
    """The ASGI application of opt-out links."""

    def __init__(self, stores: OptOutStores, limiter: Limiter, metrics: Metrics, events: LinkEvents) -> None:
        self._stores, self._limiter, self._metrics, self._events = stores, limiter, metrics, events
        self._acts = ActGroups(stores.database, stores.clock)
        self._one_clicks, self._choices = metrics.link_acts.labels("one_click"), metrics.link_acts.labels("page")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        context = request_context_of(scope)
        context.route = ROUTE
        texts = texts_for(header_value(scope["headers"], b"accept-language"))
        scope["stoplist.error_page"] = _error_page(texts)
        if scope["method"] not in ("GET", "HEAD", "POST"):
            raise MethodNotAllowed("Use GET, HEAD or POST.", allow="GET, HEAD, POST")
        token = scope["path"].removeprefix(LINKS_PATH)
        link = await find_link(self._stores, token)
        if not isinstance(link, ClickedLink):
            page = await self._refusal(scope, texts, link)
        elif scope["method"] == "POST":
            page = await self._post(scope, receive, texts, link, token)
        else:
            page = ask_page(texts, link, await find_opt_out_state(self._stores, link))
        await _send(send, page)

    async def _refusal(self, scope: Scope, texts: Texts, link: AnyLink) -> LinkPage:
        context = request_context_of(scope)
        if isinstance(link, EndedLink):
            self._events.turned_away(link.link_key_id, link.person)
            return ended_page(texts, link.organization)
        if isinstance(link, UnusableLink):
            self._events.unusable(link.link_key_id, now_ms=self._stores.clock.now_ms())
            self._metrics.unusable_links.inc()
            _LOG.warning(
                "A link without an acceptable address was clicked",
                extra={"fields": {"link_key_id": link.link_key_id, "request_id": context.request_id}},
            )
            return unusable_page(texts, link.organization)
        decision = await self._limiter.link_unknown(source_key(context.source_ip))
        if not decision.accepted:
            raise RateLimited(
                "Too many links that do not work were opened from here.", retry_after_s=decision.retry_after_s
            )
        return unknown_page(texts)

    async def _post(self, scope: Scope, receive: Receive, texts: Texts, link: ClickedLink, token: str) -> LinkPage:
        body, is_complete = await read_beginning(receive, max_bytes=MAX_BODY_BYTES)
        form = read_link_form(body, is_complete=is_complete)
        if form.kind == "undo":
            return await self._undo(scope, texts, link, token, form.undo)
        is_one_click = form.kind == "one_click"
        done = await opt_out(
            self._acts,
            link,
            everything=form.kind == "all",
            default_source="one_click" if is_one_click else "opt_out_page",
            request=_actor(scope),
        )
        (self._one_clicks if is_one_click else self._choices).inc()
        if is_one_click:
            return one_click_answer(texts)
        field = None
        if done.submission_id is not None:
            field = undo_field(
                self._stores.secret_keys,
                token=token,
                submission_id=done.submission_id,
                now_ms=self._stores.clock.now_ms(),
            )
        return done_page(texts, link, await find_opt_out_state(self._stores, link), undo_field=field)

    async def _undo(self, scope: Scope, texts: Texts, link: ClickedLink, token: str, field: str) -> LinkPage:
        now_ms = self._stores.clock.now_ms()
        submission_id = read_undo_field(self._stores.secret_keys, field, token=token, now_ms=now_ms)
        if submission_id is None:
            return expired_undo_page(texts, link)
        try:
            done = await undo_opt_out(self._stores, link, submission_id, request=_actor(scope))
        except Missing:
            return expired_undo_page(texts, link)
        return undone_page(texts, link, done.state, is_undone=done.is_undone)


def _actor(scope: Scope) -> Actor:
    context = request_context_of(scope)
    return Actor(kind="link", id="", source_ip=context.source_ip, request_id=context.request_id)


def _error_page(texts: Texts) -> Callable[..., Awaitable[None]]:
    async def send_page(send: Send, error: StoplistError, headers: Headers) -> None:
        page = problem_page(texts, ANSWERS[type(error)].status)
        await _send(send, page._replace(headers=[*page.headers, *headers]))

    return send_page


async def _send(send: Send, page: LinkPage) -> None:
    length = (b"content-length", str(len(page.body)).encode())
    await send({"type": WHOLE_ANSWER, "status": page.status, "headers": [*page.headers, length], "body": page.body})
