"""Everything that docs/partner-guide.md tells a partner to type or believe is done here, from top to bottom.

The ids, secrets and cursors of the guide stand for those that a reader gets: each is paired with the real one where it
first appears in an output, and every later command and output must agree with that pair.
"""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from stoplist import errors
from tests.e2e.running import STOPLIST, Lines, Place, Server

GUIDE = Path(__file__).parents[2] / "docs" / "partner-guide.md"
# What the guide's commands call; in CI one that is missing fails the tests.
PROGRAMS = ("bash", "curl", "gzip", "python3")
MISSING = [name for name in PROGRAMS if shutil.which(name) is None]
needs_programs = pytest.mark.skipif(bool(MISSING) and not os.environ.get("CI"), reason=f"not installed: {MISSING}")
BASE_URL = "https://localhost:8443"

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"# (\w+\.py)\b")
# Made by chance: ids, secrets, tokens; cursors, which have 32 characters and no prefix.
_CHANCE = re.compile(r"\b(?:(?:svc_[a-z]{2}|grp|sub|uns)_\w+|[A-Za-z0-9_-]{32})(?![\w-])")
# Of the moment: when the service recorded something, how much of a minute is left.
_NOW = re.compile(r'(?<="recorded_at":")[^"]+|(?<="recorded_at": ")[^"]+|(?<=;r=)\d+|(?<=;t=)\d+|(?<=created_at)\s+\S+')


class Block(NamedTuple):
    """A fenced block, and the output that is stated below it."""

    line: int
    language: str
    text: str
    stated: str


def blocks() -> list[Block]:
    """What is to be typed or saved, in order, each with the output that follows it."""
    text = GUIDE.read_text()
    found: list[Block] = []
    for match in _BLOCK.finditer(text):
        language, content = match.groups()
        if language in ("sh", "python"):
            found.append(Block(text.count("\n", 0, match.start()) + 1, language, content, ""))
        else:
            assert language in ("text", "json"), match[0]
            assert not found[-1].stated, "an output belongs to the block above it"
            found[-1] = found[-1]._replace(stated=content)
    return found


class Reader:
    """Somebody who types what the guide says, on the machine of its server, and compares what comes back."""

    def __init__(self, place: Place, server: Server, shell: "Shell") -> None:
        self._folder, self._shell = place.folder, shell
        self._base_url = server.base_url
        self._real: dict[str, str] = {}  # by what stands for it in the guide

    def follow(self, block: Block) -> None:
        """The block is done, and what it prints is what the guide says."""
        text = self._translated(block.text)
        if block.language == "sh":
            printed = self._shell.printed(text)
        elif file := _FILE.match(text):
            (self._folder / file[1]).write_text(text)
            printed = ""
        else:
            printed = self._shell.printed(f"python3 - <<'TYPED'\n{text}TYPED\n")
        self._compare(block, printed)

    def _compare(self, block: Block, printed: str) -> None:
        where = f"{GUIDE.name}, line {block.line}"
        stated = block.stated
        self._pair(_CHANCE.findall(stated), _CHANCE.findall(printed), where)
        wanted, found = (_NOW.sub("NOW", text) for text in (self._translated(stated), printed))
        if stated.startswith("{"):
            assert list(documents(found)) == list(documents(wanted)), where
        else:
            assert [line.split() for line in found.splitlines()] == [line.split() for line in wanted.splitlines()], (
                where
            )

    def _pair(self, stated: list[str], printed: list[str], where: str) -> None:
        assert len(stated) == len(printed), f"{where}: {printed}"
        for example, real in zip(stated, printed, strict=True):
            assert self._real.setdefault(example, real) == real, f"{where}: {example} has stood for another one"
        assert len(set(self._real.values())) == len(self._real), f"{where}: two examples stand for the same"

    def _translated(self, text: str) -> str:
        real = _CHANCE.sub(lambda example: self._real.get(example[0], example[0]), text)
        return real.replace(BASE_URL, self._base_url)


class Shell:
    """A shell that stays open from one block to the next, and ends at the first command that fails."""

    def __init__(self, place: Place) -> None:
        self._process = subprocess.Popen(
            ["bash", "-e", "-o", "pipefail"],
            cwd=place.folder,
            env=place.variables | {"PATH": f"{STOPLIST.parent}:{place.variables['PATH']}"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert self._process.stdout is not None
        self._output = Lines(self._process.stdout)
        self._typed = 0

    def printed(self, text: str) -> str:
        """What these commands print, the errors too."""
        assert self._process.stdin is not None
        self._typed += 1
        before, end = len(self._output.text), f"--- {self._typed} done\n"
        self._process.stdin.write(f"{text}\nprintf '\\n%s' '{end}'\n")
        self._process.stdin.flush()
        assert self._output.holds(f"\n{end}"), f"{text}\n{self._output.text[before:]}"
        return self._output.text[before:].removesuffix(f"\n{end}")

    def close(self) -> None:
        """It is gone, with what it may still be doing."""
        self._process.kill()
        self._process.communicate()


def documents(text: str) -> Iterator[Any]:
    """The JSON documents of a text, which stand one after the other."""
    decoder, at = json.JSONDecoder(), 0
    while at < len(text := text.rstrip()):
        document, end = decoder.raw_decode(text, at)
        yield document
        at = end + len(text[end:]) - len(text[end:].lstrip())


@needs_programs
def test_every_command_of_the_guide_does_and_prints_what_the_guide_says(place: Place) -> None:
    """A partner's engineer who types all of it, in order, meets nothing else. (This is the test of every command.)"""
    with place.serving() as server, closing(Shell(place)) as shell:
        reader = Reader(place, server, shell)
        for block in blocks():
            reader.follow(block)


class Row(NamedTuple):
    """A line of the worked example."""

    number: str
    status: str
    occurred_at: str
    result: str
    status_after: str
    since: str


def worked_example() -> list[Row]:
    """The acts of the table on precedence."""
    line = re.compile(
        r"^\| (\d+) \| `(\w+)` \| (none|\d\d:\d\d) \| `(\w+)` \| `(\w+)` since (now|\d\d:\d\d) \|", re.MULTILINE
    )
    return [Row(*match.groups()) for match in line.finditer(GUIDE.read_text())]


def test_the_worked_example_of_precedence_is_what_happens(place: Place) -> None:
    """Act by act: the result, and the record afterwards."""
    rows = worked_example()
    assert [row.number for row in rows] == [str(number) for number in range(1, 10)]
    with place.serving() as server, server.client() as client:
        authorize(place, client)
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


def authorize(place: Place, client: httpx.Client) -> None:
    """The client speaks for a key that may do all."""
    place.ok("org", "create", "acme", "--name", "Acme", "--default-group", "Newsletter")
    permissions = [f"--permission={name}" for name in ("read", "unsubscribe", "resubscribe")]
    key = place.json("key", "create", "--label=x", "--org=acme", *permissions)
    form = {"grant_type": "client_credentials"}
    token = client.post("/oauth/token", data=form, auth=(key["client_id"], key["client_secret"])).json()
    client.headers["Authorization"] = f"Bearer {token['access_token']}"


def errors_of(heading: str) -> dict[str, set[int]]:
    """The statuses by code in the table of errors that follows this line."""
    table = GUIDE.read_text().split(heading, 1)[1].split("\n\n", 2)[1]
    line = re.compile(r"^\| `(\w+)` \| (\d{3}(?:, \d{3})*) \|", re.MULTILINE)
    return {code: set(map(int, statuses.split(", "))) for code, statuses in line.findall(table)}


def test_the_tables_of_errors_have_every_error_that_a_partner_can_get_and_no_other() -> None:
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
