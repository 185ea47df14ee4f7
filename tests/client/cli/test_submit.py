"""The commands `unsubscribe` and `resubscribe`."""

import gzip
import os
import pty
import re
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from stoplist_client import Record

from tests.client.cli.command_runner import COMMAND, LogIn, RunCommand, environment, run_process
from tests.client.partners import Partner
from tests.constants import PATIENCE_S

NewPartner = Callable[..., Partner]


def _records(partner: Partner, channel: str = "email") -> list[Record]:
    with partner.client() as client:
        return list(client.changes(channel))  # type: ignore[arg-type]


def test_arguments_are_submitted(cli: RunCommand, partner: Partner, log_in: LogIn) -> None:
    log_in(partner)
    result = cli(
        "unsubscribe", "email", "ann@example.com", "bob@example.com", "--reason", "complaint", "--source", "hotline"
    )
    assert (result.status, result.err_text) == (0, "")
    assert result.out_text.startswith(
        "2 items: 2 created, 0 updated, 0 unchanged, 0 outranked, 0 refused.\nStored as sub_"
    )
    assert [(r.address, r.reason, r.source) for r in _records(partner)] == [
        ("ann@example.com", "complaint", "hotline"),
        ("bob@example.com", "complaint", "hotline"),
    ]


def test_lines_of_stdin_are_submitted(cli: RunCommand, partner: Partner, log_in: LogIn) -> None:
    """Empty lines, Windows line endings, a byte order mark and a missing last line ending make no difference."""
    log_in(partner)
    stdin = b"\xef\xbb\xbf+1 415 555 0100\r\n\r\n  \n+1 415 555 0101"
    result = cli("unsubscribe", "sms", stdin=stdin)
    assert result.status == 0, result
    assert [record.address for record in _records(partner, "sms")] == ["+14155550100", "+14155550101"]


def test_columns_of_a_csv_file_are_submitted(cli: RunCommand, partner: Partner, log_in: LogIn, tmp_path: Path) -> None:
    """address, occurred_at, reason and source are read; options apply to rows that leave them empty."""
    log_in(partner)
    path = tmp_path / "list.csv"
    path.write_bytes(
        b"Name;E-Mail;occurred_at;reason;source\r\n"
        b'"Ann; ""A""\r\nof X";ann@example.com;2026-03-01T09:30:00Z;bounce;mailer\r\n'
        b"Bob;bob@example.com;;;\r\n"
    )
    options = ["--occurred-at", "2026-02-01T00:00:00+01:00", "--reason", "manual", "--source", "list"]
    result = cli("unsubscribe", "email", "--csv", str(path), *options)
    assert result.status == 0, result
    assert [(r.address, f"{r.occurred_at:%m-%d %H:%M}", r.reason, r.source) for r in _records(partner)] == [
        ("ann@example.com", "03-01 09:30", "bounce", "mailer"),
        ("bob@example.com", "01-31 23:00", "manual", "list"),
    ]


def test_csv_is_read_from_stdin(cli: RunCommand, partner: Partner, log_in: LogIn) -> None:
    """`--csv -` reads a pipe; --column takes a name or a number, of the address if it names no field."""
    log_in(partner)
    for column in ("Contact", "2", "address=Contact"):
        options = ["--csv", "-", "--column", column, "--occurred-at", "now"]
        result = cli("unsubscribe", "email", *options, stdin=b"Id,Contact\n1,ann@example.com\n")
        assert result.status == 0, result
    assert [record.address for record in _records(partner)] == ["ann@example.com"]


def test_invalid_item_is_reported_by_line(cli: RunCommand, partner: Partner, log_in: LogIn, tmp_path: Path) -> None:
    """The batch is refused, and nothing is stored. Lines are counted in the file, not in the rows."""
    log_in(partner)
    path = tmp_path / "list.csv"
    path.write_bytes(b'email,note\n"ann@example.com","two\nlines"\n\nno address,x\n')
    result = cli("unsubscribe", "email", "--csv", str(path), "--occurred-at", "2026-03-01T09:30:00Z")
    assert (result.status, result.out_text) == (1, "")
    assert result.err_text.splitlines()[0].startswith("line 5: The e-mail address has no @")
    assert "no address" not in result.err_text
    assert "400 invalid_item: 1 item of this batch cannot be accepted" in result.err_text.splitlines()[1]
    assert "--lenient" in result.err_text
    assert "Prefer" not in result.err_text
    assert _records(partner) == []


