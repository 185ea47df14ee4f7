"""The token endpoint over HTTP: each refusal of docs/interface.md section D2 with its status, code and headers."""

import base64
import re
from collections.abc import Callable
from ipaddress import ip_network
from typing import Any, NamedTuple
from urllib.parse import quote, unquote_plus, unquote_to_bytes, urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoplist import ids
from stoplist.oauth import ceilings, credentials
from tests.builders import contents, sql
from tests.deployment import SharedDatabase
from tests.fakes import FakeClock
from tests.keys import CLIENT_CREDENTIALS, Key, basic, basic_of
from tests.web.application import FORM, PARTNER_IP, PROXY_IP, STRANGER_IP, Answer, Application, Headers

pytestmark = pytest.mark.interpreter

TOKEN = "/oauth/token"
RT = {"grant_type": "refresh_token"}
# RFC 6749 section 5.2: the characters of a description.
DESCRIPTION = re.compile(r"[\x20\x21\x23-\x5b\x5d-\x7e]+")
ACCESS, REFRESH = (re.compile(rf"svc_{kind}_[0-9A-Za-z]{{49}}") for kind in ("at", "rt"))
UNKNOWN_ID = ids.new_id(ids.CLIENT_ID)
MARKER = "Zq9Xv7"
FORM_BYTES = (FORM[0], FORM[1].encode())


def check_refused(answer: Answer, status: int, error: str) -> None:
    """Check a refusal, with the headers of every answer of the token endpoint and those of its status."""
    assert (answer.status, answer.error) == (status, error)
    body = answer.json()
    assert body.keys() == {"error", "error_description"}
    assert DESCRIPTION.fullmatch(body["error_description"])
    assert answer.header("content-type") == "application/json"
    assert answer.header("content-length") == str(len(answer.body))
    assert (answer.header("cache-control"), answer.header("pragma")) == ("no-store", "no-cache")
    assert re.fullmatch("[0-9a-f]{24}", answer.header("x-request-id") or "")
    assert answer.header("www-authenticate") == ('Basic realm="stoplist"' if status == 401 else None)
    assert answer.header("allow") == ("POST" if status == 405 else None)
    assert (answer.header("retry-after") is not None) == (status in (429, 503))


def check_issued(answer: Answer) -> dict[str, Any]:
    """Check a success as section 2.2 describes it, and return its fields."""
    assert answer.status == 200, answer.body
    body: dict[str, Any] = answer.json()
    assert ACCESS.fullmatch(body.pop("access_token"))
    assert REFRESH.fullmatch(body.pop("refresh_token"))
    assert body == {"token_type": "Bearer", "expires_in": 900, "refresh_expires_in": 2_592_000}
    assert answer.header("content-type") == "application/json"
    assert (answer.header("cache-control"), answer.header("pragma")) == ("no-store", "no-cache")
    fields: dict[str, Any] = answer.json()
    return fields


def log_of(app: Application, key: Key, *, peer: str = PARTNER_IP) -> str:
    """Return which log holds the one counted request, or `none`. Call it last: it counts up to three more."""
    if not app.limiter.log_count:
        return "none"
    big = 1_000
    authenticated = app.run(app.limiter.token_authenticated(key.client_id, "nowhere", limit=big))
    if authenticated.remaining == big - 2:
        return "authenticated"
    failed = app.run(app.limiter.token_failed(key.client_id, peer, limit=big))
    if failed.remaining == big - 3:
        return "failed"
    unknown = app.run(app.limiter.token_unknown(peer))
    assert unknown.remaining == 298
    return "unknown"


# Refusals before client authentication. A case is a body, or headers, sent with the right credentials.

PARAMETERS: dict[str, bytes] = {
    "no body": b"",
    "no grant_type": b"scope=x",
    "an empty grant_type": b"grant_type=",
    "grant_type without =": b"grant_type",
    "grant_type twice": b"grant_type=client_credentials&grant_type=client_credentials",
    "grant_type twice, once empty": b"grant_type=client_credentials&grant_type=",
    "client_id twice": b"grant_type=client_credentials&client_id=a&client_id=a",
    "client_id twice, both empty": b"grant_type=client_credentials&client_id=&client_id=",
    "client_secret twice": b"grant_type=client_credentials&client_secret=&client_secret=",
    "refresh_token twice": b"grant_type=refresh_token&refresh_token=a&refresh_token=b",
    "a known parameter twice, once in disguise": b"grant_type=client_credentials&%67rant_type=client_credentials",
    "no refresh_token": b"grant_type=refresh_token",
    "an empty refresh_token": b"grant_type=refresh_token&refresh_token=",
    "NUL": b"grant_type=client_credentials&client_id=a\0",
    "NUL, encoded": b"grant_type=client_credentials&client_id=a%00",
    "NUL in an unknown parameter": b"grant_type=client_credentials&scope=%00",
    "NUL in a name": b"grant_type=client_credentials&%00=x",
    "bytes that are no text": b"grant_type=client_credentials&client_id=\xff",
    "bytes that are no text, encoded": b"grant_type=client_credentials&client_id=%ff",
    "no text in an unknown parameter": b"grant_type=client_credentials&scope=%c3%28",
    "half a surrogate pair": b"grant_type=client_credentials&scope=%ed%a0%80",
    "two secrets": b"grant_type=client_credentials&client_secret=x",
    "two secrets, the token beside them": b"grant_type=refresh_token&refresh_token=x&client_secret=x",
    "another client_id than in the header": b"grant_type=client_credentials&client_id=" + UNKNOWN_ID.encode(),
    "one byte above 8 KiB": b"grant_type=client_credentials&x=".ljust(8193, b"x"),
}


