"""The ASGI application of all screens: sessions, the origin check of posts, and error pages.

Source: docs/interface.md sections D10 and D11.
"""

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from functools import partial
from urllib.parse import quote, urlencode

import msgspec
from starlette.routing import Route, Router

from stoplist.actor import ADMINISTER, Actor
from stoplist.errors import (
    ANSWERS,
    Forbidden,
    MethodNotAllowed,
    Missing,
    NotFound,
    RateLimited,
    Refused,
    StoplistError,
    TooLarge,
)
from stoplist.staff.sessions import find_session
from stoplist.web.admin import cookies
from stoplist.web.admin.account.paths import SIGN_OUT_PATH, TWO_STEP_PATH
from stoplist.web.admin.cross_site import refuse_other_sites
from stoplist.web.admin.fields import MAX_FORM_BYTES, MAX_FORM_BYTES_BEFORE_SIGN_IN, Fields, read_fields
from stoplist.web.admin.page_request import (
    TEXT_HTML,
    AdminContext,
    Answer,
    Download,
    HtmlPage,
    PageRequest,
    PageRoute,
    PostedStream,
    Redirect,
)
from stoplist.web.admin.rendering import render
from stoplist.web.admin.screens import ROUTES
from stoplist.web.body import StreamedBody, read_body, unless_gone
from stoplist.web.concurrency_limit import PerSourceConcurrency
from stoplist.web.forms import is_form
from stoplist.web.request_context import (
    NO_STORE,
    SIGN_IN_PATH,
    Headers,
    Receive,
    RequestContext,
    Scope,
    Send,
    header_value,
    request_context_of,
)

_POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self'; form-action 'self'; "
    "frame-ancestors 'none'; base-uri 'none'"
)
HEADERS: Headers = [
    NO_STORE,
    (b"content-security-policy", _POLICY.encode()),
    (b"x-frame-options", b"DENY"),
    # Not no-referrer: browsers would then send `Origin: null` with our own forms.
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
    (b"vary", b"cookie"),
]
_STATUS_OF_REFUSED = ((Missing, 404), (Forbidden, 403), (TooLarge, 413), (Refused, 422))
_TITLES = {
    400: "Invalid request",
    403: "Not allowed",
    404: "Page not found",
    405: "Method not allowed",
    413: "File too large",
    422: "Request could not be completed",
    429: "Too many requests",
    500: "Something went wrong",
    503: "Service temporarily unavailable",
}