def test_invalid_argument_is_reported_by_position(cli: RunCommand, partner: Partner, log_in: LogIn) -> None:
    """Arguments are counted from 1."""
    log_in(partner)
    result = cli("unsubscribe", "email", "ann@example.com", "nobody")
    assert result.status == 1
    assert result.err_text.startswith("argument 2: ")
    assert "nobody" not in result.err_text


def test_lenient_stores_valid_items_and_exits_with_3(cli: RunCommand, partner: Partner, log_in: LogIn) -> None:
    """Bytes that are not UTF-8 are an invalid item like any other."""
    log_in(partner)
    result = cli("unsubscribe", "email", "--lenient", stdin=b"nobody\nann@example.com\n\nb\xf6b@example.com\n")
    assert result.status == 3
    assert result.out_text.startswith("3 items: 1 created, 0 updated, 0 unchanged, 0 outranked, 2 refused.\n")
    first, second = result.err_text.splitlines()
    assert first.startswith("line 1: The e-mail address has no @")
    assert second == "line 4: This is not UTF-8: save the file as UTF-8."
    assert [record.address for record in _records(partner)] == ["ann@example.com"]


def test_json_has_counts_and_invalid_lines(cli: RunCommand, partner: Partner, log_in: LogIn) -> None:
    """A script can read the whole result from stdout."""
    log_in(partner)
    shown = cli("unsubscribe", "email", "--lenient", "--json", stdin=b"ann@example.com\nnobody\n").json
    assert len(shown.pop("submission_ids")) == 1
    assert shown.pop("item_errors")[0].pop("line") == 2
    assert shown == {
        "batches": 1, "received": 2, "created": 1, "updated": 0, "unchanged": 0, "outranked": 0, "is_complete": True
    }  # fmt: skip


def test_items_stored_before_an_error_are_reported(cli: RunCommand, partner: Partner, log_in: LogIn) -> None:
    """If the second batch is refused, the first one stays stored, and lines are counted over all batches."""
    log_in(partner)
    stdin = b"".join(b"p%d@example.com\n" % number for number in range(10_000)) + b"\nnobody\n"
    result = cli("unsubscribe", "email", "--json", stdin=stdin)
    assert result.status == 1
    lines = result.err_text.splitlines()
    assert lines[0].startswith("line 10002: ")
    assert "Stored before this error: the first 10,000 items" in lines[1]
    assert "nothing of the batch was stored" in lines[2]
    shown = result.json
    assert (shown["received"], shown["is_complete"], shown["item_errors"][0]["line"]) == (10_000, False, 10_002)
    assert len(_records(partner)) == 10_000


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"name,town\nAnn,Aix\n", "No column has a usual name for addresses"),
        (b"email,e-mail\n", "Several columns may be address"),
        (b"ann@example.com,Ann\nbob@example.com,Bob\n", "The first row looks like an address"),
        (b"", "empty"),
        (b'email,name\na@example.com,"Ann\nb@example.com,Bob\n', "line 2 has a quote that is never closed"),
        (b'email\n"a@example.com"x\n', "line 2 is not valid CSV"),
        (
            b"email\nj\xf6rg@example.com\n",
            "Line 2 is not UTF-8: save the file as UTF-8, or say its encoding. Use --encoding",
        ),
        (b"email\n" + b"x" * (2 << 20), "longer than 64 KiB"),
    ],
)
def test_unusable_csv_file_is_refused(
    cli: RunCommand, partner: Partner, log_in: LogIn, tmp_path: Path, content: bytes, text: str
) -> None:
    """No address is repeated: without a header, the first row contains one."""
    log_in(partner)
    path = tmp_path / "list.csv"
    path.write_bytes(content)
    result = cli("unsubscribe", "email", "--csv", str(path), "--occurred-at", "now")
    result.assert_failed(1, text)
    assert "@example" not in result.err_text
    assert _records(partner) == []


