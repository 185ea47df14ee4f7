"""`stoplist submission` (docs/interface.md sections D9 and D11)."""

import asyncio
import json
import os
import re

import pytest

from stoplist.actor import Actor
from stoplist.cli import context, submission
from stoplist.unsubscribes.channel import CHANNELS
from stoplist.unsubscribes.model import Item, OptOutStores, RequestedTarget
from stoplist.unsubscribes.submit import submit
from tests.builders import make_key, opened
from tests.cli.command_line import Prompt, at_a_terminal
from tests.constants import DAY_S
from tests.fakes import FakeClock
from tests.keys import EVERY_PERMISSION
from tests.unsubscribes.partner import written

UNKNOWN = "sub_" + 22 * "0"


def submit_batches(prompt: Prompt, *batches: tuple[str, ...]) -> list[str]:
    """Submit batches of one partner, and return their ids. An address with `+` resubscribes, others opt out."""

    async def send() -> list[str]:
        clock = FakeClock()
        async with opened(
            prompt.database_url, prepared=os.environ.get("STOPLIST_DATABASE_PREPARED") != "off"
        ) as database:
            key = await make_key(database, clock, permissions=EVERY_PERMISSION)
            partner = Actor(kind="client", id=key.credential.client_id, may=EVERY_PERMISSION)
            stores = OptOutStores(database=database, clock=clock, secret_keys=("k" * 32,))
            submission_ids = []
            for batch in batches:
                clock.advance(60)
                items = [item(address, written(clock.now_ms() - 1)) for address in batch]
                result = await submit(partner, stores, CHANNELS["email"], RequestedTarget(org_slug="acme"), items)
                submission_ids.append(result.submission_id or "")
            return submission_ids

    return asyncio.run(send())


def item(address: str, occurred_at: str) -> Item:
    status = "resubscribed" if address.startswith("+") else "unsubscribed"
    return Item(address=f"{address.strip('+')}@example.org", status=status, occurred_at=occurred_at)  # type: ignore[arg-type]


@pytest.fixture
def mistake(prompt: Prompt) -> str:
    """A submission of four records: one would be restored, one corrected, one is superseded, one confirmed."""
    prompt.ok("group", "create", "--org", "acme", "--name", "News", "--default")
    _, submission_id, _ = submit_batches(prompt, ("+a",), ("a", "b", "c", "d"), ("+c", "d"))
    return submission_id


COUNTS = {"restored": 1, "corrected": 1, "superseded": 1, "confirmed": 1, "taken_back": 0}


def test_show_prints_the_submission(prompt: Prompt, mistake: str) -> None:
    """It shows the sender, the time, the group, and the counts."""
    shown = prompt.json("submission", "show", mistake)
    assert re.fullmatch("grp_[0-9A-Za-z]{22}", shown.pop("group_id"))
    assert shown.pop("actor_id").startswith("svc_ci_")
    assert shown == {
        "submission_id": mistake,
        "org_slug": "acme",
        "channel": "email",
        "group_name": "News",
        "actor_kind": "client",
        "request_id": None,
        "source_ip": None,
        "received_at": "2047-01-15T08:02:00.000Z",
        "received": 4,
        "created": 3,
        "updated": 1,
        "unchanged": 0,
        "outranked": 0,
        "rejected": 0,
        "first_seq": 2,
        "last_seq": 5,
        "reversed_by": [],
        "reverses": None,
        "import_id": None,
        "kind": "batch",
    }
    lines = dict(line.split(maxsplit=1) for line in prompt.ok("submission", "show", mistake).splitlines())
    assert (lines["submission_id"], lines["created"], lines["reversed_by"]) == (mistake, "3", "-")


def test_reverse_prints_the_counts_and_what_was_left_out(prompt: Prompt, mistake: str) -> None:
    """`--json` prints both as one object."""
    result = prompt.json("submission", "reverse", mistake, "--yes")
    reversed_by = result.pop("reversed_by")
    assert re.fullmatch("sub_[0-9A-Za-z]{22}", reversed_by)
    assert result == {
        "submission_id": mistake,
        **COUNTS,
        "left_out": [
            {
                "seq": 4,
                "address": "c@example.org",
                "why": "superseded",
                "status": "resubscribed",
                "reason": "consent",
                "now_seq": 6,
            },
            {
                "seq": 5,
                "address": "d@example.org",
                "why": "confirmed",
                "status": "unsubscribed",
                "reason": "unsubscribe",
                "now_seq": 5,
            },
        ],
    }
    (by,) = prompt.json("submission", "show", mistake)["reversed_by"]
    assert by["submission_id"] == reversed_by
    assert prompt.json("submission", "show", reversed_by)["reverses"] == mistake
    assert reversed_by in prompt.ok("submission", "show", mistake)


