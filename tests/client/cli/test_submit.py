"""unsubscribe and resubscribe."""

import os
import pty
import re
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from stoplist_client import Record

from tests.client.cli.typing_commands import COMMAND, PATIENCE_S, Logged, Typed, environment, run
from tests.client.partners import Partner

NewPartner = Callable[..., Partner]


def _stored(partner: Partner, channel: str = "email") -> list[Record]:
    with partner.client() as client:
        return list(client.changes(channel))  # type: ignore[arg-type]


def test_arguments_are_submitted(typed: Typed, partner: Partner, log_in: Logged) -> None:
    """Each address that was typed is stored, with what the options say."""
    log_in(partner)
    done = typed(
        "unsubscribe", "email", "ann@example.com", "bob@example.com", "--reason", "complaint", "--source", "hotline"
    )
    assert (done.status, done.told) == (0, "")
    assert done.text.startswith("2 items: 2 created, 0 updated, 0 unchanged, 0 outranked, 0 refused.\nStored as sub_")
    assert [(r.address, r.reason, r.source) for r in _stored(partner)] == [
        ("ann@example.com", "complaint", "hotline"),
        ("bob@example.com", "complaint", "hotline"),
    ]


def test_lines_of_stdin_are_submitted(typed: Typed, partner: Partner, log_in: Logged) -> None:
    """Empty lines, Windows line ends, a byte order mark and a missing last line end make no difference."""
    log_in(partner)
    stdin = b"\xef\xbb\xbf+1 415 555 0100\r\n\r\n  \n+1 415 555 0101"
    done = typed("unsubscribe", "sms", stdin=stdin)
    assert done.status == 0, done
    assert [record.address for record in _stored(partner, "sms")] == ["+14155550100", "+14155550101"]


def test_columns_of_a_csv_file_are_submitted(typed: Typed, partner: Partner, log_in: Logged, tmp_path: Path) -> None:
    """address, occurred_at, reason and source are read; what a row leaves open takes what the options say."""
    log_in(partner)
    path = tmp_path / "list.csv"
    path.write_bytes(
        b"Name;E-Mail;occurred_at;reason;source\r\n"
        b'"Ann; ""A""\r\nof X";ann@example.com;2026-03-01T09:30:00Z;bounce;mailer\r\n'
        b"Bob;bob@example.com;;;\r\n"
    )
    options = ["--occurred-at", "2026-02-01T00:00:00+01:00", "--reason", "manual", "--source", "list"]
    done = typed("unsubscribe", "email", "--csv", str(path), *options)
    assert done.status == 0, done
    assert [(r.address, f"{r.occurred_at:%m-%d %H:%M}", r.reason, r.source) for r in _stored(partner)] == [
        ("ann@example.com", "03-01 09:30", "bounce", "mailer"),
        ("bob@example.com", "01-31 23:00", "manual", "list"),
    ]


def test_csv_is_read_from_stdin(typed: Typed, partner: Partner, log_in: Logged) -> None:
    """--csv - reads a pipe; --column names the column by name or by number."""
    log_in(partner)
    for column in ("Contact", "2"):
        done = typed("unsubscribe", "email", "--csv", "-", "--column", column, stdin=b"Id,Contact\n1,ann@example.com\n")
        assert done.status == 0, done
    assert [record.address for record in _stored(partner)] == ["ann@example.com"]


def test_a_bad_item_is_told_by_its_line(typed: Typed, partner: Partner, log_in: Logged, tmp_path: Path) -> None:
    """The batch is refused: nothing is stored, and the line in the file is named, whatever stands before it."""
    log_in(partner)
    path = tmp_path / "list.csv"
    path.write_bytes(b'email,note\n"ann@example.com","two\nlines"\n\nno address,x\n')
    done = typed("unsubscribe", "email", "--csv", str(path), "--occurred-at", "2026-03-01T09:30:00Z")
    assert (done.status, done.text) == (1, "")
    assert done.told.splitlines()[0].startswith("line 5: The e-mail address has no @")
    assert "no address" not in done.told
    assert "400 invalid_item: 1 item of this batch cannot be accepted" in done.told.splitlines()[1]
    assert "--lenient" in done.told
    assert "Prefer" not in done.told
    assert _stored(partner) == []