@pytest.mark.parametrize("name", ["Occurred At", "occurred-at", "OCCURRED_AT", " occurredAt "])
def test_column_names_ignore_case_and_blanks(cli: RunCommand, partner: Partner, log_in: LogIn, name: str) -> None:
    """An opt-out of March must not become one of today, and so override a consent of April."""
    log_in(partner)
    stdin = f"E_Mail Address,{name},Reason,Source\nann@example.com,2026-03-01T09:30:00Z,bounce,mailer\n".encode()
    result = cli("unsubscribe", "email", "--csv", "-", stdin=stdin)
    assert (result.status, result.err_text) == (0, "")
    assert [(f"{r.occurred_at:%m-%d %H:%M}", r.reason, r.source) for r in _records(partner)] == [
        ("03-01 09:30", "bounce", "mailer")
    ]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("occured_at", "'occured_at' looks like a misspelt occurred_at: say that it is, or rename it. Use --column"),
        ("Occurred on", "'Occurred on' looks like a misspelt occurred_at"),
        ("reasons", "'reasons' looks like a misspelt reason"),
        ("sorce", "'sorce' looks like a misspelt source"),
        ("occurred_at@x", "The first row looks like an address"),
    ],
)
def test_misspelt_column_is_refused(cli: RunCommand, partner: Partner, log_in: LogIn, name: str, text: str) -> None:
    """It is refused even with --occurred-at, which applies to all rows."""
    log_in(partner)
    for options in ([], ["--occurred-at", "2026-03-01T09:30:00Z"]):
        result = cli(
            "unsubscribe", "email", "--csv", "-", *options, stdin=f"email,{name}\nann@example.com,x\n".encode()
        )
        result.assert_failed(1, text)
        assert "@" not in result.err_text
    assert _records(partner) == []


def test_rows_are_never_dated_now_in_silence(cli: RunCommand, partner: Partner, log_in: LogIn) -> None:
    """An old opt-out dated now would override the consents given since. Docs/interface.md section D12, When."""
    log_in(partner)
    stdin = b"email,resource,timestamp\nann@example.com,x,y\nbob@example.com,x,y\n"
    cli("unsubscribe", "email", "--csv", "-", stdin=stdin).assert_failed(
        2, "Use --occurred-at TIME, or --occurred-at now"
    )
    assert _records(partner) == []
    for stated in ("2026-03-01T09:30:00Z", "now"):
        result = cli("unsubscribe", "email", "--csv", "-", "--occurred-at", stated, stdin=stdin)
        assert (result.status, result.err_text) == (0, "")
    assert {f"{each.occurred_at:%m-%d %H:%M}" for each in _records(partner)} == {"03-01 09:30"}


@pytest.mark.parametrize(
    "stdin",
    [
        b"email,name\nann@example.com,Ann\n",
        b"contact|name\nann@example.com|Ann\n",
        b"E-Mail\nann@example.com\n",
        b"ann@example.com;Ann\n",
    ],
)
def test_csv_on_stdin_needs_its_option(cli: RunCommand, partner: Partner, log_in: LogIn, stdin: bytes) -> None:
    log_in(partner)
    result = cli("unsubscribe", "email", stdin=stdin)
    result.assert_failed(2, "The input looks like CSV: add --csv -")
    assert "ann" not in result.err_text.lower()
    assert _records(partner) == []


def test_exports_of_other_systems_are_read(cli: RunCommand, partner: Partner, log_in: LogIn, tmp_path: Path) -> None:
    """Their header or name tells which they are, packed or not."""
    log_in(partner)
    path = tmp_path / "suppressions.csv.gz"
    path.write_bytes(gzip.compress(b"email,created\nann@example.com,1709199000\n"))
    assert cli("unsubscribe", "email", "--csv", str(path)).status == 0
    stdin = b"email,created,reason\nbob@example.com,1709199000,unknown domain\n"
    assert cli("unsubscribe", "email", "--csv", "-", "--format", "sendgrid-invalid-emails", stdin=stdin).status == 0
    assert [(r.address, f"{r.occurred_at:%Y-%m-%d %H:%M}", r.reason) for r in _records(partner)] == [
        ("ann@example.com", "2024-02-29 09:30", "unsubscribe"),
        ("bob@example.com", "2024-02-29 09:30", "invalid_address"),
    ]


