"""`stoplist addresses` (docs/interface.md sections D7 and D9)."""

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

from stoplist.actor import Actor
from stoplist.db import Database
from stoplist.unsubscribes.channel import CHANNELS
from stoplist.unsubscribes.model import Item, OptOutStores, RequestedTarget
from stoplist.unsubscribes.submit import submit
from tests.builders import execute, make_key, make_organization, on_database
from tests.cli.command_line import CommandResult, Prompt
from tests.fakes import FakeClock


@pytest.fixture
def check(empty: Prompt) -> Prompt:
    """A prompt without a database, which `check` does not need."""
    return empty


def write_list(prompt: Prompt, content: bytes | str) -> str:
    """Write a list with this content, and return its path."""
    path = prompt.folder / "list.txt"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return str(path)


def test_each_line_is_shown_as_it_would_be_stored(check: Prompt) -> None:
    """It has its number; empty lines are skipped, and the count goes to stderr."""
    file = write_list(check, "Jane@Example.COM\n\n \t\r\n jane@bücher.example\r\nlast@example.com")
    assert check.run("addresses", "check", "email", file) == CommandResult(
        0,
        "1: jane@example.com\n4: jane@xn--bcher-kva.example\n5: last@example.com\n",
        "3 addresses, 0 of them wrong.\n",
    )
    assert list(check.folder.iterdir()) == [Path(file)]


def test_a_wrong_line_shows_its_error_and_sets_status_1(check: Prompt) -> None:
    result = check.run("addresses", "check", "phone", write_list(check, "+44 (0)20 7946 0958\n020 7946 0958\n"))
    first, second = result.out.splitlines()
    assert first == "1: +442079460958"
    assert second.startswith("2: error: The phone number does not begin with +")
    assert "7946" not in second
    assert (result.status, result.err) == (1, "stoplist: 2 addresses, 1 of them wrong.\n")


def test_json_is_an_array_of_the_lines(check: Prompt) -> None:
    """Each element has an address or an error."""
    result = check.run("addresses", "check", "sms", write_list(check, "+14155550123\n\n+1\n"), "--json")
    address, error = json.loads(result.out)
    assert address == {"line": 1, "address": "+14155550123"}
    assert error == {"line": 3, "error": "The phone number is too short for the numbers of its country."}
    assert result.status == 1


@pytest.mark.parametrize(("lines", "count"), [(0, 0), (1, 1), (1000, 1000), (2500, 2500)])
def test_json_is_complete_for_any_number_of_lines(lines: int, count: int, check: Prompt) -> None:
    """No line, one line, and more than are printed at once."""
    file = write_list(check, "jane@example.com\n" * lines)
    assert [each["line"] for each in check.json("addresses", "check", "email", file)] == list(range(1, count + 1))


def test_a_dash_is_the_standard_input(check: Prompt, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"jane@example.com\n")))
    assert check.ok("addresses", "check", "email", "-") == "1: jane@example.com\n"


def test_a_closed_standard_input_is_refused(check: Prompt, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python then has None as sys.stdin."""
    monkeypatch.setattr(sys, "stdin", None)
    assert "standard input is closed" in check.refused("addresses", "check", "email", "-")


def test_a_byte_order_mark_is_ignored(check: Prompt) -> None:
    """Spreadsheets write one."""
    assert check.ok("addresses", "check", "email", write_list(check, "\ufeffa@example.com\n")) == "1: a@example.com\n"


def test_a_line_in_another_encoding_is_wrong(check: Prompt) -> None:
    """The error says what to do. A guessed encoding could suppress the address of another person."""
    result = check.run("addresses", "check", "email", write_list(check, b"jos\xe9@example.com\na@example.com\n"))
    assert result.out == "1: error: The line is not UTF-8. Save the list in that encoding.\n2: a@example.com\n"
    assert result.status == 1


def test_a_missing_list_is_refused(check: Prompt) -> None:
    """So is a folder."""
    assert "No such file" in check.refused("addresses", "check", "email", "nowhere.txt")
    assert "Is a directory" in check.refused("addresses", "check", "email", str(check.folder))


def test_an_unknown_channel_is_wrong_usage(check: Prompt) -> None:
    assert "'email', 'sms', 'phone'" in check.wrong_usage("addresses", "check", "fax", "-")


def test_the_first_lines_are_shown_before_the_last_is_read() -> None:
    """A million lines neither fill the memory nor delay the first result."""
    program = [sys.executable, "-c", "from stoplist.cli import main; main()", "addresses", "check", "email", "-"]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as running:
        assert running.stdin is not None
        assert running.stdout is not None
        running.stdin.write(b"jane@example.com\n" * 5000)
        running.stdin.flush()
        assert running.stdout.readline() == b"1: jane@example.com\n"
        running.stdin.close()
        assert running.stdout.read().count(b"\n") == 4999


# changed


@pytest.fixture(params=["sqlite", "postgresql"])
def stored(request: pytest.FixtureRequest, empty: Prompt) -> Prompt:
    """A prompt with a database, of each kind, that holds two addresses of the organization `acme`."""
    if request.param == "postgresql":
        empty.set(DATABASE_URL=request.getfixturevalue("postgresql_url"))
    empty.ok("migrate")

    async def fill(database: Database) -> None:
        stores = OptOutStores(database=database, clock=FakeClock(), secret_keys=())
        await make_organization(database, FakeClock(), default_group="Newsletter")
        key = await make_key(database, FakeClock())
        actor = Actor(kind="client", id=key.credential.client_id, may=frozenset(("unsubscribe",)))
        items = [Item(address=address) for address in ("ann@example.com", "bob@example.com")]
        await submit(actor, stores, CHANNELS["email"], RequestedTarget(), items)

    on_database(empty.database_url, fill)
    return empty


def rewrite(prompt: Prompt, address: str, stored_as: str) -> None:
    """Store this address in a form that another release wrote."""
    text = "UPDATE unsubscribes SET address = :stored WHERE address = :address"
    assert on_database(prompt.database_url, execute, text, stored=stored_as, address=address) == 1


def test_no_changed_address_prints_only_the_count(stored: Prompt) -> None:
    """`--json` prints an empty array."""
    count = "2 addresses are stored, 0 of them would be written differently.\n"
    assert stored.run("addresses", "changed") == CommandResult(0, "", count)
    assert stored.run("addresses", "changed", "--json") == CommandResult(0, "[]\n", count)


def test_changed_addresses_are_printed_with_their_new_form(stored: Prompt) -> None:
    """Feed, stored address, and the new form or the error. The status is 0, since nothing went wrong."""
    rewrite(stored, "ann@example.com", "Ann@example.com")
    rewrite(stored, "bob@example.com", "bob@localhost")
    fault = "The domain has a single label: write it in full, with a dot and the top-level domain."
    assert stored.run("addresses", "changed") == CommandResult(
        0,
        f"acme email: Ann@example.com -> ann@example.com\nacme email: bob@localhost -> error: {fault}\n",
        "2 addresses are stored, 2 of them would be written differently.\n",
    )
    assert stored.json("addresses", "changed") == [
        {"org_slug": "acme", "channel": "email", "address": "Ann@example.com", "canonical": "ann@example.com"},
        {"org_slug": "acme", "channel": "email", "address": "bob@localhost", "error": fault},
    ]


def test_changed_needs_a_database(empty: Prompt) -> None:
    """The error names the command that creates one."""
    assert "`stoplist migrate`" in empty.refused("addresses", "changed")
