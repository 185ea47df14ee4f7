"""`stoplist addresses` (docs/interface.md sections D7 and D9)."""

import asyncio
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from stoplist.actor import Actor
from stoplist.unsubscribes.channel import CHANNELS
from stoplist.unsubscribes.model import Item, OptOutStores, RequestedTarget
from stoplist.unsubscribes.submit import submit
from tests.builders import execute, make_key, make_organization, opened
from tests.cli.command_line import Done, Prompt
from tests.fakes import FakeClock


@pytest.fixture
def check(empty: Prompt) -> Prompt:
    """A prompt where there is no database, and none is needed."""
    return empty


def written(prompt: Prompt, content: bytes | str) -> str:
    """The path of a list with this content."""
    path = prompt.folder / "list.txt"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return str(path)


def test_every_line_is_shown_as_it_would_be_stored(check: Prompt) -> None:
    """With its number; empty lines are passed over, and the count goes to stderr."""
    file = written(check, "Jane@Example.COM\n\n \t\r\n jane@bücher.example\r\nlast@example.com")
    assert check.run("addresses", "check", "email", file) == Done(
        0,
        "1: jane@example.com\n4: jane@xn--bcher-kva.example\n5: last@example.com\n",
        "3 addresses, 0 of them wrong.\n",
    )
    assert list(check.folder.iterdir()) == [Path(file)]


def test_what_is_wrong_stands_in_its_line_and_the_status_is_1(check: Prompt) -> None:
    """So that a script notices, and a person sees which line to mend."""
    done = check.run("addresses", "check", "phone", written(check, "+44 (0)20 7946 0958\n020 7946 0958\n"))
    first, second = done.out.splitlines()
    assert first == "1: +442079460958"
    assert second.startswith("2: error: The phone number does not begin with +")
    assert "7946" not in second
    assert (done.status, done.err) == (1, "stoplist: 2 addresses, 1 of them wrong.\n")


def test_json_is_an_array_of_the_lines(check: Prompt) -> None:
    """Each with its address or its error."""
    done = check.run("addresses", "check", "sms", written(check, "+14155550123\n\n+1\n"), "--json")
    address, error = json.loads(done.out)
    assert address == {"line": 1, "address": "+14155550123"}
    assert error == {"line": 3, "error": "The phone number is too short for the numbers of its country."}
    assert done.status == 1


@pytest.mark.parametrize(("lines", "count"), [(0, 0), (1, 1), (1000, 1000), (2500, 2500)])
def test_json_is_whole_however_many_lines_there_are(lines: int, count: int, check: Prompt) -> None:
    """None, one, and more than are printed at once."""
    file = written(check, "jane@example.com\n" * lines)
    assert [each["line"] for each in check.json("addresses", "check", "email", file)] == list(range(1, count + 1))


def test_a_dash_is_the_standard_input(check: Prompt, monkeypatch: pytest.MonkeyPatch) -> None:
    """For a list that comes from another program."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"jane@example.com\n")))
    assert check.ok("addresses", "check", "email", "-") == "1: jane@example.com\n"


def test_a_closed_standard_input_is_named(check: Prompt, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python has None in its place."""
    monkeypatch.setattr(sys, "stdin", None)
    assert "standard input is closed" in check.refused("addresses", "check", "email", "-")


def test_a_byte_order_mark_is_no_part_of_the_first_address(check: Prompt) -> None:
    """Spreadsheets write one, and nobody sees it."""
    assert check.ok("addresses", "check", "email", written(check, "\ufeffa@example.com\n")) == "1: a@example.com\n"


def test_a_line_in_another_encoding_is_wrong(check: Prompt) -> None:
    """And says what to do; to guess the encoding would be to stop messages to another person."""
    done = check.run("addresses", "check", "email", written(check, b"jos\xe9@example.com\na@example.com\n"))
    assert done.out == "1: error: The line is not UTF-8: save the list in that encoding.\n2: a@example.com\n"
    assert done.status == 1


def test_a_list_that_is_not_there_is_refused(check: Prompt) -> None:
    """Or that is a folder."""
    assert "No such file" in check.refused("addresses", "check", "email", "nowhere.txt")
    assert "Is a directory" in check.refused("addresses", "check", "email", str(check.folder))


def test_another_channel_is_wrong_usage(check: Prompt) -> None:
    """There are three."""
    assert "'email', 'sms', 'phone'" in check.wrong_usage("addresses", "check", "fax", "-")


def test_the_first_lines_are_shown_before_the_last_is_read() -> None:
    """A million lines neither fill the memory nor keep anybody waiting for the first."""
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
    """A prompt where there is a database, of each kind, with two addresses of the organization `acme`."""
    database_url = f"sqlite:///{empty.data_dir / 'stoplist.db'}"
    if request.param == "postgresql":
        database_url = request.getfixturevalue("postgresql_url")
        empty.set(DATABASE_URL=database_url)
    empty.ok("migrate")

    async def fill() -> None:
        async with opened(database_url) as database:
            stores = OptOutStores(database=database, clock=FakeClock(), secret_keys=())
            await make_organization(database, FakeClock(), default_group="Newsletter")
            key = await make_key(database, FakeClock())
            actor = Actor(kind="client", id=key.credential.client_id, may=frozenset(("unsubscribe",)))
            items = [Item(address=address) for address in ("ann@example.com", "bob@example.com")]
            await submit(actor, stores, CHANNELS["email"], RequestedTarget(), items)

    asyncio.run(fill())
    return empty


def rewrite(prompt: Prompt, address: str, stored_as: str) -> None:
    """From now on this address is stored as another release wrote it."""
    database_url = os.environ.get("STOPLIST_DATABASE_URL", f"sqlite:///{prompt.data_dir / 'stoplist.db'}")

    async def update() -> None:
        async with opened(database_url) as database:
            text = "UPDATE unsubscribes SET address = :stored WHERE address = :address"
            assert await execute(database, text, stored=stored_as, address=address) == 1

    asyncio.run(update())


def test_where_nothing_would_change_nothing_is_printed(stored: Prompt) -> None:
    """But how many addresses there are; an empty array for programs."""
    count = "2 addresses are stored, 0 of them would be written differently.\n"
    assert stored.run("addresses", "changed") == Done(0, "", count)
    assert stored.run("addresses", "changed", "--json") == Done(0, "[]\n", count)


def test_what_would_change_is_printed_with_what_it_becomes(stored: Prompt) -> None:
    """Feed, stored address, and the new form or the error; the status stays 0, for nothing went wrong."""
    rewrite(stored, "ann@example.com", "Ann@example.com")
    rewrite(stored, "bob@example.com", "bob@localhost")
    fault = "The domain has a single label: write it in full, with a dot and the top-level domain."
    assert stored.run("addresses", "changed") == Done(
        0,
        f"acme email: Ann@example.com -> ann@example.com\nacme email: bob@localhost -> error: {fault}\n",
        "2 addresses are stored, 2 of them would be written differently.\n",
    )
    assert stored.json("addresses", "changed") == [
        {"org_slug": "acme", "channel": "email", "address": "Ann@example.com", "canonical": "ann@example.com"},
        {"org_slug": "acme", "channel": "email", "address": "bob@localhost", "error": fault},
    ]


def test_what_is_stored_is_looked_for_in_a_database(empty: Prompt) -> None:
    """Where there is none, the command that makes one is named."""
    assert "`stoplist migrate`" in empty.refused("addresses", "changed")
