"""Runs every command of docs/partner-guide.md, and checks its claims, from top to bottom."""

import os
import re
import shutil
from contextlib import closing
from typing import NamedTuple

import httpx
import pytest

from stoplist import errors
from tests.constants import ROOT
from tests.e2e.reader import Reader, Shell
from tests.e2e.server_process import Installation
from tests.keys import CLIENT_CREDENTIALS

GUIDE = ROOT / "docs" / "partner-guide.md"
# Programs used by the guide's commands; in CI a missing one fails the tests.
PROGRAMS = ("bash", "curl", "gzip", "python3")
MISSING = [name for name in PROGRAMS if shutil.which(name) is None]
needs_programs = pytest.mark.skipif(bool(MISSING) and not os.environ.get("CI"), reason=f"not installed: {MISSING}")


@needs_programs
def test_every_command_of_the_guide_prints_what_the_guide_says(installation: Installation) -> None:
    """A partner's engineer who runs them all, in order, sees nothing else. (This is the test of every command.)"""
    with installation.serving() as server, closing(Shell(installation)) as shell:
        Reader(installation, server, shell).follow(GUIDE)


class ExampleRow(NamedTuple):
    """A row of the worked example."""

    number: str
    status: str
    occurred_at: str
    result: str
    status_after: str
    since: str


def worked_example() -> list[ExampleRow]:
    """Return the acts in the table on precedence."""
    line = re.compile(
        r"^\| (\d+) \| `(\w+)` \| (none|\d\d:\d\d) \| `(\w+)` \| `(\w+)` since (now|\d\d:\d\d) \|", re.MULTILINE
    )
    return [ExampleRow(*match.groups()) for match in line.finditer(GUIDE.read_text())]


def test_the_worked_example_of_precedence_is_correct(installation: Installation) -> None:
    """Act by act: the result, and the record afterwards."""
    rows = worked_example()
    assert [row.number for row in rows] == [str(number) for number in range(1, 10)]
    with installation.serving() as server, server.client() as client:
        authorize(installation, client)
        path = "/api/v1/unsubscribe/email"
        for row in rows:
            item = {"address": "ann@example.com", "status": row.status}
            if row.occurred_at != "none":
                item["occurred_at"] = f"2026-03-01T{row.occurred_at}:00Z"
            (answer,) = client.post(path, json={"items": [item]}).json()["items"]
            (record,) = client.get(path).json()["items"]
            since = record["recorded_at"][:10] if row.since == "now" else f"2026-03-01T{row.since}:00.000Z"
            assert (answer["result"], answer["status"]) == (row.result, row.status_after), row
            assert record["status"] == row.status_after, row
            assert record["occurred_at"].startswith(since), row
            assert ("latest_act_at" in answer) == (row.result == "outranked"), row


def authorize(installation: Installation, client: httpx.Client) -> None:
    """Authorize the client by a key with all permissions."""
    installation.ok("org", "create", "acme", "--name", "Acme", "--default-group", "Newsletter")
    permissions = [f"--permission={name}" for name in ("read", "unsubscribe", "resubscribe")]
    key = installation.json("key", "create", "--label=x", "--org=acme", *permissions)
    form = CLIENT_CREDENTIALS
    token = client.post("/oauth/token", data=form, auth=(key["client_id"], key["client_secret"])).json()
    client.headers["Authorization"] = f"Bearer {token['access_token']}"


def errors_of(heading: str) -> dict[str, set[int]]:
    """Return the statuses by code in the table of errors that follows this line."""
    table = GUIDE.read_text().split(heading, 1)[1].split("\n\n", 2)[1]
    line = re.compile(r"^\| `(\w+)` \| (\d{3}(?:, \d{3})*) \|", re.MULTILINE)
    return {code: set(map(int, statuses.split(", "))) for code, statuses in line.findall(table)}


def test_the_tables_have_exactly_the_errors_of_partners() -> None:
    """Code and status, at the API and at the token endpoint."""
    of_tokens = (errors.InvalidClient, errors.InvalidGrant, errors.UnsupportedGrantType)
    of_both = (errors.BadRequest, errors.RateLimited, errors.StoreUnavailable, errors.ServerFault)
    api = {answer.api_code: {answer.status} for error, answer in errors.ANSWERS.items() if error not in of_tokens}
    tokens: dict[str, set[int]] = {}
    for error in (*of_tokens, *of_both, errors.MethodNotAllowed):
        answer = errors.ANSWERS[error]
        tokens.setdefault(answer.oauth_code, set()).add(answer.status)
    assert errors_of("\nThe API answers with") == api
    assert errors_of("\nThe token endpoint answers with") == tokens