@pytest.mark.parametrize("body", PARAMETERS.values(), ids=PARAMETERS)
def test_malformed_parameters_are_refused_and_count_nowhere(app: Application, key: Key, body: bytes) -> None:
    """400 `invalid_request` despite the right credentials; nothing is issued."""
    before = app.stored_pairs()
    check_refused(app.ask_token(body, key.basic), 400, "invalid_request")
    assert (app.limiter.log_count, app.stored_pairs()) == (0, before)


@pytest.mark.parametrize(
    "grant_type", ["password", "authorization_code", "CLIENT_CREDENTIALS", " client_credentials", "x"]
)
def test_other_grant_types_are_unsupported_and_count_nowhere(app: Application, key: Key, grant_type: str) -> None:
    """400 `unsupported_grant_type`, with the right credentials or without."""
    for headers in ([key.basic], []):
        check_refused(app.ask_token({"grant_type": grant_type}, *headers), 400, "unsupported_grant_type")
    assert app.limiter.log_count == 0


HEADERS: dict[str, Headers] = {
    "no content type": [],
    "an empty content type": [("content-type", "")],
    "text": [("content-type", "text/plain")],
    "JSON": [("content-type", "application/json")],
    "several parts": [("content-type", "multipart/form-data; boundary=x")],
    "a longer name": [("content-type", "application/x-www-form-urlencoded-x")],
    "the right type as a parameter": [("content-type", "text/plain; application/x-www-form-urlencoded")],
    "two content types": [FORM, FORM],
    "gzip": [FORM, ("content-encoding", "gzip")],
    "identity": [FORM, ("content-encoding", "identity")],
    "an empty encoding": [FORM, ("content-encoding", "")],
    "two Authorization headers": [FORM, basic("a", "b")],
    "a body announced above 8 KiB": [FORM, ("content-length", "8193")],
    "a body announced beyond all bounds": [FORM, ("content-length", "9" * 30)],
}


@pytest.mark.parametrize("headers", HEADERS.values(), ids=HEADERS)
def test_malformed_heads_are_refused_and_count_nowhere(app: Application, key: Key, headers: Headers) -> None:
    """400 `invalid_request` for everything but one plain form with at most one `Authorization`."""
    answer = app.request("POST", TOKEN, headers=[*headers, key.basic], body=b"grant_type=client_credentials")
    check_refused(answer, 400, "invalid_request")
    assert app.limiter.log_count == 0


@pytest.mark.parametrize("query", ["?grant_type=client_credentials", "?x", "?="])
def test_parameters_in_the_query_string_are_refused(app: Application, key: Key, query: str) -> None:
    """400 `invalid_request` for any of them: they would end up in the logs of proxies."""
    answer = app.request("POST", TOKEN + query, headers=[FORM, key.basic], body=b"grant_type=client_credentials")
    check_refused(answer, 400, "invalid_request")


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "post"])
def test_every_method_but_post_is_refused(app: Application, key: Key, method: str) -> None:
    """405 `invalid_request` with `Allow: POST`, also for a request that is otherwise right."""
    answer = app.request(method, TOKEN, headers=[FORM, key.basic], body=b"grant_type=client_credentials")
    check_refused(answer, 405, "invalid_request")
    assert app.limiter.log_count == 0


# Requests with two faults at once, of which the answer names the first.

WRONG_KEY = basic(UNKNOWN_ID, "x")
ORDER: dict[str, tuple[dict[str, Any], int, str]] = {
    "HTTPS, then method": ({"method": "GET", "scheme": "http"}, 400, "invalid_request"),
    "method, then query": ({"method": "PUT", "target": f"{TOKEN}?x=y"}, 405, "invalid_request"),
    "method, then content type": ({"method": "PUT", "headers": []}, 405, "invalid_request"),
    "query, then grant type": ({"target": f"{TOKEN}?x=y", "body": b"grant_type=x"}, 400, "invalid_request"),
    "content type, then grant type": ({"headers": [], "body": b"grant_type=x"}, 400, "invalid_request"),
    "size, then grant type": ({"body": b"grant_type=x&y=".ljust(9000, b"y")}, 400, "invalid_request"),
    "repetition, then grant type": ({"body": b"grant_type=x&grant_type=x"}, 400, "invalid_request"),
    "NUL, then grant type": ({"body": b"grant_type=x&y=%00"}, 400, "invalid_request"),
    "grant type, then two secrets": (
        {"headers": [FORM, WRONG_KEY], "body": b"grant_type=x&client_secret=x"},
        400,
        "unsupported_grant_type",
    ),
    "refresh_token, then credentials": (
        {"headers": [FORM, WRONG_KEY], "body": b"grant_type=refresh_token"},
        400,
        "invalid_request",
    ),
    "two secrets, then a malformed header": (
        {"headers": [FORM, ("authorization", "Basic x")], "body": b"grant_type=client_credentials&client_secret=x"},
        400,
        "invalid_request",
    ),
    "another scheme, whatever the body holds": (
        {"headers": [FORM, ("authorization", "Bearer x")], "body": b"grant_type=client_credentials&client_secret=x"},
        401,
        "invalid_client",
    ),
    "client_id, then credentials": (
        {"headers": [FORM, WRONG_KEY], "body": b"grant_type=client_credentials&client_id=x"},
        400,
        "invalid_request",
    ),
    "credentials, then the refresh token": (
        {"headers": [FORM, WRONG_KEY], "body": b"grant_type=refresh_token&refresh_token=x"},
        401,
        "invalid_client",
    ),
}


