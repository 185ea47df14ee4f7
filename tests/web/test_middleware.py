"""What holds for every request: its id, HTTPS, an envelope for each failure, and nothing told that is secret."""

import io
import json
import re
from collections.abc import AsyncGenerator, Iterator
from typing import Any

import pytest

from stoplist import ids, log
from stoplist.db import Counts
from stoplist.db.query import Query
from stoplist.errors import SettingsError, StoreUnavailable
from stoplist.oauth.usage import KEPT_REFUSALS, last_refusals, use_by_day
from tests.builders import ADMINISTRATOR
from tests.fakes import FakeClock
from tests.test_log import configured
from tests.web.application import FORM, PARTNER_IP, Answer, Application, Key, basic
from tests.web.conftest import Deployment

API, TOKEN = "/api/v1/unsubscribe/email", "/oauth/token"
PLACES = ["/healthz", "/readyz", TOKEN, API, "/nowhere"]
SECRET_TEXT = "svc_cs_what-the-driver-quoted"


class Failing:
    """A database in which every statement raises this error."""

    kind = "sqlite"

    def __init__(self, error: Exception) -> None:
        self.counts = Counts()
        self._error = error

    async def one(self, query: Query, **values: Any) -> Any:
        raise self._error

    all = write_one = one_large = one

    def slices(self, query: Query, **values: Any) -> AsyncGenerator[list[Any], None]:
        raise self._error

    async def write(self, unit: Any, *, queue_key: int | None = None, rows: int = 1) -> Any:
        raise self._error

    async def clock_ms(self) -> int | None:
        return None

    async def under_schema_lock(self, change: Any) -> Any:
        raise self._error

    async def close(self) -> None:
        pass


class Logged:
    """What is logged, as JSON."""

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
    """Everything that is logged during the test."""
    kept = Logged()
    with configured("json", kept.stream):
        yield kept


def asked(app: Application, place: str) -> Answer:
    """A request that needs the database, where there is need of one."""
    if place == TOKEN:
        return app.ask_token({"grant_type": "client_credentials"}, basic("svc_ci_0123456789ABCDEFGHIJKL", "x"))
    return app.call(ids.new_secret(ids.ACCESS_TOKEN), place)


# The request id


@pytest.mark.parametrize("place", PLACES)
def test_every_answer_has_an_id_of_its_own(app: Application, place: str) -> None:
    """Never the one that a client sends along, which might be anybody's."""
    answers = [app.request("GET", place, headers=[("x-request-id", "0" * 24)]) for _ in range(3)]
    found = {answer.header("x-request-id") or "" for answer in answers}
    assert len(found) == 3
    assert all(re.fullmatch("[0-9a-f]{24}", text) for text in found)
    assert "0" * 24 not in found


# HTTPS


@pytest.mark.parametrize("place", [TOKEN, API, "/nowhere", "/api/v1", "/"])
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_plain_http_is_refused_in_the_envelope_of_the_place(app: Application, method: str, place: str) -> None:
    """400, never a redirect: a client that once sent its secret in the clear must not learn that this works."""
    answer = app.request(method, place, scheme="http")
    assert (answer.status, answer.error) == (400, "invalid_request" if place == TOKEN else "bad_request")
    assert answer.json().keys() == {"error", "error_description"} | (set() if place == TOKEN else {"message"})
    assert answer.header("location") is None
    assert answer.header("x-request-id")


def test_a_secret_sent_over_plain_http_gets_no_token(app: Application, key: Key) -> None:
    """Nothing of such a request is processed or counted."""
    body = b"grant_type=client_credentials"
    answer = app.request("POST", TOKEN, headers=[FORM, key.basic], body=body, scheme="http")
    assert (answer.status, answer.header("cache-control")) == (400, "no-store")
    assert app.limiter.log_count == 0


@pytest.mark.parametrize("place", ["/healthz", "/readyz"])
def test_health_needs_no_https(app: Application, place: str) -> None:
    """A balancer asks over plain HTTP."""
    assert app.request("GET", place, scheme="http").status == 200


# Failures


def failing(deployment: Deployment, error: Exception) -> Application:
    return Application(deployment.run, Failing(error), FakeClock())


@pytest.mark.parametrize("error", [RuntimeError(SECRET_TEXT), KeyError(SECRET_TEXT)])
@pytest.mark.parametrize("place", [TOKEN, API, "/readyz"])
def test_a_defect_is_500_and_tells_nothing(
    deployment: Deployment, logged: Logged, place: str, error: Exception
) -> None:
    """`server_error` with the request id, by which the log names the defect without the text of the exception."""
    answer = asked(failing(deployment, error), place)
    assert (answer.status, answer.error) == (500, "server_error")
    request_id = answer.header("x-request-id")
    if place == TOKEN:
        assert answer.json().keys() == {"error", "error_description"}
    else:
        assert answer.json()["request_id"] == request_id
    assert answer.header("retry-after") is None
    event, request = logged.lines
    assert event["request_id"] == request["request_id"] == request_id
    assert type(error).__name__ in json.dumps(event)
    assert SECRET_TEXT not in answer.body.decode() + logged.text


@pytest.mark.parametrize("error", [StoreUnavailable("The database rests."), StoreUnavailable("…", retry_after_s=7)])
@pytest.mark.parametrize("place", [TOKEN, API, "/readyz"])
def test_a_store_that_is_away_is_503(
    deployment: Deployment, logged: Logged, place: str, error: StoreUnavailable
) -> None:
    """`temporarily_unavailable` with `Retry-After`, in the envelope of the place; one warning under the request id."""
    app = failing(deployment, error)
    answer = asked(app, place)
    assert (answer.status, answer.error) == (503, "temporarily_unavailable")
    assert answer.header("retry-after") == str(error.retry_after_s)
    assert answer.header("cache-control") == "no-store"
    warning, request = logged.lines
    assert (warning["level"], warning["request_id"]) == ("warning", request["request_id"])
    assert app.metrics.registry.get_sample_value("stoplist_store_errors_total") == 1


