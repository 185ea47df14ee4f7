"""Every request: its id, HTTPS, the envelope of each failure, its log line, and no secrets in any of them."""

import io
import json
import re
from collections.abc import AsyncGenerator, Callable, Iterator
from typing import Any

import pytest

from stoplist import ids, log
from stoplist.db import Counts, ignore_feed
from stoplist.db.query import Query
from stoplist.errors import SettingsError, StoreUnavailable
from stoplist.oauth.usage import MAX_KEPT_REFUSALS, last_refusals, use_by_day
from tests.builders import ADMINISTRATOR
from tests.constants import DAY_MS, DAY_S
from tests.deployment import SharedDatabase
from tests.fakes import FakeClock
from tests.keys import CLIENT_CREDENTIALS, Key, basic
from tests.test_log import configured
from tests.web.application import FORM, PARTNER_IP, Answer, Application

API, TOKEN = "/api/v1/unsubscribe/email", "/oauth/token"
PATHS = ["/healthz", "/readyz", TOKEN, API, "/nowhere"]
SECRET_TEXT = "svc_cs_what-the-driver-quoted"


class FailingDatabase:
    """A database in which every statement raises this error."""

    feeds_are_apart = False
    kind = "sqlite"

    def __init__(self, error: Exception) -> None:
        self.counts = Counts()
        self.on_feed_written: Callable[[int], None] = ignore_feed
        self._error = error

    async def one(self, query: Query, **values: Any) -> Any:
        raise self._error

    all = write_one = one_large = one

    async def rows(self, query: Query, *values: Any) -> list[Any]:
        raise self._error

    def slices(self, query: Query, **values: Any) -> AsyncGenerator[list[Any], None]:
        raise self._error

    async def write(self, unit: Any, *, queue_key: int | None = None, feed_id: int | None = None, rows: int = 1) -> Any:
        raise self._error

    async def clock_ms(self) -> int | None:
        return None

    async def under_schema_lock(self, change: Any) -> Any:
        raise self._error

    async def close(self) -> None:
        pass


class Logged:
    """The log, as JSON."""

    def __init__(self) -> None:
        self.stream = io.BytesIO()

    @property
    def text(self) -> str:
        log.flush()
        return self.stream.getvalue().decode()

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.text.splitlines()]


@pytest.fixture
def logged() -> Iterator[Logged]:
    """Capture everything that is logged during the test."""
    kept = Logged()
    with configured("json", kept.stream):
        yield kept


def request_to(app: Application, path: str) -> Answer:
    """Return the answer to a request that uses the database if the path does."""
    if path == TOKEN:
        return app.ask_token(CLIENT_CREDENTIALS, basic("svc_ci_0123456789ABCDEFGHIJKL", "x"))
    return app.call(ids.new_secret(ids.ACCESS_TOKEN), path)


# The request id


@pytest.mark.parametrize("path", PATHS)
def test_every_answer_has_its_own_request_id(app: Application, path: str) -> None:
    """Never the one that the client sends."""
    answers = [app.request("GET", path, headers=[("x-request-id", "0" * 24)]) for _ in range(3)]
    found = {answer.header("x-request-id") or "" for answer in answers}
    assert len(found) == 3
    assert all(re.fullmatch("[0-9a-f]{24}", text) for text in found)
    assert "0" * 24 not in found


# HTTPS


@pytest.mark.parametrize("path", [TOKEN, API, "/nowhere", "/api/v1", "/"])
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_plain_http_is_refused_in_the_envelope_of_its_path(app: Application, method: str, path: str) -> None:
    """400, never a redirect: a client that sent its secret in the clear must not learn that this works."""
    answer = app.request(method, path, scheme="http")
    assert (answer.status, answer.error) == (400, "invalid_request" if path == TOKEN else "bad_request")
    assert answer.json().keys() == {"error", "error_description"} | (set() if path == TOKEN else {"message"})
    assert answer.header("location") is None
    assert answer.header("x-request-id")