@pytest.mark.parametrize(("request_", "status", "error"), ORDER.values(), ids=ORDER)
def test_of_two_faults_the_earlier_one_is_named(
    app: Application, request_: dict[str, Any], status: int, error: str
) -> None:
    """HTTPS, method, query, head, size, text, grant type, what the grant needs, client authentication, token."""
    values = {"method": "POST", "target": TOKEN, "headers": [FORM], "body": b"grant_type=client_credentials"}
    check_refused(app.request(**(values | request_)), status, error)


# Client authentication

ACCEPTED: dict[str, Callable[[Key], tuple[str, Headers]]] = {
    "Basic": lambda key: (urlencode(CLIENT_CREDENTIALS), [FORM, key.basic]),
    "body": lambda key: (urlencode(CLIENT_CREDENTIALS | key.in_body), [FORM]),
    "a charset": lambda key: (
        urlencode(CLIENT_CREDENTIALS),
        [("content-type", f"{FORM[1]}; charset=UTF-8"), key.basic],
    ),
    "a charset, spelt otherwise": lambda key: (
        urlencode(CLIENT_CREDENTIALS),
        [("content-type", "Application/X-WWW-Form-Urlencoded ;charset=utf-8"), key.basic],
    ),
    "basic in lower case": lambda key: (urlencode(CLIENT_CREDENTIALS), [FORM, basic(*key, scheme="basic")]),
    "BASIC in upper case": lambda key: (urlencode(CLIENT_CREDENTIALS), [FORM, basic(*key, scheme="BASIC")]),
    "spaces after Basic": lambda key: (urlencode(CLIENT_CREDENTIALS), [FORM, basic(*key, scheme="Basic   ")]),
    "Basic, form-encoded": lambda key: (
        urlencode(CLIENT_CREDENTIALS),
        [FORM, basic(key.client_id.replace("_", "%5F"), key.client_secret.replace("_", "%5f"))],
    ),
    "the same client_id beside Basic": lambda key: (
        urlencode(CLIENT_CREDENTIALS | {"client_id": key.client_id}),
        [FORM, key.basic],
    ),
    "an empty client_secret beside Basic": lambda key: (
        urlencode(CLIENT_CREDENTIALS | {"client_secret": ""}),
        [FORM, key.basic],
    ),
    "an empty client_id beside Basic": lambda key: (
        urlencode(CLIENT_CREDENTIALS | {"client_id": ""}),
        [FORM, key.basic],
    ),
    "a refresh_token that nobody asked for": lambda key: (
        urlencode(CLIENT_CREDENTIALS | {"refresh_token": "x"}),
        [FORM, key.basic],
    ),
    "unknown parameters": lambda key: (
        urlencode(CLIENT_CREDENTIALS | {"scope": "read", "audience": ""}),
        [FORM, key.basic],
    ),
    "an unknown parameter twice": lambda key: (urlencode(CLIENT_CREDENTIALS) + "&scope=a&scope=b", [FORM, key.basic]),
    "encoded names and values": lambda key: ("%67rant_type=client%5Fcredentials", [FORM, key.basic]),
    "stray separators": lambda key: (f"&{urlencode(CLIENT_CREDENTIALS)}&&", [FORM, key.basic]),
    "a per cent sign that encodes nothing": lambda key: (
        f"{urlencode(CLIENT_CREDENTIALS)}&scope=100%",
        [FORM, key.basic],
    ),
    "8 KiB": lambda key: (urlencode(CLIENT_CREDENTIALS | {"x": ""}).ljust(8192, "x"), [FORM, key.basic]),
    "other headers": lambda key: (
        urlencode(CLIENT_CREDENTIALS),
        [FORM, key.basic, ("cookie", "a=b"), ("accept-encoding", "gzip")],
    ),
}


@pytest.mark.parametrize("request_of", ACCEPTED.values(), ids=ACCEPTED)
def test_every_way_to_authenticate_gets_a_pair(
    app: Application, key: Key, request_of: Callable[[Key], tuple[str, Headers]]
) -> None:
    """200 with the five fields; counted in the log of authenticated requests, as the headers say."""
    body, headers = request_of(key)
    answer = app.request("POST", TOKEN, headers=headers, body=body.encode())
    check_issued(answer)
    assert answer.header("ratelimit-policy") == '"token";q=10;w=60'
    assert answer.header("ratelimit") == '"token";r=9;t=60'
    assert log_of(app, key) == "authenticated"