def test_only_opt_outs_of_a_file_are_submitted(cli: RunCommand, partner: Partner, log_in: LogIn) -> None:
    """The column that says so must be named, with the values that mean an opt-out."""
    log_in(partner)
    rows = (
        "ann@example.com,2024-02-29 10:30:00,out\nbob@example.com,2024-02-29 10:30:00,in\njörg@example.com,soon,out\n"
    )
    stdin = f"email,occurred_at,status\n{rows}".encode("windows-1252")
    options = ["--csv", "-", "--time-zone", "Europe/Berlin", "--encoding", "windows-1252"]
    cli("unsubscribe", "email", *options, stdin=stdin).assert_failed(2, "out (2), in (1).", "Use --opted-out-when")
    options += ["--opted-out-when", "status=out"]
    cli("unsubscribe", "email", *options, stdin=stdin).assert_failed(1, "Line 4: The time cannot be read")
    result = cli("unsubscribe", "email", *options, "--lenient", "--json", stdin=stdin)
    assert result.status == 3
    assert [each["line"] for each in result.json["item_errors"]] == [4]
    assert "Left out: 1 row of people who did not opt out." in result.err_text
    assert [(r.address, f"{r.occurred_at:%H:%M}") for r in _records(partner)] == [("ann@example.com", "09:30")]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["unsubscribe"], "CHANNEL"),
        (["unsubscribe", "ann@example.com"], "email, sms or phone"),
        (["unsubscribe", "email", "a@example.com", "--csv", "f"], "not both"),
        (["unsubscribe", "email", "a@example.com", "--group", "grp_" + "x" * 22, "--all-groups"], "not both"),
        (["unsubscribe", "email", "a@example.com", "--column", "x"], "--csv"),
        (["unsubscribe", "email", "a@example.com", "--format", "sendgrid"], "--csv"),
        (["unsubscribe", "email", "--csv", "-", "--opted-out-when", "status"], "HEADER=VALUE"),
        (["unsubscribe", "email", "--csv", "-", "--occurred-at", "2099-01-01T00:00:00Z"], "in the future"),
        (["resubscribe", "email", "a@example.com", "--occurred-at", "now"], "time at which it was given"),
        (["unsubscribe", "email", "a@example.com", "--occurred-at", "2026-03-01T09:30:00"], "--occurred-at"),
        (["unsubscribe", "email", "a@example.com", "--occurred-at", "2026-13-01T09:30:00Z"], "--occurred-at"),
        (["unsubscribe", "email", "a@example.com", "--reason", "whim"], "--reason"),
        (["resubscribe", "email", "a@example.com"], "A consent needs its time"),
        (["resubscribe", "email", "a@example.com", "--reason", "manual"], "--reason"),
    ],
)
def test_wrong_usage_exits_with_2(
    cli: RunCommand, partner: Partner, log_in: LogIn, arguments: list[str], text: str
) -> None:
    """The message repeats no address, and nothing is sent."""
    log_in(partner)
    result = cli(*arguments, stdin=b"bob@example.com\n")
    result.assert_failed(2, text)
    assert "example" not in result.err_text
    assert _records(partner) == []


def test_options_select_group_and_organization(cli: RunCommand, partner: Partner, log_in: LogIn) -> None:
    log_in(partner, group_id=partner.other_group_id)
    cli("unsubscribe", "email", "profile@example.com")
    cli("unsubscribe", "email", "named@example.com", "--group", partner.group_id)
    cli("unsubscribe", "email", "all@example.com", "--all-groups")
    assert {record.address: record.group_id for record in _records(partner)} == {
        "profile@example.com": partner.other_group_id,
        "named@example.com": partner.group_id,
        "all@example.com": None,
    }
    cli("unsubscribe", "email", "a@example.com", "--org", "nobody").assert_failed(1, "403 unauthorized_organization")