def test_a_secret_sent_over_plain_http_gets_no_token(app: Application, key: Key) -> None:
    """Nothing of such a request is processed or counted."""
    body = b"grant_type=client_credentials"
    answer = app.request("POST", TOKEN, headers=[FORM, key.basic], body=body, scheme="http")
    assert (answer.status, answer.header("cache-control")) == (400, "no-store")
    assert app.limiter.log_count == 0


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
def test_health_needs_no_https(app: Application, path: str) -> None:
    """A balancer probes over plain HTTP."""
    assert app.request("GET", path, scheme="http").status == 200


# Failures


def failing(shared_database: SharedDatabase, error: Exception) -> Application:
    return Application(shared_database.run, FailingDatabase(error), FakeClock())


@pytest.mark.parametrize("error", [RuntimeError(SECRET_TEXT), KeyError(SECRET_TEXT)])
@pytest.mark.parametrize("path", [TOKEN, API, "/readyz"])
def test_a_defect_is_500_and_discloses_nothing(
    shared_database: SharedDatabase, logged: Logged, path: str, error: Exception
) -> None:
    """`server_error` with the request id, under which the log has the type of the exception and not its text."""
    answer = request_to(failing(shared_database, error), path)
    assert (answer.status, answer.error) == (500, "server_error")
    request_id = answer.header("x-request-id")
    if path == TOKEN:
        assert answer.json().keys() == {"error", "error_description"}
    else:
        assert answer.json()["request_id"] == request_id
    assert answer.header("retry-after") is None
    event, request = logged.lines
    assert event["request_id"] == request["request_id"] == request_id
    assert type(error).__name__ in json.dumps(event)
    assert SECRET_TEXT not in answer.body.decode() + logged.text


@pytest.mark.parametrize("error", [StoreUnavailable("The database rests."), StoreUnavailable("…", retry_after_s=7)])
@pytest.mark.parametrize("path", [TOKEN, API, "/readyz"])
def test_an_unavailable_store_is_503(
    shared_database: SharedDatabase, logged: Logged, path: str, error: StoreUnavailable
) -> None:
    """`temporarily_unavailable` with `Retry-After`, in the envelope of the path; one warning under the request id."""
    app = failing(shared_database, error)
    answer = request_to(app, path)
    assert (answer.status, answer.error) == (503, "temporarily_unavailable")
    assert answer.header("retry-after") == str(error.retry_after_s)
    assert answer.header("cache-control") == "no-store"
    warning, request = logged.lines
    assert (warning["level"], warning["request_id"]) == ("warning", request["request_id"])
    assert app.metrics.registry.get_sample_value("stoplist_store_errors_total") == 1


def test_a_store_misconfigured_meanwhile_is_logged(shared_database: SharedDatabase, logged: Logged) -> None:
    """The client learns only that the server failed; the operator reads the reason in the log."""
    why = "PostgreSQL has synchronous_commit = off."
    answer = request_to(failing(shared_database, SettingsError(why)), API)
    assert (answer.status, why in answer.body.decode()) == (500, False)
    assert why in logged.text


def test_healthz_needs_no_store(shared_database: SharedDatabase) -> None:
    assert request_to(failing(shared_database, StoreUnavailable("away")), "/healthz").status == 200


def test_a_request_counts_also_if_the_store_fails(app: Application, key: Key) -> None:
    """Otherwise a broken store would lift the limit."""
    real = app.database

    class NoWrites(FailingDatabase):
        async def rows(self, query: Query, *values: Any) -> Any:
            return await real.rows(query, *values)

    broken = Application(app.run, NoWrites(StoreUnavailable("full")), FakeClock())
    answers = [broken.issue(key) for _ in range(11)]
    assert [answer.status for answer in answers] == [503] * 10 + [429]
    assert answers[0].header("ratelimit") == '"token";r=9;t=60'


# The log