class Admin:
    """The ASGI application of all screens."""

    def __init__(self, admin: AdminContext, concurrency: PerSourceConcurrency) -> None:
        self._admin_context, self._concurrency = admin, concurrency
        paths = dict.fromkeys(route.path for route in ROUTES)
        routes = [Route(path, _Screen(self, [route for route in ROUTES if route.path == path])) for path in paths]
        self._routes = Router(routes, redirect_slashes=False, default=_page_not_found)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request_context_of(scope).route = "pages/*"
        scope["stoplist.error_page"] = self._error_page(scope)
        try:
            await self._routes(scope, receive, send)
        except Refused as refusal:
            await self._send_error(scope, send, _status_of(refusal), refusal.text)

    async def answer(self, routes: list[PageRoute], scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request; `routes` are the methods of one path."""
        context = request_context_of(scope)
        context.route = routes[0].path
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        route = next((route for route in routes if route.method == method), None)
        if route is None:
            allow = ", ".join(
                sorted({route.method for route in routes} | {"HEAD" for route in routes if route.method == "GET"})
            )
            raise MethodNotAllowed("This page does not accept requests of this method.", allow=allow)
        if route.method == "POST":
            refuse_other_sites(scope["headers"], base_url=self._admin_context.base_url)
        request = await self._page_request(scope, context)
        scope["stoplist.page_request"] = request
        if route.is_streamed:
            body = StreamedBody(scope["headers"], receive, send)
            request.arriving = PostedStream(body, partial(self._page_request, scope, context))
        elif route.method == "POST" and (request.person is not None or route.is_open):
            max_bytes = MAX_FORM_BYTES_BEFORE_SIGN_IN if request.person is None else MAX_FORM_BYTES
            form = await self._read_form(scope, receive, max_bytes)
            # A form may take a minute to arrive; meanwhile the session or the rights of its sender may have ended.
            request = await self._page_request(scope, context)
            request.form, scope["stoplist.page_request"] = form, request
        if request.person is None and not route.is_open:
            await _send(send, request, _to_sign_in(scope))
            return
        if _must_set_up_two_step(route, request):
            await _send(send, request, Redirect(TWO_STEP_PATH))
            return
        page = await _run_handler(route, request)
        if isinstance(page, Download):
            await _send_while_wanted(receive, send, page)
        else:
            await _send(send, request, page)

    async def _page_request(self, scope: Scope, context: RequestContext) -> PageRequest:
        headers: Headers = scope["headers"]
        token = cookies.session_token(headers)
        session = None
        if token:
            with self._concurrency.acquire(context.source_ip):
                session = await find_session(self._admin_context.database, self._admin_context.clock, token)
        person = None if session is None else session.person
        context.person = None if person is None else person.email
        is_administrator = person is not None and person.is_administrator
        return PageRequest(
            admin=self._admin_context,
            actor=Actor(
                kind="person",
                id="" if person is None else person.email,
                may=frozenset((ADMINISTER,)) if is_administrator else frozenset(),
                roles={} if person is None else person.roles,
                source_ip=context.source_ip,
                request_id=context.request_id,
            ),
            person=person,
            session_id="" if session is None else session.session_id,
            session_token=token,
            user_agent=header_value(headers, b"user-agent").decode("latin-1"),
            path=scope["path_params"],
            query=read_fields(scope["query_string"]),
        )

    async def _read_form(self, scope: Scope, receive: Receive, max_bytes: int) -> Fields:
        if not is_form(header_value(scope["headers"], b"content-type")):
            raise Refused("The form was sent in an unsupported format. Go back and try again.")
        return read_fields(await read_body(receive, scope["headers"], max_bytes=max_bytes))

    def _error_page(self, scope: Scope) -> Callable[..., object]:
        async def send_page(send: Send, error: StoplistError, headers: Headers) -> None:
            await self._send_error(scope, send, ANSWERS[type(error)].status, error.text, headers)

        return send_page

    async def _send_error(
        self, scope: Scope, send: Send, status: int, text: str, headers: Headers | None = None
    ) -> None:
        context = request_context_of(scope)
        context.error_code = context.error_code or str(status)
        request = scope.get("stoplist.page_request") or PageRequest(
            admin=self._admin_context, actor=Actor(kind="person", id=""), person=None
        )
        values = {"title": _TITLES.get(status, _TITLES[400]), "text": text, "request_id": context.request_id}
        await _send(send, request, HtmlPage("error.html", values, status, headers or []))


class _Screen:
    """The Starlette endpoint of one path."""

    def __init__(self, admin: Admin, routes: list[PageRoute]) -> None:
        self._admin, self._page_routes = admin, routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._admin.answer(self._page_routes, scope, receive, send)


async def _run_handler(route: PageRoute, request: PageRequest) -> Answer:
    """Return the answer of the screen. If it refuses, return its form again with the typed values and the refusal."""
    if route.on_refusal is None:
        return await route.handler(request)
    try:
        return await route.handler(request)
    except (Missing, Forbidden):
        raise
    except RateLimited as error:
        request.refusal = Refused(error.text)
        page = await route.on_refusal(request)
        return _with_status(page, 429, [(b"retry-after", str(error.retry_after_s).encode())])
    except Refused as refusal:
        request.refusal = refusal
        return _with_status(await route.on_refusal(request), _status_of(refusal), [])


def _with_status(page: Answer, status: int, headers: Headers) -> Answer:
    if not isinstance(page, HtmlPage):
        return page
    return msgspec.structs.replace(page, status=status, headers=[*page.headers, *headers])


def _status_of(refusal: Refused) -> int:
    return next(status for kind, status in _STATUS_OF_REFUSED if isinstance(refusal, kind))


def _must_set_up_two_step(route: PageRoute, request: PageRequest) -> bool:
    """Return whether the person must turn two-step sign-in on before this page; signing out needs no second step."""
    if request.person is None or route.is_open or route.path in (TWO_STEP_PATH, SIGN_OUT_PATH):
        return False
    return request.must_have_two_step and not request.person.has_two_step


def _to_sign_in(scope: Scope) -> Redirect:
    """Return a redirect to the sign-in page, which then leads back to the requested page (but never to a post)."""
    if scope["method"] == "POST" or scope["path"] == "/":
        return Redirect(SIGN_IN_PATH)
    return Redirect(f"{SIGN_IN_PATH}?{urlencode({'next': scope['path']})}")


async def _send(send: Send, request: PageRequest, answer: HtmlPage | Redirect) -> None:
    if isinstance(answer, Redirect):
        to = answer.to if not answer.note else f"{answer.to}?note={answer.note}"
        location = (b"location", quote(to, safe="/?&=%#:+@~").encode())
        await _send_whole(send, 303, b"", [location, *answer.headers])
        return
    body = render(answer.template, request, answer.values)
    await _send_whole(send, answer.status, body, [(b"content-type", TEXT_HTML), *answer.headers])


async def _send_whole(send: Send, status: int, body: bytes, headers: Headers) -> None:
    length = (b"content-length", str(len(body)).encode())
    await send({"type": "http.response.start", "status": status, "headers": [*HEADERS, length, *headers]})
    await send({"type": "http.response.body", "body": body})


async def _send_while_wanted(receive: Receive, send: Send, download: Download) -> None:
    """Send the file. It is no longer produced once the browser disconnects, which may be after a part of millions."""
    sending = asyncio.ensure_future(_send_file(send, download))
    try:
        await unless_gone(sending, receive)
    finally:
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)


async def _send_file(send: Send, download: Download) -> None:
    name = f'attachment; filename="{download.name}"'.encode()
    kind = [(b"content-type", download.content_type.encode()), (b"content-disposition", name)]
    async with aclosing(download.parts) as parts:
        # Produce the first part before the answer begins, so that a refusal can still be an error page.
        first = await anext(parts, b"")
        await send({"type": "http.response.start", "status": 200, "headers": [*HEADERS, *kind]})
        await send({"type": "http.response.body", "body": first, "more_body": True})
        async for part in parts:
            await send({"type": "http.response.body", "body": part, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


async def _page_not_found(scope: Scope, receive: Receive, send: Send) -> None:
    raise NotFound("There is no page at this address.")
