"""One request as the edge sees it, and the way an answer leaves: in JSON, with its own request id.

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

TOKEN_PATH = "/oauth/token"
API_PATH = "/api/v1"
DOCS_PATH = "/docs"
SIGN_IN_PATH = "/settings/sign-in"
SIGN_IN_LINK_PATH = "/settings/sign-in/link"

_JSON = (b"content-type", b"application/json")
# Secrets and personal data: neither a browser nor anything on the way keeps them.
NO_STORE = (b"cache-control", b"no-store")
_NO_STORE_EVEN_OF_OLD = (b"pragma", b"no-cache")
_CHALLENGES: dict[type[StoplistError], str] = {
    InvalidClient: 'Basic realm="stoplist"',
    InvalidToken: 'Bearer realm="stoplist", error="invalid_token", error_description="{text}"',
    InsufficientScope: 'Bearer realm="stoplist", error="insufficient_scope"',
}


class RequestContext(msgspec.Struct, kw_only=True):
    """What the edge knows of a request, filled in on the way: for the log line, the metrics and the use of a key.

    `client_id` is a known client's; `route` is a path of ours, never what the client typed; `status` is 0 until
    the answer has begun.
    """

    request_id: str
    source_ip: str
    route: str = "unknown"
    client_id: str | None = None
    is_authenticated: bool = False
    error_code: str | None = None
    headers: Headers = []
    status: int = 0


def sign_in_url(base_url: str, link_token: str) -> str:
    """Where a sign-in link leads. The token has no character that a URL would need to escape."""
    return f"{base_url}{SIGN_IN_LINK_PATH}?token={link_token}"


def request_context_of(scope: Scope) -> RequestContext:
    """The exchange that the edge began for this request."""
    context: RequestContext = scope["stoplist.request_context"]
    return context


def header_value(headers: Headers, wanted: bytes) -> bytes:
    """What a header says, all its lines together (RFC 9110 section 5.3); empty where there is none."""
    return b",".join(value for name, value in headers if name == wanted)


async def send_json(send: Send, status: int, value: Any, headers: Headers | None = None) -> None:
    """Answer with a JSON body."""
    await send_body(send, status, msgspec.json.encode(value), headers)


async def send_body(send: Send, status: int, body: bytes, headers: Headers | None = None) -> None:
    """Answer with a body that is JSON already, perhaps in a content coding that `headers` name."""
    length = (b"content-length", str(len(body)).encode())
    await send({"type": "http.response.start", "status": status, "headers": [_JSON, length, *(headers or ())]})
    await send({"type": "http.response.body", "body": body})


async def send_token_json(send: Send, status: int, value: Any, headers: Headers) -> None:
    """Answer from the token endpoint: never to be stored on the way (RFC 6749 section 5.1)."""
    await send_json(send, status, value, [NO_STORE, _NO_STORE_EVEN_OF_OLD, *headers])


async def send_error(scope: Scope, send: Send, error: StoplistError) -> None:
    """Answer with an error, in the envelope of the endpoint that was asked, or as a page where a page was."""
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
    """The body of a refusal by the token endpoint (docs/interface.md section 7.1)."""
    return {"error": ANSWERS[type(error)].oauth_code, "error_description": error.text}


def api_envelope(error: StoplistError) -> dict[str, Any]:
    """The body of a refusal anywhere else (docs/interface.md section D4)."""
    texts = {"message": error.text, "error_description": error.text}
    return {"error": ANSWERS[type(error)].api_code, **texts, **error.extra}


def bad_request_code(path: str) -> str:
    """The code of a request at `path` that cannot even be parsed."""
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
