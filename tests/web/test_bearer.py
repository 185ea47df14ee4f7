"""Access to `/api/v1/**` over HTTP (docs/interface.md sections 5, D3 and D4)."""

import re
from ipaddress import ip_network
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoplist import ids
from stoplist.oauth import ceilings, credentials
from stoplist.organizations import organizations
from tests.builders import make_organization
from tests.deployment import SharedDatabase
from tests.fakes import FakeClock
from tests.keys import Key, basic
from tests.web.application import FORM, PROXY_IP, STRANGER_IP, Answer, Application, Headers

API = "/api/v1/unsubscribe/email"
NOTHING = "/api/v1/nothing"
METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
# RFC 6750 section 3: the characters of a description.
DESCRIPTION = r"[\x20\x21\x23-\x5b\x5d-\x7e]+"


def check_envelope(answer: Answer, status: int, error: str) -> None:
    """Check a refusal in the envelope of section D4, which has one text under two names."""
    body = answer.json()
    assert (answer.status, body["error"]) == (status, error)
    assert body.keys() == {"error", "message", "error_description"}
    assert body["message"] == body["error_description"] != ""
    assert answer.header("content-type") == "application/json"
    assert answer.header("content-length") == str(len(answer.body))
    assert re.fullmatch("[0-9a-f]{24}", answer.header("x-request-id") or "")


def check_unauthorized(answer: Answer) -> None:
    """Check the one answer to a request without a valid token."""
    check_envelope(answer, 401, "invalid_token")
    text = re.escape(answer.json()["message"])
    challenge = f'Bearer realm="stoplist", error="invalid_token", error_description="{text}"'
    assert re.fullmatch(challenge, answer.header("www-authenticate") or "")
    assert re.fullmatch(DESCRIPTION, answer.json()["message"])
    assert answer.header("ratelimit") is answer.header("ratelimit-policy") is None


def check_authorized(answer: Answer, status: int = 200) -> None:
    """Check an answer to a request with a valid token: it has the limit headers and no challenge."""
    errors = {400: "bad_request", 404: "not_found", 405: "method_not_allowed"}
    if status in errors:
        check_envelope(answer, status, errors[status])
    assert answer.status == status
    assert answer.header("ratelimit-policy") == '"api";q=60;w=60'
    assert answer.header("www-authenticate") is None


@pytest.fixture
def token(app: Application, key: Key) -> str:
    """A valid access token."""
    text: str = app.pair(key)["access_token"]
    return text


EXISTING = [
    "/api/v1/unsubscribe/email", "/api/v1/unsubscribe/sms", "/api/v1/unsubscribe/phone",
    "/%61pi/v1/unsubscribe/email", "/api%2Fv1/unsubscribe/email", "/api/v1%2Funsubscribe/email",
]  # fmt: skip
MISSING = [
    "/api/v1", "/api/v1/", "/api/v1?x=y", "/api/v1//", "/api/v1/nothing", "/api/v1/%00", "/api/v1/%ff", "/api/v1/..",
    "/api/v1/a%0Ab", "/api/v1/%0A", "/api/v1/unsubscribe", "/api/v1/unsubscribe/", "/api/v1/unsubscribe/email/",
    "/api/v1/unsubscribe//email", "/api/v1/unsubscribe/email%0A", "/api/v1/unsubscribe/Email",
    "/api/v1/unsubscribe/fax", "/api/v1/unsubscribe/email/x", "/api/v1/unsubscribe/email%2F",
    "/api/v1/unsubscribe/%7Bchannel%7D",
]  # fmt: skip


@pytest.mark.parametrize(("path", "status"), [(path, 200) for path in EXISTING] + [(path, 404) for path in MISSING])
def test_every_path_of_the_api_needs_a_token_first(app: Application, token: str, path: str, status: int) -> None:
    """A path in any spelling, existing or not, answers 401 without a token; with one its answer, or 404."""
    check_unauthorized(app.request("GET", path))
    check_authorized(app.call(token, path), status)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_needs_a_token_first(app: Application, token: str, method: str) -> None:
    """`OPTIONS` needs one too: a stranger learns nothing about the API."""
    check_unauthorized(app.request(method, API))
    check_authorized(app.call(token, API, method=method), {"GET": 200, "HEAD": 200, "POST": 400}.get(method, 405))
    check_authorized(app.call(token, NOTHING, method=method), 404)


