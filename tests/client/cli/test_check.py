"""check."""

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.client.cli.typing_commands import COMMAND, PATIENCE_S, Logged, Typed, environment, run
from tests.client.partners import Partner


@pytest.fixture
def mirrored(typed: Typed, partner: Partner, log_in: Logged) -> Partner:
    """A partner, logged in, with a mirror: ann left the default group, bob the other one, and cleo everything."""
    log_in(partner)
    with partner.client() as client:
        client.unsubscribe("email", ["ann@example.com"])
        client.unsubscribe("email", ["bob@example.com"], group_id=partner.other_group_id)
        client.unsubscribe("email", ["cleo@example.com"], all_groups=True)
    assert typed("sync").status == 0
    return partner


_ALL = b"ann@example.com\nbob@example.com\ncleo@example.com\ndan@example.com\n"


@pytest.mark.parametrize(
    ("options", "allowed"),
    [
        (lambda partner: ["--group", partner.group_id], b"bob@example.com\ndan@example.com\n"),
        (lambda partner: ["--group", partner.other_group_id], b"ann@example.com\ndan@example.com\n"),
        (lambda _partner: ["--no-group"], b"ann@example.com\nbob@example.com\ndan@example.com\n"),
        (lambda _partner: ["--any-group"], b"dan@example.com\n"),
    ],
)
def test_who_is_barred_depends_on_the_message(
    typed: Typed, mirrored: Partner, options: Callable[[Partner], list[str]], allowed: bytes
) -> None:
    """The allowed ones are on stdout, all the others on stderr, each in their order; barred is no failure."""
    done = typed("check", "email", *options(mirrored), stdin=_ALL)
    assert (done.status, done.out) == (0, allowed)
    assert sorted(done.err.splitlines() + done.out.splitlines()) == _ALL.splitlines()


def test_lines_come_out_as_they_came(typed: Typed, mirrored: Partner) -> None:
    """Spelling, white space and line ends are kept; a barred one is found in any spelling; empty lines go."""
    stdin = b"\xef\xbb\xbf  Dan@Example.COM \r\n\r\nANN@example.com\neve@example.com"
    done = typed("check", "email", "--any-group", stdin=stdin)
    assert done.out == b"\xef\xbb\xbf  Dan@Example.COM \r\neve@example.com\n"
    assert done.err == b"ANN@example.com\n"


def test_what_is_no_address_is_marked_and_ends_with_3(typed: Typed, mirrored: Partner) -> None:
    """It is not allowed; on stderr a tab and the reason stand behind it, bytes that are not UTF-8 included."""
    done = typed("check", "email", "--any-group", stdin=b"nobody\r\nb\xf6b@example.com\ndan@example.com\n")
    assert (done.status, done.out) == (3, b"dan@example.com\n")
    lines = done.err.splitlines()
    assert [line.partition(b"\tinvalid: ")[0] for line in lines] == [b"nobody", b"b\xf6b@example.com"]
    assert b"has no @" in lines[0]
    assert b"save the file as UTF-8" in lines[1]


def test_json_has_a_verdict_for_every_line(typed: Typed, mirrored: Partner) -> None:
    """All on stdout, in their order."""
    done = typed("check", "email", "--any-group", "--json", stdin=b"Ann@example.com\ndan@example.com\nx\xf6\n")
    assert (done.status, done.err) == (3, b"")
    shown = [json.loads(line) for line in done.out.splitlines()]
    assert shown[:2] == [
        {"address": "Ann@example.com", "canonical": "ann@example.com", "verdict": "barred", "problem": None},
        {"address": "dan@example.com", "canonical": "dan@example.com", "verdict": "allowed", "problem": None},
    ]
    assert (shown[2]["address"], shown[2]["canonical"], shown[2]["verdict"]) == ("x\\xf6", None, "invalid")
    assert "save the file as UTF-8" in shown[2]["problem"]


@pytest.mark.parametrize(("stdin", "status"), [(b"ann@example.com\n", 3), (b"dan@example.com\n", 0), (b"", 0)])
@pytest.mark.parametrize("as_json", [[], ["--json"]])
def test_a_script_may_fail_if_somebody_is_barred(
    typed: Typed, mirrored: Partner, stdin: bytes, status: int, as_json: list[str]
) -> None:
    """--fail-if-barred ends with 3 exactly then."""
    assert typed("check", "email", "--any-group", "--fail-if-barred", *as_json, stdin=stdin).status == status
    assert typed("check", "email", "--any-group", *as_json, stdin=stdin).status == 0


def test_what_the_message_is_must_be_said(typed: Typed, mirrored: Partner) -> None:
    """Nothing is guessed: the refusal says what each of the three options means."""
    typed("check", "email", stdin=_ALL).failed(2, "--group ID", "--no-group", "--any-group", "left anything at all")
    typed("check", "email", "--no-group", "--any-group").failed(2, "Say one of")
    typed("check", "email", "--group", mirrored.group_id, "--any-group").failed(2, "Say one of")