Credentials = tuple[dict[str, str], list[tuple[str, bytes]]]

# Form fields and headers that do not authenticate the client, and the log that counts the request.
UNAUTHENTICATED: dict[str, tuple[Callable[[Key], Credentials], str]] = {
    "nothing": (lambda key: ({}, []), "unknown"),
    "the client_id alone": (lambda key: ({"client_id": key.client_id}, []), "failed"),
    "the secret alone": (lambda key: ({"client_secret": key.client_secret}, []), "unknown"),
    "a wrong secret": (lambda key: ({}, [basic(key.client_id, key.client_secret[:-1])]), "failed"),
    "a wrong secret in the body": (lambda key: ({"client_id": key.client_id, "client_secret": "x"}, []), "failed"),
    "a secret that is no ASCII": (lambda key: ({}, [basic(key.client_id, "sécret")]), "failed"),
    "an empty secret": (lambda key: ({}, [basic(key.client_id, "")]), "failed"),
    "an empty secret in the body": (lambda key: ({"client_id": key.client_id, "client_secret": ""}, []), "failed"),
    "an unknown id": (lambda key: ({}, [basic(UNKNOWN_ID, key.client_secret)]), "unknown"),
    "an id of another form": (lambda key: ({}, [basic("x" * 5000, key.client_secret)]), "unknown"),
    "an empty id": (lambda key: ({}, [basic("", key.client_secret)]), "unknown"),
    "an id in another case": (lambda key: ({}, [basic(key.client_id.swapcase(), key.client_secret)]), "unknown"),
    "Bearer": (lambda key: ({}, [("authorization", f"Bearer {key.client_secret}".encode())]), "unknown"),
    "Digest": (lambda key: ({}, [("authorization", b"Digest username=x")]), "unknown"),
    "Bearer, with the client_id": (
        lambda key: ({"client_id": key.client_id}, [("authorization", b"Bearer x")]),
        "failed",
    ),
    "an empty header": (lambda key: ({}, [("authorization", b"")]), "unknown"),
    "Basic and nothing": (lambda key: ({}, [("authorization", b"Basic")]), "unknown"),
    "no base64": (lambda key: ({}, [("authorization", b"Basic ####")]), "unknown"),
    "base64 without its padding": (lambda key: ({}, [_without_padding(key)]), "unknown"),
    "base64 with junk in it": (lambda key: ({}, [(key.basic[0], key.basic[1] + b"!")]), "unknown"),
    "base64 in another alphabet": (lambda key: ({}, [("authorization", b"Basic _-8=")]), "unknown"),
    "no colon": (lambda key: ({}, [basic_of(key.client_id.encode())]), "unknown"),
    "a colon in disguise": (lambda key: ({}, [basic_of(f"{key.client_id}%3A{key.client_secret}".encode())]), "unknown"),
    "no text": (lambda key: ({}, [basic_of(f"{key.client_id}:".encode() + b"\xff")]), "unknown"),
    "no text, encoded": (lambda key: ({}, [basic_of(f"{key.client_id}:%ff".encode())]), "unknown"),
    "NUL": (lambda key: ({}, [basic_of(f"{key.client_id}:{key.client_secret}\0".encode())]), "unknown"),
    "NUL, with the client_id": (
        lambda key: ({"client_id": key.client_id}, [basic_of(f"{key.client_id}:\0".encode())]),
        "failed",
    ),
    "bytes beyond all": (lambda key: ({}, [("authorization", b"Basic \x80\xff")]), "unknown"),
}


def _without_padding(key: Key) -> tuple[str, bytes]:
    padded = next(
        header for pad in ("", "x", "xx") if (header := basic(key.client_id, key.client_secret + pad))[1][-1:] == b"="
    )
    return padded[0], padded[1].rstrip(b"=")


@pytest.mark.parametrize(
    "form", [CLIENT_CREDENTIALS, RT | {"refresh_token": "x"}], ids=["client_credentials", "refresh_token"]
)
@pytest.mark.parametrize(("presented", "log"), UNAUTHENTICATED.values(), ids=UNAUTHENTICATED)
def test_a_request_without_authentication_is_refused(
    app: Application, key: Key, presented: Callable[[Key], Credentials], log: str, form: dict[str, str]
) -> None:
    """401 `invalid_client`, counted by the client if known. A refresh needs no credentials, but none may be wrong."""
    fields, headers = presented(key)
    answer = app.ask_token(form | fields, *headers)
    if form is CLIENT_CREDENTIALS or headers or fields.get("client_secret"):
        check_refused(answer, 401, "invalid_client")
    else:
        check_refused(answer, 400, "invalid_grant")
    assert answer.header("ratelimit") is None
    assert log_of(app, key) == log


