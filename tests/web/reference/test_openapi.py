"""The OpenAPI description agrees with the application (docs/interface.md sections 4.3 and D10)."""

import asyncio
import itertools
import json
import re
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from openapi_spec_validator import OpenAPIV30SpecValidator
from starlette.routing import Mount, Route

from stoplist import errors
from stoplist.errors import StoreUnavailable
from stoplist.oauth import ceilings
from stoplist.oauth.model import PERMISSIONS
from stoplist.organizations.organizations import create_organization
from stoplist.web.app import build_app
from stoplist.web.parts import Parts
from stoplist.web.readiness import Readiness
from stoplist.web.reference.examples import CURSOR, GROUP
from tests.builders import make_organization, migrated
from tests.cli.command_line import Prompt
from tests.deployment import SharedDatabase
from tests.fakes import FakeClock
from tests.keys import CLIENT_CREDENTIALS, Key
from tests.web.api.described import DescribedOperation, Description, Json, published
from tests.web.application import BASE_URL, Answer, Application
from tests.web.test_middleware import FailingDatabase

METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"]
CHANNELS = ["email", "sms", "phone"]
TOKEN = "/oauth/token"
PAGES = ["/settings", "/unsubscribes", "/organizations", "/audit"]
ALL = frozenset(PERMISSIONS)
GOOD = {"email": "ann@example.com", "sms": "+14155550123", "phone": "+14155550123"}
SEVEN = [
    ("POST", TOKEN),
    *((method, f"/api/v1/unsubscribe/{channel}") for channel in CHANNELS for method in ("GET", "POST")),
]


@pytest.fixture
def shared_database(tmp_path: Path) -> Iterator[SharedDatabase]:
    """A database for this test, with the organization `acme`, which has a default group."""
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        database = runner.run(stack.enter_async_context(migrated(f"sqlite:///{tmp_path / 'stoplist.db'}")))
        runner.run(make_organization(database, FakeClock(), default_group="Newsletter"))
        yield SharedDatabase(runner.run, database)
        runner.run(stack.aclose())


@pytest.fixture
def described(app: Application) -> Description:
    return published(app)


@pytest.fixture
def partner(app: Application) -> Key:
    """A key with all permissions and high limits."""
    key = app.new_key(permissions=ALL)
    app.administer(ceilings.set_ceilings, client_id=key.client_id, token_per_minute=100_000, api_per_minute=100_000)
    return key


@pytest.fixture
def token(app: Application, partner: Key) -> str:
    """An access token of that key."""
    return str(app.pair(partner)["access_token"])


def get(app: Application, token: str, path: str, query: str = "", *headers: tuple[str, str]) -> Answer:
    known = [("authorization", f"Bearer {token}"), *headers]
    return app.request("GET", f"{path}?{query}" if query else path, headers=[*known])


def post(app: Application, token: str, path: str, body: Json, *headers: tuple[str, str]) -> Answer:
    known = [("authorization", f"Bearer {token}"), ("content-type", "application/json"), *headers]
    return app.request("POST", path, headers=[*known], body=json.dumps(body).encode())


# The document


def test_the_document_is_valid_openapi_3_0_3(described: Description) -> None:
    """The schema of the specification says so, with every default and reference."""
    assert described.document["openapi"] == "3.0.3"
    assert list(OpenAPIV30SpecValidator(described.document).iter_errors()) == []


def test_the_document_names_its_server(described: Description) -> None:
    """The base address as partners see it; paths are complete."""
    assert described.document["servers"] == [{"url": BASE_URL}]


def test_the_document_names_contact_and_licence(described: Description) -> None:
    info = described.document["info"]
    assert info["contact"] == {"name": "The operator of this server"}
    assert info["license"] == {"name": "Apache 2.0", "url": "https://www.apache.org/licenses/LICENSE-2.0"}