def test_a_bad_argument_is_told_by_its_place(typed: Typed, partner: Partner, log_in: Logged) -> None:
    """Arguments are counted from 1."""
    log_in(partner)
    done = typed("unsubscribe", "email", "ann@example.com", "nobody")
    assert done.status == 1
    assert done.told.startswith("argument 2: ")
    assert "nobody" not in done.told


def test_lenient_stores_the_good_items_and_ends_with_3(typed: Typed, partner: Partner, log_in: Logged) -> None:
    """Bytes that are not UTF-8 are a bad item like any other."""
    log_in(partner)
    done = typed("unsubscribe", "email", "--lenient", stdin=b"nobody\nann@example.com\n\nb\xf6b@example.com\n")
    assert done.status == 3
    assert done.text.startswith("3 items: 1 created, 0 updated, 0 unchanged, 0 outranked, 2 refused.\n")
    first, second = done.told.splitlines()
    assert first.startswith("line 1: The e-mail address has no @")
    assert second == "line 4: This is not UTF-8: save the file as UTF-8."
    assert [record.address for record in _stored(partner)] == ["ann@example.com"]


def test_json_has_every_count_and_every_bad_line(typed: Typed, partner: Partner, log_in: Logged) -> None:
    """A script learns from stdout alone what became of what it gave."""
    log_in(partner)
    shown = typed("unsubscribe", "email", "--lenient", "--json", stdin=b"ann@example.com\nnobody\n").json
    assert len(shown.pop("submission_ids")) == 1
    assert shown.pop("item_errors")[0].pop("line") == 2
    assert shown == {
        "batches": 1, "received": 2, "created": 1, "updated": 0, "unchanged": 0, "outranked": 0, "is_complete": True
    }  # fmt: skip


def test_what_was_stored_before_is_told(typed: Typed, partner: Partner, log_in: Logged) -> None:
    """Where the second batch is refused, the first one stays stored, and the lines count over all."""
    log_in(partner)
    stdin = b"".join(b"p%d@example.com\n" % number for number in range(10_000)) + b"\nnobody\n"
    done = typed("unsubscribe", "email", "--json", stdin=stdin)
    assert done.status == 1
    lines = done.told.splitlines()
    assert lines[0].startswith("line 10002: ")
    assert "Stored before this: the first 10,000 items" in lines[1]
    assert "nothing of the batch was stored" in lines[2]
    shown = done.json
    assert (shown["received"], shown["is_complete"], shown["item_errors"][0]["line"]) == (10_000, False, 10_002)
    assert len(_stored(partner)) == 10_000


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"name,town\nAnn,Aix\n", "No column has a usual name for addresses"),
        (b"email,e-mail\n", "Several columns may hold the addresses"),
        (b"ann@example.com\nbob@example.com\n", "The first row looks like an address"),
        (b"", "empty"),
        (b"email,name\rann@example.com,Ann\r", "end with a carriage return alone"),
        (b"email,name\rann@example.com,Ann\r\n", "end with a carriage return alone"),
        (b'email,name\na@example.com,"Ann\nb@example.com,Bob\n', "line 2 is not CSV"),
        (b'email\n"a@example.com"x\n', "line 2 is not CSV"),
        ("email\nann@example.com\n".encode("utf-16"), "UTF-16"),
        (b"email\n" + b"x" * (2 << 20), "longer than 1 MiB"),
    ],
)
def test_a_file_that_is_no_such_table_is_refused(
    typed: Typed, partner: Partner, log_in: Logged, tmp_path: Path, content: bytes, text: str
) -> None:
    """What is wrong is said, and no address is repeated: in a file without a header that would be somebody's."""
    log_in(partner)
    path = tmp_path / "list.csv"
    path.write_bytes(content)
    done = typed("unsubscribe", "email", "--csv", str(path))
    done.failed(1, text)
    assert "example" not in done.told
    assert _stored(partner) == []