def test_an_inactive_credential_is_refused(app: Application, key: Key) -> None:
    """401 from the moment of the deactivation, also with the right secret; counted as a failure."""
    pair = app.pair(key)
    app.administer(credentials.deactivate_credential, client_id=key.client_id)
    app = Application(app.run, app.database, app.clock)
    check_refused(app.issue(key), 401, "invalid_client")
    assert log_of(app, key) == "failed"
    check_refused(app.refresh(pair["refresh_token"], key.basic), 401, "invalid_client")
    check_refused(app.refresh(pair["refresh_token"]), 400, "invalid_grant")


def test_unknown_wrong_and_inactive_look_the_same(app: Application, key: Key) -> None:
    """The answers are identical but for the request id: a stranger learns nothing from them."""
    inactive = app.new_key()
    app.administer(credentials.deactivate_credential, client_id=inactive.client_id)
    answers = [
        app.ask_token(form, header)
        for header in (basic(UNKNOWN_ID, key.client_secret), basic(key.client_id, "x"), inactive.basic)
        for form in (CLIENT_CREDENTIALS, RT | {"refresh_token": "x"})
    ]
    looks = {
        (answer.status, answer.body, *(header for header in answer.headers if header[0] != "x-request-id"))
        for answer in answers
    }
    assert len(looks) == 1


# Refresh tokens


def test_a_refresh_needs_no_secret_and_gives_a_new_pair(app: Application, key: Key) -> None:
    """Both tokens are new; the previous access token stays valid, the refresh token does not."""
    first = app.pair(key)
    second = check_issued(app.refresh(first["refresh_token"]))
    assert not set(first.values()) & {second["access_token"], second["refresh_token"]}
    assert app.call(first["access_token"]).status == app.call(second["access_token"]).status == 200


def test_a_refresh_may_come_with_the_right_credentials(app: Application, key: Key) -> None:
    """They are in the header, in the body, or a client_id only: many libraries send them anyway."""
    token = app.pair(key)["refresh_token"]
    for headers, fields in (([key.basic], {}), ([], key.in_body), ([], {"client_id": key.client_id})):
        token = check_issued(app.refresh(token, *headers, **fields))["refresh_token"]


def grant_error(answer: Answer) -> str:
    """Check that the answer is `invalid_grant`, and return its description."""
    check_refused(answer, 400, "invalid_grant")
    text: str = answer.json()["error_description"]
    return text


def test_the_error_says_what_is_wrong_with_a_refresh_token(app: Application, key: Key, clock: FakeClock) -> None:
    """400 `invalid_grant`: unknown, another client's, used already, revoked, or expired."""
    other = app.new_key()
    pair, others = app.pair(key), app.pair(other)
    assert "unknown" in grant_error(app.refresh(ids.new_secret(ids.REFRESH_TOKEN)))
    assert "unknown" in grant_error(app.refresh(pair["access_token"]))
    assert "unknown" in grant_error(app.refresh(pair["refresh_token"][:-1] + "!"))
    assert "another client" in grant_error(app.refresh(others["refresh_token"], key.basic))
    assert "another client" in grant_error(app.refresh(others["refresh_token"], client_id=key.client_id))
    check_issued(app.refresh(pair["refresh_token"]))
    used = grant_error(app.refresh(pair["refresh_token"]))
    assert all(word in used for word in ("used already", "revoked", "client_credentials"))
    assert "revoked" in grant_error(app.refresh(pair["refresh_token"]))
    clock.advance(2_592_000)
    assert "expired" in grant_error(app.refresh(others["refresh_token"]))


def test_reuse_revokes_every_token_of_the_client(app: Application, key: Key) -> None:
    """Access and refresh tokens of all its sessions; those of another client stay valid."""
    other = app.new_key()
    others, session = app.pair(other), app.pair(key)
    first = app.pair(key)
    second = check_issued(app.refresh(first["refresh_token"]))
    grant_error(app.refresh(first["refresh_token"]))
    for pair in (session, first, second):
        assert app.call(pair["access_token"]).status == 401
        assert "revoked" in grant_error(app.refresh(pair["refresh_token"]))
    assert app.call(others["access_token"]).status == 200
    check_issued(app.issue(key))


def test_wrong_credentials_do_not_use_the_refresh_token(app: Application, key: Key) -> None:
    """It is neither consumed if active, nor an alarm if rotated."""
    first = app.pair(key)
    check_refused(app.refresh(first["refresh_token"], basic(key.client_id, "x")), 401, "invalid_client")
    second = check_issued(app.refresh(first["refresh_token"]))
    check_refused(app.refresh(first["refresh_token"], basic(key.client_id, "x")), 401, "invalid_client")
    assert app.call(second["access_token"]).status == 200


def test_another_clients_token_is_not_consumed(app: Application, key: Key) -> None:
    """Presented with the credentials of another client, it stays valid for its own."""
    other = app.new_key()
    token = app.pair(key)["refresh_token"]
    grant_error(app.refresh(token, other.basic))
    grant_error(app.refresh(token, client_id=other.client_id))
    check_issued(app.refresh(token))


def test_an_access_token_lives_900_s_and_a_refresh_token_30_days(app: Application, key: Key, clock: FakeClock) -> None:
    """Each is valid a millisecond before, and invalid at the end."""
    pair = app.pair(key)
    clock.advance(899.999)
    assert app.call(pair["access_token"]).status == 200
    clock.advance(0.001)
    assert app.call(pair["access_token"]).status == 401
    clock.advance(2_592_000 - 900 - 0.001)
    last = check_issued(app.refresh(pair["refresh_token"]))
    clock.advance(2_592_000)
    assert "expired" in grant_error(app.refresh(last["refresh_token"]))