@given(rest=st.text() | st.binary().map(lambda raw: raw.decode("latin-1")))
def test_no_path_below_the_api_is_open(shared_app: Application, rest: str) -> None:
    """Any text after `/api/v1/`."""
    check_unauthorized(shared_app.request("GET", f"/api/v1/{quote(rest, errors='surrogatepass')}"))


OTHER_PATHS = [
    "/api", "/api/v1x", "/api/v1%0A", "/api/v2/x", "/API/v1/x", "//api/v1", "/docs/", "/openapi", "/metrics",
    "/oauth", "/oauth/token/", "/oauth/token%0A", "/oauth//token", "/OAuth/token", "/healthz/", "/healthz%0A",
    "/.well-known/oauth-authorization-server", "/oauth/introspect", "/oauth/revoke", "/settingsx", "*",
]  # fmt: skip


@pytest.mark.parametrize("path", OTHER_PATHS)
def test_other_paths_do_not_exist(app: Application, key: Key, path: str) -> None:
    """404 in the envelope of the API, without a token, also for what would be right at the token endpoint."""
    check_envelope(app.request("GET", path), 404, "not_found")
    grant = app.request("POST", path, headers=[FORM, key.basic], body=b"grant_type=client_credentials")
    check_envelope(grant, 404, "not_found")


NO_TOKENS: dict[str, Headers] = {
    "no header": [],
    "an empty one": [("authorization", "")],
    "the scheme alone": [("authorization", "Bearer")],
    "no token": [("authorization", "Bearer ")],
    "no space": [("authorization", "Bearer<token>")],
    "a tab": [("authorization", "Bearer\t<token>")],
    "the token alone": [("authorization", "<token>")],
    "another scheme": [("authorization", "Token <token>")],
    "Basic": [basic("x", "y")],
    "quotes": [("authorization", 'Bearer "<token>"')],
    "two tokens": [("authorization", "Bearer <token>, Bearer <token>")],
    "two headers": [("authorization", "Bearer <token>"), ("authorization", "Bearer <token>")],
    "two headers, one of another kind": [("authorization", "Bearer <token>"), basic("x", "y")],
    "a proxy's header": [("proxy-authorization", "Bearer <token>")],
    "a cookie": [("cookie", "access_token=<token>")],
    "another case": [("authorization", "Bearer <TOKEN>")],
    "a longer token": [("authorization", "Bearer <token>0")],
    "a token in an encoding": [("authorization", "Bearer svc%5Fat_<rest>")],
    "bytes beyond ASCII": [("authorization", b"Bearer \xff\xfe")],
}


@pytest.mark.parametrize("headers", NO_TOKENS.values(), ids=NO_TOKENS)
def test_anything_but_one_bearer_header_is_no_token(app: Application, token: str, headers: Headers) -> None:
    """401, and the token in the request is not repeated."""
    fillings = {b"<token>": token, b"<TOKEN>": token.swapcase(), b"<rest>": token.removeprefix("svc_at_")}
    filled = [(name, text if isinstance(text, bytes) else text.encode()) for name, text in headers]
    for place, text in fillings.items():
        filled = [(name, value.replace(place, text.encode())) for name, value in filled]
    answer = app.request("GET", API, headers=list(filled))
    check_unauthorized(answer)
    assert token[7:] not in f"{answer.headers}{answer.body!r}"