def test_every_component_is_used(described: Description) -> None:
    """Nothing is generated that no operation sends or receives."""
    components = described.document["components"]
    used: set[str] = set()
    reached: list[Any] = [described.document["paths"]]
    while reached:
        text = json.dumps(reached.pop())
        for kind, name in set(re.findall(r'"#/components/(\w+)/([\w-]+)"', text)):
            if f"{kind}/{name}" not in used:
                used.add(f"{kind}/{name}")
                reached.append(components[kind][name])
    schemes = {name for one in described.operations.values() for need in one.details["security"] for name in need}
    used |= {f"securitySchemes/{name}" for name in schemes}
    assert used == {f"{kind}/{name}" for kind, named in components.items() for name in named}


def test_every_enumeration_is_one_named_schema(described: Description) -> None:
    """Else generated clients have a type of their own for each field, with a number in its name."""
    text = json.dumps(described.document["components"]["schemas"])
    for name in ("Status", "SentReason", "Reason", "Result"):
        values = json.dumps(described.document["components"]["schemas"][name]["enum"])
        assert text.count(values) == 1


def test_the_command_prints_the_same_document(
    described: Description, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`stoplist openapi`, with `--json` and without, creates no files."""
    prompt = Prompt(monkeypatch, tmp_path)
    prompt.set(BASE_URL=BASE_URL)
    assert json.loads(prompt.ok("openapi")) == prompt.json("openapi") == described.document
    assert not prompt.data_dir.exists()


# Routes


def test_the_document_describes_seven_operations(described: Description) -> None:
    """The token endpoint and the six operations, each with its own name."""
    operations = described.operations.values()
    assert sorted((one.method, one.path) for one in operations) == sorted(SEVEN)
    assert len(operations) == 7


def test_each_path_takes_the_described_methods_only(app: Application, described: Description, token: str) -> None:
    for path, method in itertools.product(described.document["paths"], METHODS):
        answer = app.call(token, path, method=method)
        is_described = method.lower() in described.document["paths"][path]
        assert (answer.status == 405) is not is_described, (method, path)
        assert answer.status != 404


def test_no_other_route_is_for_partners(app: Application, described: Description) -> None:
    """Beside the token endpoint and /api/v1/ they are those of section D10; test_bearer.py tests missing paths."""
    parts = Parts(
        database=app.database,
        clock=app.clock,
        limiter=app.limiter,
        usage=app.usage,
        metrics=app.metrics,
        readiness=Readiness(app.stop),
        held=app.held,
        secret_keys=("k" * 32,),
        base_url=BASE_URL,
    )
    middleware: Any = build_app(parts, trusted_proxies=()).asgi
    routes = middleware._routes.others.routes
    assert {route.path for route in routes if isinstance(route, Route)} == {
        "/api/v1", "/openapi.json", "/docs", "/healthz", "/readyz", "/", "/favicon.ico", *PAGES,
    }  # fmt: skip
    assert {route.path for route in routes if isinstance(route, Mount)} == {*PAGES}
    assert {path for path in described.document["paths"] if not path.startswith("/api/v1/")} == {TOKEN}


def test_every_operation_names_its_authentication(described: Description) -> None:
    """A bearer token for the six; for tokens HTTP Basic, or none beside credentials or a token in the body."""
    schemes = described.document["components"]["securitySchemes"]
    assert (schemes["basic"]["type"], schemes["basic"]["scheme"]) == ("http", "basic")
    flow = schemes["oauth2"]["flows"]["clientCredentials"]
    assert flow["tokenUrl"] == flow["refreshUrl"] == BASE_URL + TOKEN
    for one in described.operations.values():
        assert one.details["security"] == ([{"basic": []}, {}] if one.path == TOKEN else [{"oauth2": []}])


def test_every_error_of_the_table_is_described(described: Description) -> None:
    """Except `not_found` and `method_not_allowed`, which belong to no operation."""
    of_none = {"not_found", "method_not_allowed"}
    codes = {answer.api_code for answer in errors.ANSWERS.values()} | {
        answer.oauth_code for answer in errors.ANSWERS.values()
    }
    token_only = {"invalid_request", "invalid_client", "invalid_grant", "unsupported_grant_type"}
    refusals = described.refusals()
    assert {code for _, _, code in refusals} == codes - of_none
    assert {code for name, _, code in refusals if name != "getTokens"} == codes - of_none - token_only


# Limits


def test_batches_and_pages_have_the_described_sizes(app: Application, described: Description, token: str) -> None:
    """The largest batch is accepted, one more item or none is refused; pages likewise, by default and at most."""
    batch, path = described.document["components"]["schemas"]["Batch"], "/api/v1/unsubscribe/email"
    most, least = batch["properties"]["items"]["maxItems"], batch["properties"]["items"]["minItems"]
    assert (most, least) == (10_000, 1)
    items = [{"address": f"{n}@example.com"} for n in range(most + 1)]
    assert post(app, token, path, {"items": items}).error == "bad_request"
    assert post(app, token, path, {"items": items[: least - 1]}).error == "bad_request"
    assert post(app, token, path, {"items": items[:most]}).json()["created"] == most
    assert post(app, token, path, {"items": items[:least]}).json()["unchanged"] == least

    (limit,) = (one["schema"] for one in described.operations["listEmailUnsubscribes"].details["parameters"]
                if one["name"] == "limit")  # fmt: skip
    assert (limit["minimum"], limit["default"], limit["maximum"]) == (1, 1_000, 10_000)
    assert len(get(app, token, path).json()["items"]) == limit["default"]
    for number in (limit["minimum"], limit["maximum"]):
        assert len(get(app, token, path, f"limit={number}").json()["items"]) == number
    for number in (limit["minimum"] - 1, limit["maximum"] + 1):
        assert get(app, token, path, f"limit={number}").error == "bad_request"


@pytest.mark.parametrize("channel", CHANNELS)
def test_a_query_takes_the_described_parameters(
    app: Application, described: Description, token: str, channel: str
) -> None:
    """These names and no others, as many look-ups and as long names as described."""
    operation = described.operations[f"list{channel.title()}Unsubscribes"]
    parameters = {one["name"]: one["schema"] for one in operation.details["parameters"] if one["in"] == "query"}
    assert list(parameters) == ["org_slug", "group_id", "limit", "cursor", "address"]
    most = parameters["address"]["maxItems"]
    one = "address=" + GOOD[channel].replace("+", "%2B")
    assert len(get(app, token, operation.path, "&".join([one] * most)).json()["looked_up"]) == most == 100
    assert get(app, token, operation.path, "&".join([one] * (most + 1))).error == "bad_request"
    for name in ("org_slug", "group_id"):
        length = parameters[name]["maxLength"]
        assert get(app, token, operation.path, f"{name}={'x' * length}").error == "unauthorized_organization"
        assert get(app, token, operation.path, f"{name}={'x' * (length + 1)}").error == "bad_request"


def test_an_item_takes_the_described_fields(app: Application, described: Description, token: str) -> None:
    """Every described value is accepted (`consent` with `resubscribed`), no other, and no longer text."""
    known = described.document["components"]["schemas"]["Item"]
    fields = known["properties"]
    assert known["required"] == ["address"]
    assert known["additionalProperties"] is False

    def error_of(**item: Any) -> str:
        answer = post(app, token, "/api/v1/unsubscribe/email", {"items": [{"address": "a@example.com"} | item]})
        return "" if answer.status == 200 else str(answer.error)

    past = "2026-01-01T00:00:00Z"
    assert set(fields) == {"address", "status", "occurred_at", "reason", "source"}
    assert [error_of(**{name: None}) for name in fields if name != "address"] == [""] * 4
    reasons, statuses = (described.values_of(fields[name]) for name in ("reason", "status"))
    assert (reasons.pop(), statuses) == (None, ["unsubscribed", "resubscribed", None])
    for reason in set(reasons) - {"consent"}:
        assert error_of(reason=reason) == ""
    assert error_of(status="resubscribed", occurred_at=past, reason="consent") == ""
    assert error_of(reason="consent") == error_of(reason="correction") == error_of(status="gone") == "invalid_item"
    assert error_of(unknown="x") == "invalid_item"
    assert error_of(source="x" * fields["source"]["maxLength"]) == ""
    assert error_of(source="x" * (fields["source"]["maxLength"] + 1)) == "invalid_item"


def test_a_body_takes_the_described_fields(app: Application, described: Description, token: str) -> None:
    """Each may be null if its type says so; any other field is refused."""
    fields = described.document["components"]["schemas"]["Batch"]["properties"]
    batch: Json = {"items": [{"address": "a@example.com"}]}
    for name in fields.keys() - {"items"}:
        assert fields[name]["nullable"]
        assert post(app, token, "/api/v1/unsubscribe/email", batch | {name: None}).status == 200
    assert post(app, token, "/api/v1/unsubscribe/email", batch | {"unknown": None}).error == "bad_request"


def test_a_body_names_a_group_or_all_groups(app: Application, described: Description, token: str) -> None:
    """The schema and the server refuse both together."""
    group = app.value("SELECT group_id AS id FROM groups")
    for all_groups, group_id, is_valid in [
        (True, group, False), (True, None, True), (False, group, True), (None, group, True),
    ]:  # fmt: skip
        batch: Json = {"items": [{"address": "a@example.com"}], "all_groups": all_groups, "group_id": group_id}
        errors = described.request_errors(batch, {"$ref": "#/components/schemas/Batch"})
        assert (errors == []) is is_valid
        assert (post(app, token, "/api/v1/unsubscribe/email", batch).status == 200) is is_valid


def test_address_and_cursor_exclude_each_other_in_words(described: Description) -> None:
    """OpenAPI 3.0.3 cannot say it of parameters."""
    parameters = described.operations["listEmailUnsubscribes"].details["parameters"]
    words = {one["name"]: one["description"] for one in parameters}
    assert "Not together with `address`" in words["cursor"]
    assert "Not together with `cursor`" in words["address"]
    assert "Changes nothing beside `address`" in words["limit"]


# Answers


def answers_of_the_api(app: Application, channel: str) -> Iterator[tuple[str, Answer]]:
    """Yield every kind of answer of a channel, with its method."""
    path = f"/api/v1/unsubscribe/{channel}"
    item = {"address": GOOD[channel], "occurred_at": "2026-01-01T00:00:00Z", "source": "form"}
    bad = {"address": "nobody"}
    app.administer(create_organization, slug="bare", name="Bare", default_group=None)
    key = app.new_key(permissions=ALL, organizations=["acme", "bare"], default_organization="acme")
    token = app.pair(key)["access_token"]
    unsubscriber = app.pair(app.new_key(permissions=frozenset(["unsubscribe"])))["access_token"]
    reader = app.pair(app.new_key(permissions=frozenset(["read"])))["access_token"]
    yield "POST", post(app, token, path, {"items": [item]})
    yield "POST", post(app, token, path, {"items": [item, bad]}, ("prefer", "handling=lenient"))
    yield "POST", post(app, token, path, {"items": [item], "all_groups": True}, ("prefer", "return=minimal"))
    yield "POST", post(app, token, path, {"items": [item | {"status": "resubscribed"}]})
    yield "POST", post(app, token, path, {"items": [bad]})
    yield "POST", post(app, token, path, {})
    yield "POST", post(app, token, path, {"unknown": 1})
    yield "POST", post(app, token, path, {"org_slug": "bare", "items": [item]})
    yield "POST", post(app, token, path, {"org_slug": "nobody", "items": [item]})
    yield "POST", post(app, reader, path, {"items": [item]})
    yield "POST", post(app, "", path, {"items": [item]})
    yield "GET", get(app, token, path)
    yield "GET", get(app, token, path, "address=" + GOOD[channel].replace("+", "%2B"))
    yield "GET", get(app, token, path, "limit=0")
    yield "GET", get(app, token, path, "Limit=1")
    yield "GET", get(app, token, path, "cursor=x")
    yield "GET", get(app, token, path, "group_id=nothing")
    yield "GET", get(app, unsubscriber, path)
    yield "GET", get(app, "svc_at_x", path)
    app.administer(ceilings.set_ceilings, client_id=key.client_id, token_per_minute=None, api_per_minute=1)
    yield "GET", get(app, token, path)
    yield "POST", post(app, token, path, {"items": [item]})
    for failing in failing_applications(app):
        yield "GET", get(failing, token, path)
        yield "POST", post(failing, token, path, {"items": [item]})


def answers_of_the_token_endpoint(app: Application) -> Iterator[tuple[str, Answer]]:
    """Yield every kind of answer of the token endpoint, with its method."""
    key = app.new_key()
    yield "POST", app.issue(key)
    yield "POST", app.refresh(app.pair(key)["refresh_token"])
    yield "POST", app.ask_token({})
    yield "POST", app.ask_token({"grant_type": "password"}, key.basic)
    yield "POST", app.refresh("svc_rt_x")
    yield "POST", app.ask_token(CLIENT_CREDENTIALS)
    for failing in failing_applications(app):
        yield "POST", failing.issue(key)
    app.administer(ceilings.set_ceilings, client_id=key.client_id, token_per_minute=1, api_per_minute=None)
    yield "POST", app.issue(key)


def failing_applications(app: Application) -> Iterator[Application]:
    """Yield applications whose database is unavailable or raises an unexpected exception."""
    for error in (StoreUnavailable("The database does not answer."), RuntimeError("What was that?")):
        yield Application(app.run, FailingDatabase(error), app.clock)


@pytest.mark.parametrize("path", ["/oauth/token", *(f"/api/v1/unsubscribe/{channel}" for channel in CHANNELS)])
def test_real_answers_are_as_described(app: Application, described: Description, path: str) -> None:
    """Status, media type, headers and body without additional fields; every described refusal occurs, and no other."""
    asked = answers_of_the_token_endpoint(app) if path == TOKEN else answers_of_the_api(app, path.rpartition("/")[2])
    operations = {one.method: one for one in described.operations.values() if one.path == path}
    seen: set[tuple[str, int, str]] = set()
    for method, answer in asked:
        described.check(operations[method], answer)
        seen.add((operations[method].name, answer.status, "" if answer.status == 200 else answer.error))
    names = {one.name for one in operations.values()}
    expected = {refusal for refusal in described.refusals() if refusal[0] in names} | {(n, 200, "") for n in names}
    assert seen == expected


def test_answers_have_no_defaults(described: Description) -> None:
    """A field of an answer is present or absent: no client has to fill one in."""
    all_ = described.document["components"]["schemas"]
    for name in ("TokenPair", "Page", "Record", "Submission", "ItemResult", "ItemError"):
        assert not [field for field, known in all_[name]["properties"].items() if "default" in known]
    assert set(all_["TokenPair"]["required"]) == set(all_["TokenPair"]["properties"])


# Examples


def test_every_example_matches_its_schema(described: Description) -> None:
    """This holds for requests, answers and headers; every answer has examples."""
    for one in described.operations.values():
        if "requestBody" in one.details:
            for example in one.body["examples"].values():
                assert described.request_errors(example["value"], one.body["schema"]) == []
        for status in one.details["responses"]:
            content = one.answer(int(status))
            assert content["examples"]
            for example in content["examples"].values():
                assert described.answer_errors(example["value"], content["schema"]) == []
    for header in described.document["components"]["headers"].values():
        assert described.answer_errors(header["example"], header["schema"]) == []


def test_every_refusal_example_has_its_own_code(described: Description) -> None:
    for name, status, code in described.refusals():
        example = described.operations[name].answer(status)["examples"][code]
        assert example["value"]["error"] == example["summary"] == code


@pytest.mark.parametrize("channel", CHANNELS)
def test_the_examples_of_a_submission_work_as_described(
    app: Application, described: Description, token: str, channel: str
) -> None:
    """Only ids, cursors and the time of recording differ; `acme` has a default group, as in the text."""
    group = app.value("SELECT group_id AS id FROM groups")
    submit = described.operations[f"submit{channel.title()}Unsubscribes"]
    follow = described.operations[f"list{channel.title()}Unsubscribes"]
    bodies = examples(submit.body, group)
    shown, pages = examples(submit.answer(200), group), examples(follow.answer(200), group)

    def sent(body: Json, *headers: tuple[str, str]) -> Json:
        answer = post(app, token, submit.path, body, *headers)
        assert answer.status == 200, answer.body
        return normalized(answer.json())

    assert sent(bodies["two-opt-outs"]) == normalized(shown["two-opt-outs"])
    page = get(app, token, follow.path).json()
    assert normalized(page) == normalized(pages["a-page"])
    later = get(app, token, follow.path, f"cursor={page['next_cursor']}").json()
    assert normalized(later) == normalized(pages["nothing-changed-since-the-cursor"])
    address = bodies["two-opt-outs"]["items"][0]["address"].replace("+", "%2B")
    assert normalized(get(app, token, follow.path, f"address={address}").json()) == normalized(pages["a-look-up"])
    assert sent(bodies["somebody-came-back"])["updated"] == 1
    assert sent(bodies["from-every-message-of-an-organization"])["created"] == 1


@pytest.mark.parametrize("channel", CHANNELS)
def test_the_described_preferences_are_applied(
    app: Application, described: Description, token: str, channel: str
) -> None:
    """Each by an answer that says so; a wait is described for a request with a cursor, here one with news."""
    submit = described.operations[f"submit{channel.title()}Unsubscribes"]
    follow = described.operations[f"list{channel.title()}Unsubscribes"]
    cursor = get(app, token, follow.path).json()["next_cursor"]
    for value in preferences(submit):
        answer = post(app, token, submit.path, {"items": [{"address": GOOD[channel]}]}, ("prefer", value))
        assert (answer.status, answer.header("preference-applied")) == (200, value)
    for value in preferences(follow):
        answer = get(app, token, follow.path, f"cursor={cursor}", ("prefer", value))
        assert (answer.header("preference-applied"), len(answer.json()["items"])) == (value, 1)


def preferences(operation: DescribedOperation) -> list[str]:
    """Return the values of `Prefer` that the description of the operation shows."""
    (described,) = (one for one in operation.details["parameters"] if one["name"] == "Prefer")
    return [example["value"] for example in described["examples"].values()]


@pytest.mark.parametrize("channel", CHANNELS)
def test_the_example_of_a_bad_item_is_the_real_answer(
    app: Application, described: Description, token: str, channel: str
) -> None:
    submit = described.operations[f"submit{channel.title()}Unsubscribes"]
    good = submit.body["examples"]["two-opt-outs"]["value"]["items"][0]
    nobody = {"email": "grace.hopper@example", "sms": "07700 900123", "phone": "020 7946 0018"}[channel]
    shown = submit.answer(400)["examples"]["invalid_item"]["value"]
    assert post(app, token, submit.path, {"items": [good, {"address": nobody}]}).json() == shown


def test_the_examples_of_a_token_request_work(app: Application, described: Description, partner: Key) -> None:
    """The key is in the header; the refresh token is replaced by a real one."""
    operation = described.operations["getTokens"]
    forms = {name: example["value"] for name, example in operation.body["examples"].items()}
    assert set(forms) == {"client_credentials", "refresh_token"}
    pair = app.ask_token(forms["client_credentials"], partner.basic).json()
    refreshed = app.ask_token(forms["refresh_token"] | {"refresh_token": pair["refresh_token"]})
    assert refreshed.status == 200


def examples(content: Json, group_id: str) -> Json:
    """Return the values of examples, with the id of a real group."""
    texts = {name: json.dumps(example["value"]) for name, example in content["examples"].items()}
    return {name: json.loads(text.replace(GROUP, group_id)) for name, text in texts.items()}


def normalized(answer: Json) -> Json:
    """Return an answer without random ids, times and digests, and with `seq` counted from its first record."""
    text = re.sub(r"(uns|sub)_[0-9A-Za-z]{22}", r"\1_", json.dumps(answer))
    known: Json = json.loads(text)
    if known.get("next_cursor"):
        known["next_cursor"] = CURSOR
    for name in ("seq", "digest"):
        (known.get("state") or {}).pop(name, None)
    items = known.get("items", [])
    first = items[0].get("seq", 0) if items else 0
    for item in items:
        item.pop("recorded_at", None)
        if "seq" in item:
            item["seq"] -= first
    return known
