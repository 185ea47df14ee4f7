"""The command `look-up`."""

import json
from datetime import UTC, datetime

from stoplist_client import Item

from tests.client.cli.command_runner import LogIn, RunCommand, run_process
from tests.client.partners import Partner

_WHEN = datetime(2026, 3, 1, 9, 30, tzinfo=UTC)


def _submit(partner: Partner) -> None:
    with partner.client() as client:
        client.unsubscribe("email", [Item("ann@example.com", _WHEN, "complaint", "hotline")])
        client.unsubscribe("email", ["ann@example.com"], group_id=partner.other_group_id)


def test_table_has_one_line_per_record(cli: RunCommand, partner: Partner, log_in: LogIn) -> None:
    """An address without records has one line too. Addresses are shown as the service spells them."""
    log_in(partner)
    _submit(partner)
    result = cli("look-up", "email", "ANN@example.com", "bob@example.com")
    assert (result.status, result.err_text) == (0, "")
    lines = [line.split() for line in result.out_text.splitlines()]
    assert lines[0][:3] == ["address", "group", "status"]
    first = ["ann@example.com", partner.group_id, "unsubscribed", "2026-03-01T09:30:00.000Z", "complaint", "hotline"]
    assert lines[1] == [*first, partner.org_slug]
    assert lines[2][:3] == ["ann@example.com", partner.other_group_id, "unsubscribed"]
    assert lines[3][:4] == ["bob@example.com", "-", "no", "record"]


def test_a_withdrawn_opt_out_is_no_consent(cli: RunCommand, partner: Partner, log_in: LogIn) -> None:
    """Only `resubscribed` with the reason `consent` is one (docs/interface.md section D6)."""
    log_in(partner)
    with partner.client() as client:
        (mistake,) = client.unsubscribe("email", ["ann@example.com"]).submission_ids
        partner.service.installation.ok("submission", "reverse", mistake, "--yes")
        client.resubscribe("email", [Item("bob@example.com", _WHEN)])
        client.unsubscribe("email", ["carla@example.com"])
        addresses = ["ann@example.com", "bob@example.com", "carla@example.com"]
        records = [one.records[0] for one in client.look_up("email", addresses)]
    assert [(record.status, record.reason, record.is_consent) for record in records] == [
        ("resubscribed", "correction", False),
        ("resubscribed", "consent", True),
        ("unsubscribed", "unsubscribe", False),
    ]
    withdrawn, consent, _ = cli("look-up", "email", *addresses).out_text.splitlines()[1:]
    assert "correction (opt-out withdrawn, no consent)" in withdrawn
    assert "no consent" not in consent


def test_group_of_the_profile_is_not_applied(cli: RunCommand, partner: Partner, log_in: LogIn) -> None:
    """Every group is shown, unless --group names one."""
    log_in(partner, group_id=partner.group_id)
    _submit(partner)
    assert len(cli("look-up", "email", "ann@example.com").out_text.splitlines()) == 3
    narrow = cli("look-up", "email", "ann@example.com", "--group", partner.other_group_id, "--json").json
    assert [record["group_id"] for record in narrow[0]["records"]] == [partner.other_group_id]


def test_json_is_an_array_or_one_object_per_line(cli: RunCommand, partner: Partner, log_in: LogIn) -> None:
    """Both have the same content; the array may be empty."""
    log_in(partner)
    _submit(partner)
    stdin = b"Ann@example.com\n\nbob@example.com\n"
    array = cli("look-up", "email", "--json", stdin=stdin).json
    assert [json.loads(line) for line in cli("look-up", "email", "--json-lines", stdin=stdin).out.splitlines()] == array
    assert [(one["address"], one["canonical"], len(one["records"])) for one in array] == [
        ("Ann@example.com", "ann@example.com", 2),
        ("bob@example.com", "bob@example.com", 0),
    ]
    assert array[0]["records"][0]["occurred_at"] == "2026-03-01T09:30:00.000Z"
    assert cli("look-up", "email", "--json").json == []


def test_invalid_addresses_are_reported_by_line(cli: RunCommand, partner: Partner, log_in: LogIn) -> None:
    """The others are looked up, and the status is 3."""
    log_in(partner)
    result = cli(
        "look-up", "email", "--json", stdin=b"ann@example.com\nno-address\nb\xf6b@example.com\nbob@example.com\n"
    )
    assert result.status == 3
    assert [one["canonical"] for one in result.json] == ["ann@example.com", "bob@example.com"]
    assert [line.partition(":")[0] for line in result.err_text.splitlines()] == ["line 2", "line 3"]
    assert "no-address" not in result.err_text
    assert result.err_text.splitlines()[1] == "line 3: This is not UTF-8: save the file as UTF-8."


def test_look_up_runs_as_a_process(partner: Partner, log_in: LogIn) -> None:
    log_in(partner)
    result = run_process("look-up", "sms", "+1 415 555 0100", "--json")
    assert (result.status, result.json) == (
        0,
        [{"address": "+1 415 555 0100", "canonical": "+14155550100", "records": []}],
    )
