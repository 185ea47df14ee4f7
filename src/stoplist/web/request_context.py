"""The context of one request, and the functions that send an answer or an error as JSON.

Source: docs/interface.md sections 7, D2 (Headers) and D4.
"""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import msgspec

from stoplist.errors import (
    ANSWERS,
    BadRequest,
    InsufficientScope,
    InvalidClient,
    InvalidToken,
    MethodNotAllowed,
    StoplistError,
)

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
AsgiApp = Callable[[Scope, Receive, Send], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]

WHOLE_ANSWER = "stoplist.response.whole"
"""The type of a message that is a whole answer (`status`, `headers`, `body`): an ASGI extension of our server."""

BODY_PROGRESS = "stoplist.request.progress"
"""The type of a message by which the application gives a long body more time: an ASGI extension of our server."""

TOKEN_PATH = "/oauth/token"
API_PATH = "/api/v1"
FAVICON_PATH = "/favicon.ico"
DOCS_PATH = "/docs"
LINKS_PATH = "/u/"
SIGN_IN_PATH = "/settings/sign-in"
SIGN_IN_LINK_PATH = "/settings/sign-in/link"
INVITATION_PATH = "/settings/sign-in/invitation"

_JSON = (b"content-type", b"application/json")
# For secrets and personal data: neither a browser nor a proxy may store them.
NO_STORE = (b"cache-control", b"no-store")
_PRAGMA_NO_CACHE = (b"pragma", b"no-cache")
_CHALLENGES: dict[type[StoplistError], str] = {
    InvalidClient: 'Basic realm="stoplist"',
    InvalidToken: 'Bearer realm="stoplist", error="invalid_token", error_description="{text}"',
    InsufficientScope: 'Bearer realm="stoplist", error="insufficient_scope"',
}


class RequestContext(msgspec.Struct, kw_only=True):
    """The facts of a request for its log line, the metrics and the usage of its key, filled in on the way.

    `client_id` is that of a known client, `person` the e-mail address of whoever is signed in; `route` is one of our
    paths, never text of the client; `status` is 0 until the answer has begun. `headers` are added to an error.
    `held_ns` is how long the request waited for a change (docs/interface.md section D14).
    """

    request_id: str
    source_ip: str
    route: str = "unknown"
    client_id: str | None = None
    person: str | None = None
    is_authenticated: bool = False
    held_ns: int = 0
    error_code: str | None = None
    headers: Headers = []
    status: int = 0


def sign_in_url(base_url: str, link_token: str) -> str:
    """Return the URL of a sign-in link. The token has no character that would have to be escaped."""
    return f"{base_url}{SIGN_IN_LINK_PATH}?token={link_token}"


def request_context_of(scope: Scope) -> RequestContext:
    """Return the context that the middleware created for this request."""
    context: RequestContext = scope["stoplist.request_context"]
    return context


def header_value(headers: Headers, wanted: bytes) -> bytes:
    """Return the value of a header, its lines joined with commas (RFC 9110 section 5.3); empty if there is none."""
    return b",".join(value for name, value in headers if name == wanted)


async def send_json(send: Send, status: int, value: Any, headers: Headers | None = None) -> None:
    """Send an answer with a JSON body."""
    await send_body(send, status, msgspec.json.encode(value), headers)


async def send_body(send: Send, status: int, body: bytes, headers: Headers | None = None) -> None:
    """Send an answer whose body is JSON already, perhaps in a content coding that `headers` name."""
    length = (b"content-length", str(len(body)).encode())
    answer = {"type": WHOLE_ANSWER, "status": status, "headers": [_JSON, length, *(headers or ())], "body": body}
    await send(answer)


async def send_token_json(send: Send, status: int, value: Any, headers: Headers) -> None:
    """Send an answer of the token endpoint, which no cache may store (RFC 6749 section 5.1)."""
    await send_json(send, status, value, [NO_STORE, _PRAGMA_NO_CACHE, *headers])


async def send_error(scope: Scope, send: Send, error: StoplistError) -> None:
    """Send an error in the envelope of its endpoint, or as a page if a page was requested."""
    context = request_context_of(scope)
    status = ANSWERS[type(error)].status
    headers = [*_headers_of(error), *context.headers]
    if scope["path"] == TOKEN_PATH:
        envelope = oauth_envelope(error)
        context.error_code = envelope["error"]
        await send_token_json(send, status, envelope, headers)
        return
    envelope = api_envelope(error)
    context.error_code = envelope["error"]
    page = scope.get("stoplist.error_page")
    if page is not None:
        await page(send, error, headers)
        return
    await send_json(send, status, envelope, [NO_STORE, *headers])


def oauth_envelope(error: StoplistError) -> dict[str, Any]:
    """Return the body of an error of the token endpoint (docs/interface.md section 7.1)."""
    return {"error": ANSWERS[type(error)].oauth_code, "error_description": error.text}


def api_envelope(error: StoplistError) -> dict[str, Any]:
    """Return the body of an error anywhere else (docs/interface.md section D4)."""
    texts = {"message": error.text, "error_description": error.text}
    return {"error": ANSWERS[type(error)].api_code, **texts, **error.extra}


def bad_request_code(path: str) -> str:
    """Return the error code for a request at `path` that cannot be parsed."""
    answer = ANSWERS[BadRequest]
    return answer.oauth_code if path == TOKEN_PATH else answer.api_code


def _headers_of(error: StoplistError) -> Headers:
    headers: Headers = []
    challenge = _CHALLENGES.get(type(error))
    if challenge is not None:
        headers.append((b"www-authenticate", challenge.format(text=error.text).encode()))
    retry_after_s = getattr(error, "retry_after_s", None)
    if retry_after_s is not None:
        headers.append((b"retry-after", str(retry_after_s).encode()))
    if isinstance(error, MethodNotAllowed):
        headers.append((b"allow", error.allow.encode()))
    return headers
