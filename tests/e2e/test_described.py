"""The OpenAPI description against a real server: requests generated from it, and its code samples."""

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from schemathesis import APIOperation, Case, GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.constants import HIGH_LIMIT, PATIENCE_S
from tests.e2e.server_process import Installation, RunningServer, run_program
from tests.e2e.test_demo import needs_curl
from tests.keys import CLIENT_CREDENTIALS, EVERY_PERMISSION, Key

Json = dict[str, Any]
AnyCase = Case[Any]
AnyOperation = APIOperation[Any, Any, Any, Any]

EXAMPLES = 40
TOKEN = "/oauth/token"
CHANNELS = ["email", "sms", "phone"]
SEVEN = [
    f"POST {TOKEN}",
    *(f"{method} /api/v1/unsubscribe/{channel}" for channel in CHANNELS for method in ("GET", "POST")),
]
CHECKS: list[Any] = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]


class DescribedServer(NamedTuple):
    """A server, its description, and a key with all permissions and high limits."""

    installation: Installation
    server: RunningServer
    key: Key
    document: Json

    def new_pair(self) -> Json:
        """Request a new pair of tokens."""
        with self.server.client(auth=self.key) as client:
            answer = client.post(TOKEN, data=CLIENT_CREDENTIALS)
        pair: Json = answer.raise_for_status().json()
        return pair


@pytest.fixture(scope="module")
def partner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DescribedServer]:
    installation = Installation(tmp_path_factory.mktemp("described"))
    with installation.serving() as server:
        installation.ok("org", "create", "acme", "--name", "Acme", "--default-group", "Newsletter")
        key = installation.new_key(per_minute=HIGH_LIMIT, may=EVERY_PERMISSION)
        with server.client() as client:
            yield DescribedServer(installation, server, key, client.get("/openapi.json").raise_for_status().json())


@pytest.fixture(scope="module")
def session(partner: DescribedServer) -> Iterator[requests.Session]:
    """Return a client that keeps its connection."""
    with requests.Session() as session:
        session.trust_env = False
        yield session


# Requests generated from the description


@pytest.fixture(scope="module")
def operations(partner: DescribedServer) -> dict[str, AnyOperation]:
    """Return all operations by method and path."""
    found: list[Any] = list(schemathesis.openapi.from_dict(partner.document).get_all_operations())
    return {one.ok().label: one.ok() for one in found}


def test_there_are_seven_operations(operations: dict[str, AnyOperation]) -> None:
    """So that none is left out below."""
    assert sorted(operations) == sorted(SEVEN)


@pytest.mark.slow
@pytest.mark.parametrize("label", SEVEN)
def test_generated_requests_are_answered_as_described(
    partner: DescribedServer, session: requests.Session, operations: dict[str, AnyOperation], label: str
) -> None:
    """Never with 5xx: what fits the description, what nearly does, and what names only what is there, which succeeds.

    Each answer has a status, headers and a body that the operation's description announces.
    """
    access_token = partner.new_pair()["access_token"]
    successes = accepted_items = 0

    def send_once(case: AnyCase) -> Any:
        if label.endswith(TOKEN):
            access: Json = {"auth": partner.key}
        else:
            access = {"headers": {"Authorization": f"Bearer {access_token}"}}
        response = case.call(
            base_url=partner.server.base_url,
            session=session,
            verify=str(partner.server.ca),
            timeout=PATIENCE_S,
            **access,
        )
        case.validate_response(response, checks=CHECKS)
        return response

    def acquire_existing(case: AnyCase) -> None:
        nonlocal successes, accepted_items
        use_real_values(case, partner)
        response = send_once(case)
        assert response.status_code == 200, response.text
        successes += 1
        answer = response.json()
        accepted_items += answer.get("received", 0) - len(answer.get("item_errors", ()))

    for_each(operations[label], GenerationMode.POSITIVE, send_once)
    for_each(operations[label], GenerationMode.NEGATIVE, send_once)
    for_each(operations[label], GenerationMode.POSITIVE, acquire_existing)
    assert successes >= EXAMPLES
    assert (accepted_items >= EXAMPLES) is label.startswith("POST /api")


