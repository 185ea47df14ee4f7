"""The requests of the load client: one script for each kind of work, prepared beforehand."""

import base64
import itertools
from collections.abc import Sequence

import msgspec

TOKEN_CHARS = 56
_NO_TOKEN = b"x" * TOKEN_CHARS
_REFRESH_TOKEN_KEY = b'"refresh_token":"'


class Partner(msgspec.Struct, frozen=True):
    """One key, and access tokens that were issued to it."""

    client_id: str
    client_secret: str
    access_tokens: tuple[str, ...] = ()


class Repeat:
    """Sends the same few requests again and again."""

    def __init__(self, requests: Sequence[bytes], status: bytes = b"200") -> None:
        self.status = status
        self._requests = itertools.cycle(requests)

    def first(self) -> bytes:
        return next(self._requests)

    def next(self, body: bytes) -> bytes:
        return next(self._requests)


class RefreshChain:
    """Begins with `client_credentials`, then sends the refresh token of each answer."""

    status = b"200"

    def __init__(self, partner: Partner) -> None:
        self._first_request = client_credentials(partner)

    def first(self) -> bytes:
        return self._first_request

    def next(self, body: bytes) -> bytes:
        at = body.find(_REFRESH_TOKEN_KEY) + len(_REFRESH_TOKEN_KEY)
        if at < len(_REFRESH_TOKEN_KEY):
            return self._first_request
        return refresh(body[at : at + TOKEN_CHARS])


def client_credentials(partner: Partner) -> bytes:
    """Return a token request with HTTP Basic."""
    basic = base64.b64encode(f"{partner.client_id}:{partner.client_secret}".encode())
    return _form(b"grant_type=client_credentials", b"Authorization: Basic " + basic + b"\r\n")


def refresh(token: bytes = _NO_TOKEN) -> bytes:
    """Return a refresh without credentials; by default with a placeholder, for servers that do not check it."""
    return _form(b"grant_type=refresh_token&refresh_token=" + token)


def read(access_token: str) -> bytes:
    """Return a request to a path of the API that does not exist, which costs no more than the bearer check."""
    return get("/api/v1/nothing", access_token)


def get(target: str, access_token: str) -> bytes:
    """Return a `GET` of the API with a bearer token."""
    return (
        b"GET " + target.encode() + b" HTTP/1.1\r\nHost: localhost\r\nAccept: application/json\r\n"
        b"Authorization: Bearer " + access_token.encode() + b"\r\n\r\n"
    )


def post(target: str, access_token: str, body: bytes) -> bytes:
    """Return a `POST` of JSON with a bearer token, for an answer without items."""
    return (
        b"POST " + target.encode() + b" HTTP/1.1\r\nHost: localhost\r\nPrefer: return=minimal\r\n"
        b"Authorization: Bearer " + access_token.encode() + b"\r\n"
        b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    )


def page(target: str, cookie: str) -> bytes:
    """Return a `GET` by a signed-in browser."""
    return _browser_head("GET", target, cookie) + b"\r\n"


def form(target: str, cookie: str, fields: bytes) -> bytes:
    """Return a form that a signed-in browser sends from one of our pages."""
    return (
        _browser_head("POST", target, cookie)
        + b"Sec-Fetch-Site: same-origin\r\n"
        + b"Content-Type: application/x-www-form-urlencoded\r\nContent-Length: %d\r\n\r\n" % len(fields)
        + fields
    )


def health() -> bytes:
    """Return a request that a server answers as soon as it is up."""
    return b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"


def _form(fields: bytes, header: bytes = b"") -> bytes:
    return (
        b"POST /oauth/token HTTP/1.1\r\nHost: localhost\r\nAccept: application/json\r\n"
        + header
        + b"Content-Type: application/x-www-form-urlencoded\r\nContent-Length: %d\r\n\r\n" % len(fields)
        + fields
    )


def _browser_head(method: str, target: str, cookie: str) -> bytes:
    return (
        f"{method} {target} HTTP/1.1\r\nHost: localhost\r\nAccept: text/html\r\n"
        f"User-Agent: Mozilla/5.0 (bench)\r\nCookie: {cookie}\r\n"
    ).encode()