@pytest.mark.parametrize("where", ["query", "form", "JSON"])
def test_a_token_outside_the_header_is_ignored(app: Application, token: str, where: str) -> None:
    """RFC 6750 sections 2.2 and 2.3 are not offered: such tokens end up in logs."""
    target = f"{API}?access_token={token}" if where == "query" else API
    bodies = {"form": f"access_token={token}".encode(), "JSON": f'{{"access_token":"{token}"}}'.encode()}
    check_unauthorized(app.request("POST", target, headers=[FORM], body=bodies.get(where, b"")))


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER", "bEaReR", "Bearer  "])
def test_the_scheme_may_be_in_any_case(app: Application, token: str, scheme: str) -> None:
    """RFC 9110 section 11.1."""
    check_authorized(app.request("GET", API, headers=[("authorization", f"{scheme} {token}")]))


def test_tokens_of_other_kinds_are_refused(app: Application, key: Key) -> None:
    """A refresh token, the client secret, and a token that nobody issued: 401."""
    for text in (app.pair(key)["refresh_token"], key.client_secret, key.client_id, ids.new_secret(ids.ACCESS_TOKEN)):
        check_unauthorized(app.call(text))


@given(value=st.binary() | st.binary().map(lambda raw: b"Bearer " + raw))
def test_any_authorization_header_is_answered(shared_app: Application, value: bytes) -> None:
    """Any bytes: 401, and never a 500."""
    check_unauthorized(shared_app.request("GET", API, headers=[("authorization", value)]))


@pytest.fixture(scope="module")
def shared_app(shared_database: SharedDatabase) -> Application:
    """An application for all examples of a test."""
    return Application(shared_database.run, shared_database.database, FakeClock())


# The end of a token


def test_an_expired_token_is_refused(app: Application, token: str, clock: FakeClock) -> None:
    """It expires in its 900th second."""
    check_authorized(app.call(token))
    clock.advance(900)
    check_unauthorized(app.call(token))


@pytest.mark.parametrize(
    "operation", [credentials.deactivate_credential, credentials.revoke_tokens, credentials.rotate_secret]
)
def test_a_revocation_holds_for_the_very_next_request(
    app: Application, token: str, key: Key, operation: object
) -> None:
    """Nothing about a token is cached between requests, and an activation does not revive it."""
    check_authorized(app.call(token))
    app.administer(operation, client_id=key.client_id)  # type: ignore[arg-type]
    check_unauthorized(app.call(token))
    app.administer(credentials.activate_credential, client_id=key.client_id)
    check_unauthorized(app.call(token))


def test_after_an_activation_new_tokens_are_valid(app: Application, token: str, key: Key) -> None:
    """Tokens from before the deactivation stay revoked."""
    app.administer(credentials.deactivate_credential, client_id=key.client_id)
    app.administer(credentials.activate_credential, client_id=key.client_id)
    check_unauthorized(app.call(token))
    check_authorized(app.call(app.pair(key)["access_token"]))


def test_tokens_of_a_closed_organization_stay_valid(app: Application) -> None:
    """Each operation checks by itself which organization is meant."""
    app.run(make_organization(app.database, FakeClock(), "closing"))
    token = app.pair(app.new_key(organizations=["closing"]))["access_token"]
    app.administer(organizations.close_organization, slug="closing")
    check_authorized(app.call(token, NOTHING), 404)


# Order: HTTPS, token, limit, route


def test_plain_http_is_refused_before_the_token_is_read(app: Application, token: str) -> None:
    """400 `bad_request`, never a redirect, with a token or without; not counted."""
    for headers in ([("authorization", f"Bearer {token}")], []):
        answer = app.request("GET", API, headers=list(headers), scheme="http")
        check_envelope(answer, 400, "bad_request")
        assert answer.header("location") is answer.header("www-authenticate") is None
    assert app.call(token).header("ratelimit") == '"api";r=59;t=60'