def test_tokens_and_secrets_are_stored_as_hashes_only(app: Application, key: Key) -> None:
    pair = app.pair(key)
    for text in (key.client_secret, pair["access_token"], pair["refresh_token"]):
        stored = ids.hash_secret(text)
        assert app.value(
            "SELECT 1 AS found FROM token_pairs, clients WHERE :stored IN (access_hash, refresh_hash, secret_hash)",
            stored=stored,
        )
    tables = app.run(app.database.all(sql("SELECT name FROM sqlite_master WHERE type = 'table'")))
    everything = repr(app.run(contents(app.database, *(row["name"] for row in tables))))
    assert key.client_id in everything
    assert not any(text in everything for text in (key.client_secret, pair["access_token"], pair["refresh_token"]))


# Input is never repeated

ECHOES: dict[str, dict[str, Any]] = {
    "grant_type": {"body": f"grant_type={MARKER}".encode()},
    "refresh_token": {"body": f"grant_type=refresh_token&refresh_token={MARKER}".encode()},
    "client_id": {"body": f"grant_type=client_credentials&client_id={MARKER}&client_secret=x".encode()},
    "client_secret": {"body": f"grant_type=client_credentials&client_id={UNKNOWN_ID}&client_secret={MARKER}".encode()},
    "a name, twice": {"body": f"grant_type=client_credentials&{MARKER}=1&{MARKER}=2".encode()},
    "bytes that are no text": {"body": f"grant_type={MARKER}".encode() + b"\xff"},
    "a long body": {"body": (MARKER * 2000).encode()},
    "the query": {"target": f"{TOKEN}?{MARKER}"},
    "the content type": {"headers": [("content-type", f"text/{MARKER}")]},
    "the encoding": {"headers": [FORM, ("content-encoding", MARKER)]},
    "Authorization": {"headers": [FORM, ("authorization", MARKER)]},
    "Basic": {"headers": [FORM, ("authorization", f"Basic {MARKER}")]},
    "the id in Basic": {"headers": [FORM, basic(MARKER, "x")]},
    "the secret in Basic": {"headers": [FORM, basic(UNKNOWN_ID, MARKER)]},
    "the method": {"method": MARKER},
    "X-Request-Id": {"headers": [FORM, ("x-request-id", MARKER)]},
    "the path": {"target": f"/{MARKER}"},
}


@pytest.mark.parametrize("request_", ECHOES.values(), ids=ECHOES)
def test_input_is_never_repeated(app: Application, request_: dict[str, Any]) -> None:
    """Neither the body nor a header of an answer holds anything of the request."""
    values = {"method": "POST", "target": TOKEN, "headers": [FORM], "body": b"grant_type=client_credentials"}
    answer = app.request(**(values | request_))
    assert answer.status >= 400
    assert MARKER.lower() not in f"{answer.headers} {answer.body.decode()}".lower()


# Limits, end to end


def test_a_client_may_send_ten_requests_a_minute(app: Application, key: Key, clock: FakeClock) -> None:
    """Exactly, in any 60 seconds; the headers count down, and `Retry-After` is right to the second."""
    for second in range(10):
        assert app.issue(key).header("ratelimit") == f'"token";r={9 - second};t={60 - second}'
        clock.advance(1)
    refused = app.issue(key)
    check_refused(refused, 429, "rate_limited")
    assert refused.header("ratelimit-policy") == '"token";q=10;w=60'
    assert (refused.header("ratelimit"), refused.header("retry-after")) == ('"token";r=0;t=50', "50")
    clock.advance(49.999)
    assert app.issue(key).header("retry-after") == "1"
    clock.advance(0.001)
    accepted = app.issue(key)
    assert (accepted.status, accepted.header("ratelimit")) == (200, '"token";r=0;t=1')
    assert app.issue(key).header("retry-after") == "1"


def test_all_authenticated_requests_share_one_limit(app: Application, key: Key) -> None:
    """Those with the secret and those with a refresh token count, whatever the answer is."""
    token = app.pair(key)["refresh_token"]
    for _ in range(7):
        token = check_issued(app.refresh(token))["refresh_token"]
    grant_error(app.refresh(token, client_id=app.new_key().client_id))
    grant_error(app.refresh("unknown", key.basic))
    for answer in (app.issue(key), app.refresh(token)):
        check_refused(answer, 429, "rate_limited")
        assert answer.header("ratelimit") == '"token";r=0;t=60'


def test_authenticated_and_failed_requests_share_the_ten(app: Application, key: Key) -> None:
    """No source gets more than 10 a minute. Only authenticated requests learn how many are left."""
    for _ in range(4):
        check_refused(app.ask_token(CLIENT_CREDENTIALS, basic(key.client_id, "x")), 401, "invalid_client")
    for left in (5, 4, 3, 2, 1, 0):
        assert app.issue(key).header("ratelimit") == f'"token";r={left};t=60'
    for header, told in ((key.basic, '"token";r=0;t=60'), (basic(key.client_id, "x"), None)):
        refused = app.ask_token(CLIENT_CREDENTIALS, header)
        check_refused(refused, 429, "rate_limited")
        assert (refused.header("retry-after"), refused.header("ratelimit")) == ("60", told)