@pytest.mark.parametrize("name", ["Occurred At", "occurred-at", "OCCURRED_AT", " occurredAt "])
def test_the_case_and_the_blanks_of_a_column_make_no_difference(
    typed: Typed, partner: Partner, log_in: Logged, name: str
) -> None:
    """An opt-out of March must not become one of today, and so win over a consent of April."""
    log_in(partner)
    stdin = f"E_Mail Address,{name},Reason,Source\nann@example.com,2026-03-01T09:30:00Z,bounce,mailer\n".encode()
    done = typed("unsubscribe", "email", "--csv", "-", stdin=stdin)
    assert (done.status, done.told) == (0, "")
    assert [(f"{r.occurred_at:%m-%d %H:%M}", r.reason, r.source) for r in _stored(partner)] == [
        ("03-01 09:30", "bounce", "mailer")
    ]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("occured_at", "'occured_at' has almost the name occurred_at: call it occurred_at"),
        ("Occurred on", "'Occurred on' has almost the name occurred_at"),
        ("reasons", "'reasons' has almost the name reason"),
        ("sorce", "'sorce' has almost the name source"),
        ("occurred_at@x", "A column has almost the name occurred_at"),
    ],
)
def test_a_column_of_almost_a_known_name_is_refused(
    typed: Typed, partner: Partner, log_in: Logged, name: str, text: str
) -> None:
    """Whoever misspells it is told; --occurred-at, which is for all rows, does not stand in for it."""
    log_in(partner)
    for options in ([], ["--occurred-at", "2026-03-01T09:30:00Z"]):
        done = typed(
            "unsubscribe", "email", "--csv", "-", *options, stdin=f"email,{name}\nann@example.com,x\n".encode()
        )
        done.failed(1, text)
        assert "@" not in done.told
    assert _stored(partner) == []


def test_rows_without_any_moment_are_told_once(typed: Typed, partner: Partner, log_in: Logged) -> None:
    """On stderr; not where an option or a column says the moment, and other columns do not matter."""
    log_in(partner)
    stdin = b"email,resource,timestamp\nann@example.com,x,y\nbob@example.com,x,y\n"
    done = typed("unsubscribe", "email", "--csv", "-", stdin=stdin)
    assert (done.status, done.told) == (0, "stoplist-client: No occurred_at: all count as of now.\n")
    done = typed("unsubscribe", "email", "--csv", "-", "--occurred-at", "2026-03-01T09:30:00Z", stdin=stdin)
    assert (done.status, done.told) == (0, "")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["unsubscribe"], "CHANNEL"),
        (["unsubscribe", "ann@example.com"], "email, sms and phone"),
        (["unsubscribe", "email", "a@example.com", "--csv", "f"], "not both"),
        (["unsubscribe", "email", "a@example.com", "--group", "grp_" + "x" * 22, "--all-groups"], "not both"),
        (["unsubscribe", "email", "a@example.com", "--column", "x"], "--csv"),
        (["unsubscribe", "email", "a@example.com", "--occurred-at", "2026-03-01T09:30:00"], "--occurred-at"),
        (["unsubscribe", "email", "a@example.com", "--occurred-at", "2026-13-01T09:30:00Z"], "--occurred-at"),
        (["unsubscribe", "email", "a@example.com", "--reason", "whim"], "--reason"),
        (["resubscribe", "email", "a@example.com"], "Say when they consented"),
        (["resubscribe", "email", "a@example.com", "--reason", "manual"], "--reason"),
    ],
)
def test_wrong_usage_ends_with_2(
    typed: Typed, partner: Partner, log_in: Logged, arguments: list[str], text: str
) -> None:
    """What is wrong is named, addresses are not, and nothing is sent."""
    log_in(partner)
    done = typed(*arguments, stdin=b"bob@example.com\n")
    done.failed(2, text)
    assert "example" not in done.told
    assert _stored(partner) == []