def test_a_client_may_send_sixty_requests_a_minute(app: Application, token: str, clock: FakeClock) -> None:
    """Exactly, for any path; then 429 with `Retry-After`, before the route is looked up."""
    answers = [app.call(token, path) for path in [API, NOTHING] * 30]
    assert [answer.header("ratelimit") for answer in answers] == [f'"api";r={59 - n};t=60' for n in range(60)]
    clock.advance(30.5)
    refused = app.call(token)
    check_envelope(refused, 429, "rate_limited")
    assert refused.header("ratelimit-policy") == '"api";q=60;w=60'
    assert (refused.header("ratelimit"), refused.header("retry-after")) == ('"api";r=0;t=30', "30")
    clock.advance(29.5)
    check_authorized(app.call(token))


def test_all_tokens_of_a_client_share_one_limit(app: Application, key: Key) -> None:
    """The limit counts by `client_id`; another client has its own."""
    tokens = [app.pair(key)["access_token"] for _ in range(3)]
    assert {app.call(tokens[n % 3]).status for n in range(60)} == {200}
    assert [app.call(token).status for token in tokens] == [429, 429, 429]
    check_authorized(app.call(app.pair(app.new_key())["access_token"]))


def test_api_and_token_limits_are_independent(app: Application, key: Key, token: str) -> None:
    """A client that has used up one has the other in full."""
    for _ in range(9):
        app.pair(key)
    assert app.issue(key).status == 429
    assert app.call(token).header("ratelimit") == '"api";r=59;t=60'


def test_requests_without_a_token_count_against_no_limit(app: Application, token: str) -> None:
    """No stranger can lock a client out of the API."""
    for _ in range(70):
        app.call(token[:-1])
    assert app.call(token).header("ratelimit") == '"api";r=59;t=60'


def test_unknown_tokens_of_one_source_are_limited(app: Application, token: str, clock: FakeClock) -> None:
    """Section D8: 300 a minute, then 429; valid, expired and missing tokens get their answers all the same."""
    expired = app.pair(app.new_key())["access_token"]
    clock.advance(899)
    valid = app.pair(app.new_key())["access_token"]
    clock.advance(1)
    wrong = (ids.new_secret(ids.ACCESS_TOKEN), "not a token", ids.new_secret(ids.REFRESH_TOKEN))
    answers = [app.call(wrong[number % 3]) for number in range(301)]
    assert [answer.status for answer in answers] == [401] * 300 + [429]
    check_envelope(answers[-1], 429, "rate_limited")
    assert answers[-1].header("retry-after") == "60"
    assert answers[-1].header("ratelimit") is None
    assert [app.call(it).status for it in (valid, expired, token)] == [200, 401, 401]
    assert app.request("GET", API).status == 401
    assert app.request("GET", API, headers=[("authorization", f"Bearer {wrong[0]}")], peer=STRANGER_IP).status == 401
    clock.advance(60)
    assert app.call(wrong[0]).status == 401


def test_a_changed_ceiling_holds_at_once(app: Application, key: Key, token: str) -> None:
    """The ceiling that an administrator set is enforced and named."""
    app.administer(ceilings.set_ceilings, client_id=key.client_id, token_per_minute=None, api_per_minute=2)
    answers = [app.call(token) for _ in range(3)]
    assert [answer.status for answer in answers] == [200, 200, 429]
    assert answers[0].header("ratelimit-policy") == '"api";q=2;w=60'


def test_a_proxy_without_https_is_refused(shared_database: SharedDatabase, clock: FakeClock) -> None:
    """A trusted proxy must report HTTPS; the report of any other peer does not count."""
    app = Application(shared_database.run, shared_database.database, clock, trusted_proxies=(ip_network("10.0.0.0/8"),))
    authorization = ("authorization", f"Bearer {app.pair(app.new_key())['access_token']}")
    https = ("x-forwarded-proto", "https")
    for headers, peer in (([], PROXY_IP), ([("x-forwarded-proto", "http")], PROXY_IP), ([https], STRANGER_IP)):
        answer = app.request("GET", API, headers=[authorization, *headers], peer=peer, scheme="http")
        check_envelope(answer, 400, "bad_request")
    check_authorized(app.request("GET", API, headers=[authorization, https], peer=PROXY_IP, scheme="http"))
