"""`stoplist person` (docs/interface.md sections D9 and D13)."""

import io
import json
import sys

import pytest

from stoplist.rights.reads import READ_ACTION
from tests.builders import audit_rows, on_database
from tests.cli.command_line import Prompt, at_a_terminal
from tests.cli.test_submission import submit_batches

ANN = ("a@example.org", "--channel", "email")
ERASE_ANN = ("person", "erase", *ANN, "--org", "acme")


@pytest.fixture
def known(prompt: Prompt) -> Prompt:
    """A prompt with an organization that stores the opt-outs of three people."""
    prompt.ok("group", "create", "--org", "acme", "--name", "News", "--default")
    submit_batches(prompt, ("a", "b", "c"))
    return prompt


def is_erased(prompt: Prompt, name: str) -> bool:
    (record,) = prompt.json("person", "show", f"{name}@example.org", "--channel", "email")["records"]
    assert record["status"] == "unsubscribed"
    return record["address_digest"] is not None


def test_show_prints_what_is_stored_and_notes_the_read(known: Prompt) -> None:
    """An address that nobody stores has no records, and that is no error."""
    person = json.loads(known.ok("person", "show", *ANN, "--org", "acme"))
    (record,) = person["records"]
    assert (person["address"], record["org_slug"], record["status"]) == (ANN[0], "acme", "unsubscribed")
    assert json.loads(known.ok("person", "show", *ANN, "--at", "2001-01-01"))["records"] == []
    assert known.json("person", "show", "nobody@example.org", "--channel", "email")["records"] == []
    known.refused("person", "show", "no address", "--channel", "email")
    reads = [str(row) for row in on_database(known.database_url, audit_rows) if row.action == READ_ACTION]
    assert len(reads) == 2  # of two addresses
    assert not [row for row in reads if "@example.org" in row]


def test_the_address_can_come_from_the_standard_input(known: Prompt, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("A@Example.ORG\n"))
    assert json.loads(known.ok("person", "show", "-", "--channel", "email"))["address"] == ANN[0]


def test_an_erasure_needs_both_confirmations(known: Prompt) -> None:
    """A script gives `--yes`, and for the first erasure `--all-upgraded`; the second needs only the former."""
    assert "1 record in 1 organization" in known.refused(*ERASE_ANN, "--all-upgraded")
    assert "older process" in known.refused(*ERASE_ANN, "--yes")
    assert not is_erased(known, "a")
    assert "acme: 1 record erased" in known.ok(*ERASE_ANN, "--yes", "--all-upgraded")
    assert (is_erased(known, "a"), is_erased(known, "b")) == (True, False)
    done = known.json("person", "erase", "b@example.org", "--channel", "email", "--everywhere", "--yes")
    assert [(one["org_slug"], one["records"]) for one in done["erased"]] == [("acme", 1)]


def test_the_word_is_typed_at_a_terminal(known: Prompt) -> None:
    asked = (*ERASE_ANN, "--all-upgraded")
    refused = at_a_terminal(known, "yes\n", *asked, question="to confirm: ")
    assert (refused.status, is_erased(known, "a")) == (1, False)
    assert "Nothing was changed" in refused.err
    assert at_a_terminal(known, "erase\n", *asked, question="to confirm: ").status == 0
    assert is_erased(known, "a")


def test_an_unknown_or_erased_address_is_said_to_be_so(known: Prompt) -> None:
    """There is nothing to do: the exit status is 0, and no question is asked."""
    nobody = ("person", "erase", "nobody@example.org", "--channel", "email", "--everywhere")
    assert "not known" in known.ok(*nobody)
    assert known.json(*nobody)["unknown"] == 1
    known.ok(*ERASE_ANN, "--yes", "--all-upgraded")
    assert "erased already" in known.ok(*ERASE_ANN)


def test_a_list_is_erased_whole_or_not_at_all(known: Prompt) -> None:
    """A line that is no address is named, and nothing is erased; the mark and the ends of other systems are read."""
    file, options = known.folder / "list.txt", ("--channel", "email", "--org", "acme", "--yes", "--all-upgraded")
    file.write_bytes(b"a@example.org\nno address\n")
    assert "1 of 2" in known.refused("person", "erase", "--list", str(file), *options)
    assert not is_erased(known, "a")
    file.write_bytes(b"\xef\xbb\xbfa@example.org\r\n\r\nA@example.org\r\nnobody@example.org\r\nb@example.org")
    done = known.json("person", "erase", "--list", str(file), *options)
    assert (done["addresses"], done["unknown"], len(done["erased"])) == (3, 1, 2)
    assert [is_erased(known, name) for name in "abc"] == [True, True, False]
    known.refused("person", "erase", "--list", "no-such-file", *options)


def test_the_list_of_erasures_is_repeated(known: Prompt) -> None:
    """It is written once, without an address. Entries that cannot be applied are named, and the command fails."""
    known.ok(*ERASE_ANN, "--yes", "--all-upgraded")
    file = known.folder / "erasures"
    assert known.json("person", "erasures", "--to", str(file))["erasures"] == 1
    known.refused("person", "erasures", "--to", str(file))
    written = file.read_text()
    assert "@" not in written
    repeat = ("person", "erase", "--from", str(file))
    assert "Erased before: 1" in known.ok(*repeat)
    erasure = json.loads(written)
    file.write_text(json.dumps(erasure | {"key_fingerprint": 16 * "0"}))
    result = known.run(*repeat)
    assert result.status == 1
    assert erasure["address_digest"] in result.err
    assert "1 of 1 erasures could not be applied" in result.err
    result = known.run(*repeat, "--json")
    assert (result.status, len(json.loads(result.out)["unapplied"])) == (1, 1)


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        (*ANN, "--from", "file"),
        ("--from", "file", "--everywhere"),
        ANN,
        (*ANN, "--org", "acme", "--everywhere"),
        ("a@example.org", "--everywhere"),
    ],
    ids=["nothing", "two sources", "a place with --from", "no place", "two places", "no channel"],
)
def test_a_command_line_that_does_not_say_whom_or_where(empty: Prompt, arguments: tuple[str, ...]) -> None:
    empty.wrong_usage("person", "erase", *arguments)