def test_a_changed_ceiling_holds_at_once(app: Application, key: Key) -> None:
    """The ceiling that an administrator set is enforced and named."""
    app.administer(ceilings.set_ceilings, client_id=key.client_id, token_per_minute=2, api_per_minute=None)
    assert app.issue(key).header("ratelimit-policy") == '"token";q=2;w=60'
    assert [app.issue(key).status, app.issue(key).status] == [200, 429]
    app.administer(ceilings.set_ceilings, client_id=key.client_id, token_per_minute="default", api_per_minute=None)
    assert app.issue(key).header("ratelimit") == '"token";r=7;t=60'


def test_a_reuse_refused_by_the_limit_raises_the_alarm(app: Application, key: Key) -> None:
    """The limit decides between 429 and 400, never whether a theft is detected."""
    app.administer(ceilings.set_ceilings, client_id=key.client_id, token_per_minute=2, api_per_minute=None)
    first = app.pair(key)
    second = check_issued(app.refresh(first["refresh_token"]))
    check_refused(app.refresh(first["refresh_token"]), 429, "rate_limited")
    assert app.call(second["access_token"]).status == 401


def test_a_refused_refresh_does_not_consume_its_token(app: Application, key: Key, clock: FakeClock) -> None:
    """The same token is valid after `Retry-After`."""
    token = app.pair(key)["refresh_token"]
    for _ in range(9):
        app.pair(key)
    refused = app.refresh(token)
    check_refused(refused, 429, "rate_limited")
    clock.advance(int(refused.header("retry-after") or 0))
    check_issued(app.refresh(token))


def test_a_source_may_fail_three_hundred_times_a_minute(app: Application, clock: FakeClock) -> None:
    """No client is known; the next attempt is 429, and another source is not affected."""
    statuses = [app.ask_token(CLIENT_CREDENTIALS).status for _ in range(300)]
    assert set(statuses) == {401}
    refused = app.ask_token(CLIENT_CREDENTIALS, WRONG_KEY)
    check_refused(refused, 429, "rate_limited")
    assert (refused.header("retry-after"), refused.header("ratelimit")) == ("60", None)
    check_refused(app.refresh("unknown"), 429, "rate_limited")
    check_refused(app.ask_token(CLIENT_CREDENTIALS, peer=STRANGER_IP), 401, "invalid_client")
    check_issued(app.issue(app.new_key()))
    clock.advance(60)
    check_refused(app.ask_token(CLIENT_CREDENTIALS), 401, "invalid_client")


@pytest.fixture
def behind_proxy(shared_database: SharedDatabase, clock: FakeClock) -> Application:
    """An application behind a proxy that terminates TLS."""
    return Application(
        shared_database.run, shared_database.database, clock, trusted_proxies=(ip_network("10.0.0.0/8"),)
    )


def through(source: str) -> list[tuple[str, str | bytes]]:
    """Return the headers that a proxy adds to a request from this source."""
    return [("x-forwarded-for", source), ("x-forwarded-proto", "https")]


def test_a_stranger_cannot_lock_a_client_out(behind_proxy: Application) -> None:
    """Failed attempts with a known client_id use up the limit of their own source and no other."""
    key = behind_proxy.new_key()
    wrong = basic(key.client_id, "x")
    for source in (STRANGER_IP, "203.0.113.5", f"{PARTNER_IP}, 203.0.113.6"):
        answers = [
            behind_proxy.ask_token(CLIENT_CREDENTIALS, wrong, *through(source), peer=PROXY_IP) for _ in range(11)
        ]
        assert [answer.status for answer in answers] == [401] * 10 + [429]
    answers = [
        behind_proxy.ask_token(CLIENT_CREDENTIALS, key.basic, *through(PARTNER_IP), peer=PROXY_IP) for _ in range(11)
    ]
    assert [answer.status for answer in answers] == [200] * 10 + [429]


def test_a_forwarded_source_of_an_untrusted_peer_is_ignored(behind_proxy: Application) -> None:
    """Failures count against the address that they come from."""
    key = behind_proxy.new_key()
    for _ in range(11):
        behind_proxy.ask_token(
            CLIENT_CREDENTIALS, basic(key.client_id, "x"), ("x-forwarded-for", PARTNER_IP), peer=STRANGER_IP
        )
    answer = behind_proxy.ask_token(CLIENT_CREDENTIALS, key.basic, *through(PARTNER_IP), peer=PROXY_IP)
    assert answer.header("ratelimit") == '"token";r=9;t=60'