def test_a_request_is_one_log_line_without_secrets(app: Application, key: Key, logged: Logged) -> None:
    """Id, client, source, method, path without query, status, milliseconds; no token, secret, address or query."""
    pair = app.pair(key)
    app.request("GET", f"{API}?address=ann@example.org&x={pair['access_token']}")
    app.call(pair["access_token"], "/api/v1/unsubscribe/ann@example.org")
    app.ask_token(CLIENT_CREDENTIALS, basic("svc_ci_unknown", key.client_secret))
    app.refresh(pair["refresh_token"])
    app.refresh(pair["refresh_token"])
    text = logged.text
    secrets = [key.client_secret, pair["access_token"], pair["refresh_token"], "ann@", "address", "svc_ci_unknown"]
    assert [secret for secret in (*secrets, "example.org", "?") if secret in text] == []
    shown = [(line["client_id"], line["method"], line["path"], line["status"]) for line in logged.lines]
    assert shown == [
        (key.client_id, "POST", TOKEN, 200),
        (None, "GET", API, 401),
        (key.client_id, "GET", "/api/v1/unsubscribe/*", 404),
        (None, "POST", TOKEN, 401),
        (key.client_id, "POST", TOKEN, 200),
        (key.client_id, "POST", TOKEN, 400),
    ]
    assert {line["source_ip"] for line in logged.lines} == {PARTNER_IP}
    assert all(re.fullmatch("[0-9a-f]{24}", line["request_id"]) and line["duration_ms"] >= 0 for line in logged.lines)


def test_log_and_answer_have_the_same_request_id(app: Application, logged: Logged) -> None:
    assert app.request("GET", API).header("x-request-id") == logged.lines[0]["request_id"]


# The use of keys

DAY = FakeClock().now_ms() // DAY_MS


def test_the_usage_of_a_key_is_counted_by_day(app: Application, key: Key, clock: FakeClock) -> None:
    """Requests, refusals by the limit, failed authentications; requests without a known client count for no key."""
    token = app.pair(key)["access_token"]
    app.call(token)
    app.ask_token(CLIENT_CREDENTIALS, basic(key.client_id, "x"))
    app.ask_token(CLIENT_CREDENTIALS)
    app.call("svc_at_unknown")
    clock.advance(DAY_S)
    for _ in range(11):
        app.issue(key)
    app.run(app.usage.flush(app.database))
    days = app.run(use_by_day(ADMINISTRATOR, app.database, key.client_id, since_day=0))
    noted = [(day.day - DAY, day.requests, day.limit_refusals, day.failed_authentications) for day in days]
    assert noted == [(0, 3, 0, 1), (1, 11, 1, 0)]


def test_last_used_is_the_last_authenticated_request(app: Application, key: Key, clock: FakeClock) -> None:
    """The key or a token of it sent it, refused by a limit or not; a failed authentication is no use."""

    def last_used_ms() -> int | None:
        app.run(app.usage.flush(app.database))
        found: int | None = app.value(
            "SELECT MAX(last_used_ms) AS at_ms FROM client_days WHERE client_id = :client_id", client_id=key.client_id
        )
        return found

    app.ask_token(CLIENT_CREDENTIALS, basic(key.client_id, "x"))
    assert last_used_ms() is None
    token = app.pair(key)["access_token"]
    assert last_used_ms() == clock.now_ms()
    clock.advance(60)
    app.call(token)
    assert last_used_ms() == clock.now_ms()
    last = clock.now_ms()
    clock.advance(1)
    app.call(token[:-1])
    app.ask_token({"grant_type": "client_credentials", "client_id": key.client_id})
    assert last_used_ms() == last


def test_the_last_refusals_of_a_key_are_kept(app: Application, key: Key, clock: FakeClock) -> None:
    """Code, request id and time of the last 50 of each code, newest first."""
    answers = []
    for n in range(MAX_KEPT_REFUSALS + 5):
        answers.append(app.ask_token(CLIENT_CREDENTIALS, basic(key.client_id, "x")))
        clock.advance(1)
        if n % 20 == 0:
            app.run(app.usage.flush(app.database))
    app.run(app.usage.flush(app.database))
    refusals = app.run(last_refusals(ADMINISTRATOR, app.database, key.client_id))
    assert [refusal.request_id for refusal in refusals] == [
        answer.header("x-request-id") for answer in reversed(answers)
    ]
    assert {refusal.code for refusal in refusals} == {"invalid_client", "rate_limited"}
    assert refusals[0].at_ms == clock.now_ms() - 1000
