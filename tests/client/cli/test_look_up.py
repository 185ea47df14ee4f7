"""look-up."""

import json
from datetime import UTC, datetime

from stoplist_client import Item

from tests.client.cli.typing_commands import Logged, Typed, run
from tests.client.partners import Partner

_WHEN = datetime(2026, 3, 1, 9, 30, tzinfo=UTC)


def _submit(partner: Partner) -> None:
    with partner.client() as client:
        client.unsubscribe("email", [Item("ann@example.com", _WHEN, "complaint", "hotline")])
        client.unsubscribe("email", ["ann@example.com"], group_id=partner.other_group_id)


def test_a_table_shows_what_is_known(typed: Typed, partner: Partner, log_in: Logged) -> None:
    """A line a record, and one for an address that nothing is known of; spellings are those of the service."""
    log_in(partner)
    _submit(partner)
    done = typed("look-up", "email", "ANN@example.com", "bob@example.com")
    assert (done.status, done.told) == (0, "")
    lines = [line.split() for line in done.text.splitlines()]
    assert lines[0][:3] == ["address", "group", "status"]
    first = ["ann@example.com", partner.group_id, "unsubscribed", "2026-03-01T09:30:00.000Z", "complaint", "hotline"]
    assert lines[1] == [*first, partner.org_slug]
    assert lines[2][:3] == ["ann@example.com", partner.other_group_id, "unsubscribed"]
    assert lines[3][:4] == ["bob@example.com", "-", "nothing", "known"]


def test_the_group_of_the_profile_hides_nothing(typed: Typed, partner: Partner, log_in: Logged) -> None:
    """Who asks about a person sees every group, unless --group says otherwise."""
    log_in(partner, group_id=partner.group_id)
    _submit(partner)
    assert len(typed("look-up", "email", "ann@example.com").text.splitlines()) == 3
    narrow = typed("look-up", "email", "ann@example.com", "--group", partner.other_group_id, "--json").json
    assert [record["group_id"] for record in narrow[0]["records"]] == [partner.other_group_id]


def test_json_is_an_array_or_an_object_a_line(typed: Typed, partner: Partner, log_in: Logged) -> None:
    """Both hold the same; of nothing the array is empty."""
    log_in(partner)
    _submit(partner)
    stdin = b"Ann@example.com\n\nbob@example.com\n"
    array = typed("look-up", "email", "--json", stdin=stdin).json
    assert [
        json.loads(line) for line in typed("look-up", "email", "--json-lines", stdin=stdin).out.splitlines()
    ] == array
    assert [(one["address"], one["canonical"], len(one["records"])) for one in array] == [
        ("Ann@example.com", "ann@example.com", 2),
        ("bob@example.com", "bob@example.com", 0),
    ]
    assert array[0]["records"][0]["occurred_at"] == "2026-03-01T09:30:00.000Z"
    assert typed("look-up", "email", "--json").json == []


def test_what_is_no_address_is_told_by_its_line(typed: Typed, partner: Partner, log_in: Logged) -> None:
    """The others are looked up all the same, and it ends with 3."""
    log_in(partner)
    done = typed(
        "look-up", "email", "--json", stdin=b"ann@example.com\nno-address\nb\xf6b@example.com\nbob@example.com\n"
    )
    assert done.status == 3
    assert [one["canonical"] for one in done.json] == ["ann@example.com", "bob@example.com"]
    assert [line.partition(":")[0] for line in done.told.splitlines()] == ["line 2", "line 3"]
    assert "no-address" not in done.told
    assert done.told.splitlines()[1] == "line 3: This is not UTF-8: save the file as UTF-8."


def test_look_up_as_a_process(partner: Partner, log_in: Logged) -> None:
    """The command itself."""
    log_in(partner)
    done = run("look-up", "sms", "+1 415 555 0100", "--json")
    assert (done.status, done.json) == (
        0,
        [{"address": "+1 415 555 0100", "canonical": "+14155550100", "records": []}],
    )