def test_groups_and_organizations_are_chosen(typed: Typed, partner: Partner, log_in: Logged) -> None:
    """--group, --all-groups and the group of the profile each lead where they say."""
    log_in(partner, group_id=partner.other_group_id)
    typed("unsubscribe", "email", "profile@example.com")
    typed("unsubscribe", "email", "named@example.com", "--group", partner.group_id)
    typed("unsubscribe", "email", "all@example.com", "--all-groups")
    assert {record.address: record.group_id for record in _stored(partner)} == {
        "profile@example.com": partner.other_group_id,
        "named@example.com": partner.group_id,
        "all@example.com": None,
    }
    typed("unsubscribe", "email", "a@example.com", "--org", "nobody").failed(1, "403 unauthorized_organization")


def test_consents_are_submitted(typed: Typed, partner: Partner, log_in: Logged) -> None:
    """With the moment of an option, or of a column: later than the opt-out it wins, earlier it does not."""
    log_in(partner)
    typed("unsubscribe", "email", "ann@example.com", "bob@example.com", "--occurred-at", "2026-03-01T00:00:00Z")
    assert typed("resubscribe", "email", "ann@example.com", "--occurred-at", "2026-03-02T00:00:00Z").status == 0
    done = typed(
        "resubscribe", "email", "--csv", "-", stdin=b"email,occurred_at\nbob@example.com,2026-02-01T00:00:00Z\n"
    )
    assert done.text.startswith("1 item: 0 created, 0 updated, 0 unchanged, 1 outranked")
    assert {record.address: record.status for record in _stored(partner)} == {
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
def test_a_consent_without_its_moment_is_refused(
    typed: Typed, partner: Partner, log_in: Logged, content: bytes, text: str
) -> None:
    """Nothing is stamped: the moment of a consent must be one that can be proved."""
    log_in(partner)
    typed("resubscribe", "email", "--csv", "-", stdin=content).failed(1, text)
    assert _stored(partner) == []


@pytest.mark.parametrize(
    ("options", "stdin"),
    [([], b""), ([], b"\n \n"), (["--csv", "-"], b"email,occurred_at\n"), (["--csv", "-"], b"email,occurred_at")],
)
def test_nothing_given_is_nothing_submitted(
    typed: Typed, partner: Partner, log_in: Logged, options: list[str], stdin: bytes
) -> None:
    """An empty list is no error: a nightly export may have nothing to tell. A CSV file needs its header even so."""
    log_in(partner)
    done = typed("unsubscribe", "email", *options, stdin=stdin)
    assert (done.status, done.told) == (0, "")
    assert done.text == "0 items: 0 created, 0 updated, 0 unchanged, 0 outranked, 0 refused.\n"
    typed("unsubscribe", "email", "--csv", "-", stdin=b"").failed(1, "needs a header row")


def test_a_missing_file_is_named(typed: Typed, partner: Partner, log_in: Logged, tmp_path: Path) -> None:
    """In one line, with its path."""
    log_in(partner)
    path = tmp_path / "missing.csv"
    typed("unsubscribe", "email", "--csv", str(path)).failed(1, f"{path}: No such file")


def test_a_missing_permission_is_told(typed: Typed, new_partner: NewPartner, log_in: Logged) -> None:
    """With the code and the id of the request, to be told to the operator."""
    log_in(new_partner(may=frozenset(("read",))))
    typed("unsubscribe", "email", "ann@example.com").failed(1, "403 insufficient_scope", "(request ")


def test_people_see_how_far_it_is(partner: Partner, log_in: Logged, tmp_path: Path) -> None:
    """On a terminal: how much of the file was read and how many items were answered; the line is gone at the end."""
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
    assert re.match(r"\rSubmitting +\d+% \[[# ]{10}\] 10,000 items answered\x1b\[K", shown)
    assert shown.endswith("\r\x1b[K")


def test_unsubscribe_as_a_process(partner: Partner, log_in: Logged) -> None:
    """The command itself: stdin in, a line out, and its exit status."""
    log_in(partner)
    done = run("unsubscribe", "email", "--lenient", stdin=b"ann@example.com\nnobody\n")
    assert (done.status, done.text[:20]) == (3, "2 items: 1 created, ")
    assert done.told.startswith("line 2: ")
    run("resubscribe", "email", stdin=b"ann@example.com\n").failed(2, "--occurred-at")