def test_reverse_refuses_what_is_too_old(prompt: Prompt, mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """STOPLIST_HISTORY_DAYS bounds the age; nothing is changed (section D13, Retention)."""
    clock = FakeClock()
    clock.advance(3 * DAY_S)
    monkeypatch.setattr(context, "Clock", lambda: clock)
    monkeypatch.setenv("STOPLIST_HISTORY_DAYS", "2")
    assert "received more than 2 days ago" in prompt.refused("submission", "reverse", mistake, "--yes")
    monkeypatch.setenv("STOPLIST_HISTORY_DAYS", "4")
    assert prompt.json("submission", "reverse", mistake, "--yes")["restored"] == 1


def test_reverse_prints_a_summary_for_people(prompt: Prompt, mistake: str) -> None:
    """A sentence, and a table of what was left out."""
    summary, empty, head, *rows = prompt.ok("submission", "reverse", mistake, "--yes").splitlines()
    assert re.fullmatch(
        r"Taken back by sub_\w{22}: 2 records \(former state restored: 1, did not exist before: 1\)\. "
        r"Left out: 2 \(changed since: 1, sent again since: 1\)\.",
        summary,
    )
    assert (empty, head.split()) == ("", ["address", "why", "status", "reason"])
    assert [row.split()[:2] for row in rows] == [["c@example.org", "superseded"], ["d@example.org", "confirmed"]]


def test_a_second_reversal_has_nothing_to_take_back(prompt: Prompt, mistake: str) -> None:
    """It says so, and asks no question."""
    prompt.ok("submission", "reverse", mistake, "--yes")
    again = prompt.json("submission", "reverse", mistake)
    assert (again["reversed_by"], again["restored"], again["corrected"], again["taken_back"]) == (None, 0, 0, 2)
    assert [each["why"] for each in again["left_out"]] == ["superseded", "confirmed"]
    text = prompt.ok("submission", "reverse", mistake)
    assert text.startswith("Nothing was taken back")
    assert "Taken back before: 2 records." in text


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_without_a_terminal_it_needs_yes(prompt: Prompt, mistake: str, options: tuple[str, ...]) -> None:
    """It prints what it would do, and does nothing."""
    refusal = prompt.refused("submission", "reverse", mistake, *options)
    assert "take back 2 records and leave out 2" in refusal
    assert "--yes" in refusal
    assert prompt.json("submission", "show", mistake)["reversed_by"] == []


@pytest.mark.parametrize("answer", ["y\n", "Yes\n"])
def test_at_a_terminal_it_shows_the_counts_and_asks(prompt: Prompt, mistake: str, answer: str) -> None:
    """Only the result goes to stdout."""
    result = at_a_terminal(prompt, answer, "submission", "reverse", mistake, "--json")
    assert result.status == 0, result
    assert [line.split()[0] for line in result.err.splitlines() if " would " in line] == ["1"] * 4
    assert "Take them back? [y/N]" in result.err
    assert COUNTS.items() <= json.loads(result.out).items()


def test_changed_counts_stop_the_reversal(prompt: Prompt, mistake: str) -> None:
    """A record was sent again while the question was open."""
    result = at_a_terminal(
        prompt, "y\n", "submission", "reverse", mistake, meanwhile=lambda: submit_batches(prompt, ("a",), ("e",))
    )
    assert (result.status, result.out) == (1, "")
    assert "Nothing was changed. Check the new counts" in result.err
    assert prompt.json("submission", "show", mistake)["reversed_by"] == []


@pytest.mark.parametrize("answer", ["\n", "n\n", "never\n", "\4"])
def test_any_answer_but_yes_changes_nothing(prompt: Prompt, mistake: str, answer: str) -> None:
    """Nor does the end of the input; the exit status is 1."""
    result = at_a_terminal(prompt, answer, "submission", "reverse", mistake)
    assert (result.status, result.out) == (1, "")
    assert "stoplist: Nothing was changed." in result.err
    assert prompt.json("submission", "show", mistake)["reversed_by"] == []


@pytest.mark.parametrize("command", [("show",), ("reverse",), ("reverse", "--yes")])
@pytest.mark.parametrize("submission_id", [UNKNOWN, "acme", ""])
def test_an_unknown_submission_is_refused(prompt: Prompt, command: tuple[str, ...], submission_id: str) -> None:
    """The exit status is 1."""
    assert "There is no submission of that id" in prompt.refused("submission", *command, submission_id)


def test_a_reversal_is_a_submission_of_the_command(prompt: Prompt, mistake: str) -> None:
    result = prompt.json("submission", "reverse", mistake, "--yes")
    own = prompt.json("submission", "show", result["reversed_by"])
    assert own["actor_kind"] == "command"
    assert (own["received"], own["updated"]) == (2, 2)


def test_wrong_usage(prompt: Prompt) -> None:
    prompt.wrong_usage("submission", "show")
    prompt.wrong_usage("submission", "reverse", UNKNOWN, "--no")
    prompt.wrong_usage("submission", "undo", UNKNOWN)


def test_it_works_on_postgresql(on_postgresql: Prompt) -> None:
    """The output is the same, with and without a pooler."""
    on_postgresql.ok("migrate")
    on_postgresql.ok("org", "create", "acme", "--name", "Acme", "--default-group", "News")
    _, mistake, _ = submit_batches(on_postgresql, ("+a",), ("a", "b", "c", "d"), ("+c", "d"))
    assert on_postgresql.json("submission", "show", mistake)["created"] == 3
    result = on_postgresql.json("submission", "reverse", mistake, "--yes")
    assert COUNTS.items() <= result.items()
    assert len(result["left_out"]) == 2


def test_submissions_are_listed_newest_first(prompt: Prompt) -> None:
    """They are filtered by organization, channel, key and time; a day is one of UTC, its last millisecond included."""
    prompt.ok("group", "create", "--org", "acme", "--name", "News", "--default")
    first, second = submit_batches(prompt, ("a",), ("b", "c"))
    found = prompt.json("submission", "list")
    assert [one["submission_id"] for one in found] == [second, first]
    (key,) = {one["actor_id"] for one in found}
    assert (found[0]["sent_by"], found[0]["created"], found[0]["reversed_by"]) == ("partner", 2, None)
    times = [one["received_at"] for one in found]
    day = times[0][:10]

    def ids(*options: str) -> list[str]:
        return [one["submission_id"] for one in prompt.json("submission", "list", *options)]

    assert ids("--key", key, "--since", day, "--until", day) == [second, first]
    assert ids("--since", times[0]) == [second]
    assert ids("--until", times[0]) == [first]
    assert ids("--since", "2047-01-16") == ids("--until", "2047-01-14") == ids("--channel", "sms") == []
    assert ids("--org", "acme", "--channel", "email") == [second, first]
    assert ids("--key", "svc_ci_" + "0" * 22) == []
    shown = prompt.ok("submission", "list").splitlines()
    assert [line.split()[0] for line in shown] == ["submission_id", second, first]
    assert "No submissions were found." in prompt.ok("submission", "list", "--channel", "phone")


def test_a_long_list_of_submissions_says_that_it_is_cut(prompt: Prompt, monkeypatch: pytest.MonkeyPatch) -> None:
    prompt.ok("group", "create", "--org", "acme", "--name", "News", "--default")
    submit_batches(prompt, ("a",), ("b",), ("c",))
    monkeypatch.setattr(submission, "_PAGE_SIZE", 1)
    monkeypatch.setattr(submission, "_MAX_LISTED", 2)
    result = prompt.run("submission", "list")
    assert (result.status, len(result.out.splitlines())) == (0, 3)
    assert "These are the newest 2. Narrow them by --since and --until" in result.err


@pytest.mark.parametrize("options", [("--since", "yesterday"), ("--until", "2047-13-01"), ("--channel", "fax")])
def test_wrong_filters_of_the_list_are_wrong_usage(prompt: Prompt, options: tuple[str, str]) -> None:
    prompt.wrong_usage("submission", "list", *options)


def test_unknown_organizations_and_malformed_keys_are_refused(prompt: Prompt) -> None:
    assert "no organization" in prompt.refused("submission", "list", "--org", "nope")
    assert "A client ID is" in prompt.refused("submission", "list", "--key", "mine")