def for_each(operation: AnyOperation, mode: GenerationMode, send_once: Callable[[AnyCase], Any]) -> None:
    """Run the same examples each time, without a random search."""

    @seed(4)
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def run_case(case: AnyCase) -> None:
        send_once(case)

    run_case()


def use_real_values(case: AnyCase, partner: DescribedServer) -> None:
    """Replace generated values by real ones: credentials, the organization and group, addresses, a cursor."""
    body: Any = case.body
    if case.path == TOKEN:
        case.body = {name: body[name] for name in ("grant_type", "refresh_token") if name in body}
        if "refresh_token" in body:
            case.body["refresh_token"] = partner.new_pair()["refresh_token"]
        return
    address = "ann@example.com" if case.path.endswith("email") else "+14155550123"
    named: Json = body if case.method == "POST" else case.query
    for name in ("org_slug", "group_id", "cursor"):
        named.pop(name, None)
    if case.method == "POST":
        case.headers["Prefer"] = "handling=lenient"
        for number, item in enumerate(body["items"]):
            item["address"] = address.replace("0123", f"{number % 10_000:04}").replace("ann", f"ann{number}")
    elif named.get("address"):
        named["address"] = [address] * len(named["address"])


# The code samples


@pytest.fixture(scope="module")
def variables(partner: DescribedServer) -> dict[str, str]:
    """Return the variables that the page says the samples need."""
    pair = partner.new_pair()
    return partner.installation.variables | {
        "SSL_CERT_FILE": str(partner.server.ca),
        "CLIENT_ID": partner.key.client_id,
        "CLIENT_SECRET": partner.key.client_secret,
        "TOKEN": pair["access_token"],
    }


def samples(partner: DescribedServer, label: str, language: str) -> list[str]:
    """Return the sources of an operation's samples in a language."""
    method, path = label.split(" ")
    all_ = partner.document["paths"][path][method.lower()]["x-codeSamples"]
    return [sample["source"] for sample in all_ if sample["lang"] == language]


def run_sample(command: list[str], source: str, variables: dict[str, str], folder: Path) -> str:
    """Run the sample and return what it prints."""
    done = run_program(*command, folder=folder, variables=variables, given=source)
    assert (done.status, done.err) == (0, ""), done
    return done.out


@needs_curl
@pytest.mark.parametrize("label", SEVEN)
def test_the_shell_samples_work(
    partner: DescribedServer, variables: dict[str, str], label: str, tmp_path: Path
) -> None:
    """Each is answered with success."""
    sources = samples(partner, label, "Shell")
    assert sources
    for source in sources:
        if "REFRESH_TOKEN" in source:
            variables = variables | {"REFRESH_TOKEN": partner.new_pair()["refresh_token"]}
        assert "error" not in json.loads(run_sample(["bash", "-e"], source, variables, tmp_path))


@pytest.mark.parametrize("channel", CHANNELS)
def test_the_python_samples_work_in_order(
    partner: DescribedServer, variables: dict[str, str], channel: str, tmp_path: Path
) -> None:
    """A token, two opt-outs, all records; and a second run of the last sample finds nothing new."""
    python = [sys.executable, "-I", "-"]
    path = f"/api/v1/unsubscribe/{channel}"
    (get_token,) = samples(partner, f"POST {TOKEN}", "Python")
    (submit,) = samples(partner, f"POST {path}", "Python")
    (follow,) = samples(partner, f"GET {path}", "Python")
    token = run_sample(python, get_token, variables, tmp_path).strip()
    variables = variables | {"TOKEN": token}
    assert "'received': 2" in run_sample(python, submit, variables, tmp_path)
    assert run_sample(python, follow, variables, tmp_path).count("unsubscribed") >= 2
    assert os.listdir(tmp_path) == [f"{channel}.cursor"]
    assert run_sample(python, follow, variables, tmp_path) == ""


def test_the_python_samples_print_refusals(partner: DescribedServer, variables: dict[str, str], tmp_path: Path) -> None:
    """Here it is that of a bad batch."""
    (submit,) = samples(partner, "POST /api/v1/unsubscribe/email", "Python")
    wrong = submit.replace("@example.org", "@example")
    done = run_program(sys.executable, "-I", "-", folder=tmp_path, variables=variables, given=wrong)
    assert done.status == 1
    assert json.loads(done.err)["error"] == "invalid_item"