def test_a_store_set_up_wrongly_meanwhile_is_named_in_the_log(deployment: Deployment, logged: Logged) -> None:
    """The client is told no more than that the server failed; whoever can mend it reads why."""
    why = "PostgreSQL has synchronous_commit = off."
    answer = asked(failing(deployment, SettingsError(why)), API)
    assert (answer.status, why in answer.body.decode()) == (500, False)
    assert why in logged.text


def test_healthz_needs_no_store(deployment: Deployment) -> None:
    """The process is up, whatever its stores are."""
    assert asked(failing(deployment, StoreUnavailable("away")), "/healthz").status == 200


def test_a_request_that_was_let_through_counts_also_if_the_store_fails(app: Application, key: Key) -> None:
    """Otherwise a broken store would lift the limit."""
    real = app.database

    class NoWrites(Failing):
        async def one(self, query: Query, **values: Any) -> Any:
            return await real.one(query, **values)

    broken = Application(app.run, NoWrites(StoreUnavailable("full")), FakeClock())
    answers = [broken.issue(key) for _ in range(11)]
    assert [answer.status for answer in answers] == [503] * 10 + [429]
    assert answers[0].header("ratelimit") == '"token";r=9;t=60'


# The log


def test_a_request_is_one_line_without_anything_entrusted(app: Application, key: Key, logged: Logged) -> None:
    """Id, client, method, path without query, status, milliseconds; no token, no secret, no address, no query."""
    pair = app.pair(key)
    app.request("GET", f"{API}?address=ann@example.org&x={pair['access_token']}")
    app.call(pair["access_token"], "/api/v1/unsubscribe/ann@example.org")
    app.ask_token({"grant_type": "client_credentials"}, basic("svc_ci_unknown", key.secret))
    app.refresh(pair["refresh_token"])
    app.refresh(pair["refresh_token"])
    text = logged.text
    entrusted = [key.secret, pair["access_token"], pair["refresh_token"], "ann@", "address", "svc_ci_unknown"]
    assert [secret for secret in (*entrusted, PARTNER_IP, "example.org", "?") if secret in text] == []
    shown = [(line["client_id"], line["method"], line["path"], line["status"]) for line in logged.lines]
    assert shown == [
        (key.client_id, "POST", TOKEN, 200),
        (None, "GET", API, 401),
        (key.client_id, "GET", "/api/v1/unsubscribe/*", 404),
        (None, "POST", TOKEN, 401),
        (key.client_id, "POST", TOKEN, 200),
        (key.client_id, "POST", TOKEN, 400),
    ]
    assert all(re.fullmatch("[0-9a-f]{24}", line["request_id"]) and line["duration_ms"] >= 0 for line in logged.lines)


def test_the_id_in_the_log_is_the_one_in_the_answer(app: Application, logged: Logged) -> None:
    """So that a partner can say which request it was."""
    assert app.request("GET", API).header("x-request-id") == logged.lines[0]["request_id"]


# The use of keys

DAY = FakeClock().now_ms() // 86_400_000


def test_the_use_of_a_key_is_noted_by_day(app: Application, key: Key, clock: FakeClock) -> None:
    """Requests, refusals by limit, failed authentications; what names no known client is nobody's."""
    token = app.pair(key)["access_token"]
    app.call(token)
    app.ask_token({"grant_type": "client_credentials"}, basic(key.client_id, "x"))
    app.ask_token({"grant_type": "client_credentials"})
    app.call("svc_at_unknown")
    clock.advance(86_400)
    for _ in range(11):
        app.issue(key)
    app.run(app.usage.flush(app.database))
    days = app.run(use_by_day(ADMINISTRATOR, app.database, key.client_id, since_day=0))
    noted = [(day.day - DAY, day.requests, day.limit_refusals, day.failed_authentications) for day in days]
    assert noted == [(0, 3, 0, 1), (1, 11, 1, 0)]


def test_last_used_is_the_last_proof(app: Application, key: Key, clock: FakeClock) -> None:
    """A request authenticated by the key or a token of it, refused by a limit or not; a failed one is no use."""

    def last_used_ms() -> int | None:
        app.run(app.usage.flush(app.database))
        found: int | None = app.value(
            "SELECT MAX(last_used_ms) AS at_ms FROM client_days WHERE client_id = :client_id", client_id=key.client_id
        )
        return found

    app.ask_token({"grant_type": "client_credentials"}, basic(key.client_id, "x"))
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
    """Code, request id and time of the last 50, newest first; those before are forgotten."""
    answers = []
    for n in range(KEPT_REFUSALS + 5):
        answers.append(app.ask_token({"grant_type": "client_credentials"}, basic(key.client_id, "x")))
        clock.advance(1)
        if n % 20 == 0:
            app.run(app.usage.flush(app.database))
    app.run(app.usage.flush(app.database))
    refusals = app.run(last_refusals(ADMINISTRATOR, app.database, key.client_id))
    assert [refusal.request_id for refusal in refusals] == [
        answer.header("x-request-id") for answer in reversed(answers[5:])
    ]
    assert {refusal.code for refusal in refusals} == {"invalid_client", "rate_limited"}
    assert refusals[0].at_ms == clock.now_ms() - 1000
