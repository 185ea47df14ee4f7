"""The requests of the load client as bytes, and the scripts that send them."""

import base64
import itertools
from collections.abc import Callable, Generator, Sequence

import msgspec

from stoplist.web.admin.cookies import NAME as COOKIE

NOTHING = "/api/v1/nothing"
"""A path of the API that does not exist: a request to it costs no more than the bearer check."""
EMAIL = "/api/v1/unsubscribe/email"
_TOKEN_CHARS = 56
_REFRESH_TOKEN_KEY = b'"refresh_token":"'
_HOST = b"Host: localhost\r\n"
_FORM = "Content-Type: application/x-www-form-urlencoded"

Script = Generator[bytes, bytes, None]
"""Yields the requests of one connection, and is sent the body of each answer."""
Scripts = Callable[[int], Script]
"""Returns the script of the n-th connection."""


class Partner(msgspec.Struct, frozen=True):
    """One key, and access tokens that were issued to it."""

    client_id: str
    client_secret: str
    access_tokens: tuple[str, ...] = ()


def repeat(requests: Sequence[bytes]) -> Script:
    """Yield the same few requests again and again."""
    for request in itertools.cycle(requests):  # noqa: UP028 - cycle has no send()
        yield request


def rotated(requests: Sequence[bytes]) -> Scripts:
    """Return a script for each connection, with the requests in a different order."""
    return lambda number: repeat([*requests[number:], *requests[:number]])


def token_requests(partners: Sequence[Partner]) -> Scripts:
    """Return scripts that request tokens, with each partner in turn."""
    return lambda number: repeat([client_credentials(partners[number % len(partners)])])


def refresh_chains(partners: Sequence[Partner]) -> Scripts:
    """Return scripts that request a token, then refresh with that of each answer, or begin again without one."""

    def refresh_chain(number: int) -> Script:
        first = request = client_credentials(partners[number % len(partners)])
        while True:
            body = yield request
            token = body.partition(_REFRESH_TOKEN_KEY)[2][:_TOKEN_CHARS]
            request = refresh(token) if token else first

    return refresh_chain


def reads(partners: Sequence[Partner], target: Callable[[], str] = lambda: NOTHING) -> Scripts:
    """Return scripts for 32 connections, each with other targets and access tokens, so that the whole index is read."""
    tokens = list(itertools.chain(*zip(*(partner.access_tokens for partner in partners), strict=True)))
    requests = [[get(target(), token) for token in tokens[number::32]] for number in range(32)]
    return lambda number: repeat(requests[number])


def client_credentials(partner: Partner) -> bytes:
    """Return a token request with HTTP Basic."""
    basic = base64.b64encode(f"{partner.client_id}:{partner.client_secret}".encode()).decode()
    return _token_request(b"grant_type=client_credentials", f"Authorization: Basic {basic}")


def refresh(token: bytes = b"x" * _TOKEN_CHARS) -> bytes:
    """Return a refresh without credentials; by default with a placeholder, for servers that do not check it."""
    return _token_request(b"grant_type=refresh_token&refresh_token=" + token)


def get(target: str, access_token: str, *headers: str) -> bytes:
    """Return a `GET` of the API."""
    return _request("GET", target, "Accept: application/json", f"Authorization: Bearer {access_token}", *headers)


def post(path: str, access_token: str, body: bytes, *, is_minimal: bool = True) -> bytes:
    """Return a `POST` of JSON, by default for an answer without items."""
    prefer = ("Prefer: return=minimal",) if is_minimal else ()
    headers = (f"Authorization: Bearer {access_token}", "Content-Type: application/json", *prefer)
    return _request("POST", path, *headers, body=body)


def page(target: str, session_token: str, form: bytes | None = None) -> bytes:
    """Return a request by a signed-in browser: a `GET`, or the `POST` of a form from one of our pages."""
    headers = ["Accept: text/html", "User-Agent: Mozilla/5.0 (bench)", f"Cookie: {COOKIE}={session_token}"]
    if form is None:
        return _request("GET", target, *headers)
    return _request("POST", target, *headers, "Sec-Fetch-Site: same-origin", _FORM, body=form)


def one_click(path: str) -> bytes:
    """Return what a mailbox provider posts to an opt-out link."""
    return _request("POST", path, _FORM, body=b"List-Unsubscribe=One-Click")


def open_link(path: str) -> bytes:
    """Return the request of somebody who opens an opt-out link."""
    return _request("GET", path, "Accept: text/html", "Accept-Language: de")


def health() -> bytes:
    """Return a request that a server answers as soon as it is up."""
    return _request("GET", "/healthz")


def forwarded(request: bytes) -> bytes:
    """Return the request as a proxy forwards it that received it over TLS."""
    return request.replace(_HOST, _HOST + b"X-Forwarded-For: 192.0.2.1\r\nX-Forwarded-Proto: https\r\n", 1)


def _token_request(form: bytes, *headers: str) -> bytes:
    return _request("POST", "/oauth/token", "Accept: application/json", *headers, _FORM, body=form)


def _request(method: str, target: str, *headers: str, body: bytes = b"") -> bytes:
    length = [f"Content-Length: {len(body)}"] if body else []
    return "\r\n".join([f"{method} {target} HTTP/1.1", "Host: localhost", *headers, *length, "\r\n"]).encode() + body