@pytest.mark.parametrize("client", ["known", "unknown"])
def test_ipv6_sources_count_by_their_network(behind_proxy: Application, client: str) -> None:
    """All addresses of a /64 are one source: a household has 2^64 of them."""
    key = behind_proxy.new_key()
    wrong, most = (basic(key.client_id, "x"), 10) if client == "known" else (WRONG_KEY, 300)
    answers = [
        behind_proxy.ask_token(CLIENT_CREDENTIALS, wrong, *through(f"2001:db8:0:1:{n:x}::1"), peer=PROXY_IP)
        for n in range(most + 1)
    ]
    assert [answer.status for answer in answers] == [401] * most + [429]
    beyond = behind_proxy.ask_token(CLIENT_CREDENTIALS, wrong, *through("2001:db8:0:2::1"), peer=PROXY_IP)
    assert beyond.status == 401


# Any bytes at all: never a 500, and never a token without the right secret

PIECES = [
    b"grant_type", b"client_credentials", b"refresh_token", b"client_id", b"client_secret", b"<id>", b"<secret>",
    b"<token>", b"<basic>", b"<basic>", b"=", b"=", b"&", b"&", b"%", b"%00", b"%3A", b"+", b";", b":", b"\xff", b" ",
    b"Basic ", b"basic", b"Bearer ", b"application/x-www-form-urlencoded", b"application/x-www-form-urlencoded",
    b"charset=",
]  # fmt: skip
BYTES = st.binary(max_size=60) | st.lists(st.sampled_from(PIECES) | st.binary(max_size=4), max_size=12).map(b"".join)


class SharedApp(NamedTuple):
    """An application for all examples of a test, with a key and a revoked refresh token."""

    app: Application
    key: Key
    dead_token: str

    def filled(self, template: bytes, *, secret: str) -> bytes:
        """Return a template filled in with the data of this client."""
        filling = {
            b"<id>": self.key.client_id,
            b"<secret>": secret,
            b"<token>": self.dead_token,
            b"<basic>": basic(self.key.client_id, secret)[1].decode(),
        }
        for name, text in filling.items():
            template = template.replace(name, text.encode())
        return template

    def answer(self, form: bytes, *headers: tuple[str, bytes]) -> Answer:
        """Return the answer of the endpoint a minute later, and check that it is not a defect."""
        clock = self.app.clock
        assert isinstance(clock, FakeClock)
        clock.advance(60)
        answer = self.app.request("POST", TOKEN, headers=list(headers), body=form)
        assert answer.status in (200, 400, 401)
        if answer.status != 200:
            check_refused(answer, answer.status, answer.error)
        return answer


@pytest.fixture(scope="module")
def shared(shared_database: SharedDatabase) -> SharedApp:
    app = Application(shared_database.run, shared_database.database, FakeClock())
    key = app.new_key()
    dead = app.pair(key)["refresh_token"]
    app.administer(credentials.revoke_tokens, client_id=key.client_id)
    return SharedApp(app, key, dead)


@given(template=BYTES)
def test_any_body_without_the_secret_gets_no_token(shared: SharedApp, template: bytes) -> None:
    """The request has no credentials, the client's id and a wrong secret, or a revoked token."""
    body = shared.filled(template, secret=shared.key.client_secret[:-1])
    for headers in ([FORM_BYTES], [FORM_BYTES, basic(shared.key.client_id, "x")]):
        assert shared.answer(body, *headers).status != 200


@given(template=BYTES)
def test_any_body_with_the_right_secret_is_answered(shared: SharedApp, template: bytes) -> None:
    """The answer has a token only if the body requests one."""
    body = shared.filled(template, secret=shared.key.client_secret)
    if shared.answer(body, FORM_BYTES, shared.key.basic).status == 200:
        assert b"client_credentials" in unquote_to_bytes(body)


@given(template=BYTES)
def test_any_authorization_header_is_answered(shared: SharedApp, template: bytes) -> None:
    """The answer has a token only if the header decodes to the right pair."""
    value = shared.filled(template, secret=shared.key.client_secret)
    if shared.answer(b"grant_type=client_credentials", FORM_BYTES, ("authorization", value)).status == 200:
        decoded = base64.b64decode(value.strip()[len("Basic") :]).decode()
        assert unquote_plus(decoded) == ":".join(shared.key)
    wrong = shared.filled(template, secret=shared.key.client_secret.swapcase())
    answer = shared.answer(b"grant_type=client_credentials", FORM_BYTES, ("authorization", wrong))
    check_refused(answer, 401, "invalid_client")


@given(at=st.integers(0, 55), other=st.characters(exclude_categories=["Cs"]) | st.just(""))
def test_no_other_secret_authenticates(shared: SharedApp, at: int, other: str) -> None:
    """A secret that differs in one character, or lacks it, is refused."""
    secret = shared.key.client_secret
    wrong = secret[:at] + other + secret[at + 1 :]
    answer = shared.answer(b"grant_type=client_credentials", FORM_BYTES, basic(shared.key.client_id, quote(wrong)))
    assert (answer.status == 200) == (wrong == secret)


@given(template=BYTES)
def test_any_content_type_is_answered(shared: SharedApp, template: bytes) -> None:
    """The answer has a token only if the type is a form."""
    answer = shared.answer(b"grant_type=client_credentials", ("content-type", template), shared.key.basic)
    is_form = re.match(rb"\s*application/x-www-form-urlencoded\s*(;|$)", template, re.IGNORECASE)
    assert answer.status == (200 if is_form else 400)