def test_the_profile_may_name_the_group(typed: Typed, mirrored: Partner, log_in: Logged) -> None:
    """It is the group of messages unless an option says otherwise; and not where another organization is named."""
    log_in(mirrored, group_id=mirrored.other_group_id)
    assert typed("check", "email", stdin=_ALL).out == b"ann@example.com\ndan@example.com\n"
    assert typed("check", "email", "--any-group", stdin=_ALL).out == b"dan@example.com\n"
    typed("check", "email", "--org", "other", stdin=_ALL).failed(2, "Say what the message is")


def test_a_malformed_group_is_wrong_usage(typed: Typed, mirrored: Partner) -> None:
    """A misspelt id must not let everybody through."""
    typed("check", "email", "--group", "newsletter", stdin=_ALL).failed(2, "grp_")


def test_a_group_without_any_record_is_told(typed: Typed, mirrored: Partner, log_in: Logged) -> None:
    """An id that is well-formed and wrong would let everybody through who left that group, and nothing else said so."""
    unknown, text = "grp_" + "0" * 22, f"No record of the group grp_{'0' * 22} is here: is the id right?"
    done = typed("check", "email", "--group", unknown, stdin=b"ann@example.com\n")
    assert (done.status, done.out) == (0, b"ann@example.com\n")
    assert done.told == f"stoplist-client: {text}\n"
    assert typed("check", "email", "--group", mirrored.group_id, stdin=b"dan@example.com\n").told == ""
    log_in(mirrored, group_id=unknown)
    assert text in typed("check", "email", stdin=b"").told


@pytest.mark.parametrize("options", [["--org", "other"], ["--mirror", "nowhere.db"]])
def test_what_is_not_mirrored_lets_nobody_through(typed: Typed, mirrored: Partner, options: list[str]) -> None:
    """Nothing is known of it, so nothing is on stdout."""
    typed("check", "email", "--any-group", *options, stdin=_ALL).failed(1, "`stoplist-client sync`")


def test_an_old_mirror_lets_nobody_through(typed: Typed, mirrored: Partner) -> None:
    """Older than --max-age there is no answer, unless any age will do."""
    typed("check", "email", "--any-group", "--max-age", "0", stdin=_ALL).failed(1, "--max-age any")
    assert typed("check", "email", "--any-group", "--max-age", "any", stdin=_ALL).out == b"dan@example.com\n"
    assert typed("check", "email", "--any-group", "--max-age", "1h", stdin=_ALL).out == b"dan@example.com\n"
    typed("check", "email", "--any-group", "--max-age", "soon", stdin=_ALL).failed(2, "24h")


def test_neither_key_nor_network_is_needed(typed: Typed, mirrored: Partner, client_folder: Path) -> None:
    """With --mirror it works where nobody is logged in; without, it says what is missing."""
    assert typed("logout").status == 0
    mirror = str(client_folder / "mirror-default.db")
    assert typed("check", "email", "--any-group", "--mirror", mirror, stdin=_ALL).out == b"dan@example.com\n"
    typed("check", "email", "--any-group", stdin=_ALL).failed(1, "--mirror", "login")


def test_neither_the_client_nor_httpx2_is_imported(mirrored: Partner) -> None:
    """Who only asks needs no network, and waits for nothing of it."""
    done = run("check", "email", "--any-group", stdin=_ALL, variables={"PYTHONPROFILEIMPORTTIME": "1"})
    assert done.out == b"dan@example.com\n"
    assert b"stoplist_client.mirror" in done.err
    assert b"httpx2" not in done.err


def test_each_line_is_answered_at_once(mirrored: Partner) -> None:
    """A program that writes a line and waits for its answer does not wait for more lines."""
    process = subprocess.Popen(
        [COMMAND, "check", "email", "--any-group", "--json"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment(),
    )
    assert process.stdin is not None
    assert process.stdout is not None
    for line, verdict in ((b"ann@example.com\n", "barred"), (b"dan@example.com\n", "allowed")):
        process.stdin.write(line)
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["verdict"] == verdict
    process.stdin.close()
    process.stdout.close()
    assert process.wait(PATIENCE_S) == 0


def test_check_as_a_process(mirrored: Partner) -> None:
    """The command itself; and a reader that stops early, as `| head`, ends it quietly."""
    done = run("check", "email", "--any-group", "--fail-if-barred", stdin=_ALL)
    assert (done.status, done.out) == (3, b"dan@example.com\n")
    reading, writing = os.pipe()
    os.close(reading)
    ended = subprocess.run(
        [COMMAND, "check", "email", "--any-group"],
        input=b"dan@example.com\n",
        stdout=writing,
        stderr=subprocess.PIPE,
        env=environment(),
        timeout=PATIENCE_S,
        check=False,
    )
    os.close(writing)
    assert (ended.returncode, ended.stderr) == (1, b"")