def test_consents_are_submitted(cli: RunCommand, partner: Partner, log_in: LogIn) -> None:
    """A consent that is later than the opt-out wins; an earlier one does not."""
    log_in(partner)
    cli("unsubscribe", "email", "ann@example.com", "bob@example.com", "--occurred-at", "2026-03-01T00:00:00Z")
    assert cli("resubscribe", "email", "ann@example.com", "--occurred-at", "2026-03-02T00:00:00Z").status == 0
    result = cli(
        "resubscribe", "email", "--csv", "-", stdin=b"email,occurred_at\nbob@example.com,2026-02-01T00:00:00Z\n"
    )
    assert result.out_text.startswith("1 item: 0 created, 0 updated, 0 unchanged, 1 outranked")
    assert {record.address: record.status for record in _records(partner)} == {
        "ann@example.com": "resubscribed",
        "bob@example.com": "unsubscribed",
    }


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"email,when\nann@example.com,2026-02-01T00:00:00Z\n", "no column occurred_at"),
        (b"email,occurred_at\nbob@example.com,2026-02-01T00:00:00Z\nann@example.com,\n", "Line 3 has no occurred_at"),
    ],
)
def test_consent_without_a_time_is_refused(
    cli: RunCommand, partner: Partner, log_in: LogIn, content: bytes, text: str
) -> None:
    """The current time is never used: the time of a consent must be one that can be proved."""
    log_in(partner)
    cli("resubscribe", "email", "--csv", "-", stdin=content).assert_failed(1, text)
    assert _records(partner) == []


@pytest.mark.parametrize(
    ("options", "stdin"),
    [([], b""), ([], b"\n \n"), (["--csv", "-"], b"email,occurred_at\n"), (["--csv", "-"], b"email,occurred_at")],
)
def test_empty_input_is_not_an_error(
    cli: RunCommand, partner: Partner, log_in: LogIn, options: list[str], stdin: bytes
) -> None:
    """A nightly export may be empty. A CSV file needs its header nevertheless."""
    log_in(partner)
    result = cli("unsubscribe", "email", *options, stdin=stdin)
    assert (result.status, result.err_text) == (0, "")
    assert result.out_text == "0 items: 0 created, 0 updated, 0 unchanged, 0 outranked, 0 refused.\n"
    cli("unsubscribe", "email", "--csv", "-", stdin=b"").assert_failed(1, "The file is empty")


def test_missing_file_is_named(cli: RunCommand, partner: Partner, log_in: LogIn, tmp_path: Path) -> None:
    log_in(partner)
    path = tmp_path / "missing.csv"
    cli("unsubscribe", "email", "--csv", str(path)).assert_failed(1, f"{path}: No such file")


def test_missing_permission_is_reported(cli: RunCommand, new_partner: NewPartner, log_in: LogIn) -> None:
    """The report has the code, and the request id for the operator."""
    log_in(new_partner(permissions=frozenset(("read",))))
    cli("unsubscribe", "email", "ann@example.com").assert_failed(1, "403 insufficient_scope", "(request ")


def test_progress_is_shown_on_a_terminal(partner: Partner, log_in: LogIn, tmp_path: Path) -> None:
    """The line shows the fraction of the file that was read and the number of items, and is erased at the end."""
    log_in(partner)
    path = tmp_path / "list.txt"
    path.write_text("".join(f"p{number}@example.com\n" for number in range(20_000)))
    main_end, terminal = pty.openpty()
    with path.open("rb") as stdin:
        process = subprocess.Popen(
            [COMMAND, "unsubscribe", "email"],
            stdin=stdin,
            stdout=subprocess.DEVNULL,
            stderr=terminal,
            env=environment(),
        )
    os.close(terminal)
    shown = ""
    with suppress(OSError):  # its last writer is gone
        while more := os.read(main_end, 1024):
            shown += more.decode()
    os.close(main_end)
    assert process.wait(PATIENCE_S) == 0
    assert re.match(r"\rSubmitting +\d+% \[[# ]{10}\] 10,000 items processed\x1b\[K", shown)
    assert shown.endswith("\r\x1b[K")


def test_unsubscribe_runs_as_a_process(partner: Partner, log_in: LogIn) -> None:
    log_in(partner)
    result = run_process("unsubscribe", "email", "--lenient", stdin=b"ann@example.com\nnobody\n")
    assert (result.status, result.out_text[:20]) == (3, "2 items: 1 created, ")
    assert result.err_text.startswith("line 2: ")
    run_process("resubscribe", "email", stdin=b"ann@example.com\n").assert_failed(2, "--occurred-at")
