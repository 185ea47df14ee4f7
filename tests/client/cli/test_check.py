"""The command `check`."""

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.client.cli.command_runner import COMMAND, LogIn, RunCommand, environment, run_process
from tests.client.partners import Partner
from tests.constants import PATIENCE_S


@pytest.fixture
def partner_with_mirror(cli: RunCommand, partner: Partner, log_in: LogIn) -> Partner:
    """A partner with a profile and a mirror. ann opted out of the default group, bob of the other one, cleo of all."""
    log_in(partner)
    with partner.client() as client:
        client.unsubscribe("email", ["ann@example.com"])
        client.unsubscribe("email", ["bob@example.com"], group_id=partner.other_group_id)
        client.unsubscribe("email", ["cleo@example.com"], all_groups=True)
    assert cli("sync").status == 0
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
def test_group_option_decides_who_is_barred(
    cli: RunCommand, partner_with_mirror: Partner, options: Callable[[Partner], list[str]], allowed: bytes
) -> None:
    """Allowed lines go to stdout and the others to stderr, each in order; the status is 0."""
    result = cli("check", "email", *options(partner_with_mirror), stdin=_ALL)
    assert (result.status, result.out) == (0, allowed)
    assert sorted(result.err.splitlines() + result.out.splitlines()) == _ALL.splitlines()


def test_lines_are_printed_unchanged(cli: RunCommand, partner_with_mirror: Partner) -> None:
    """Spelling, white space and line endings are kept; empty lines are skipped; every spelling is barred."""
    stdin = b"\xef\xbb\xbf  Dan@Example.COM \r\n\r\nANN@example.com\neve@example.com"
    result = cli("check", "email", "--any-group", stdin=stdin)
    assert result.out == b"\xef\xbb\xbf  Dan@Example.COM \r\neve@example.com\n"
    assert result.err == b"ANN@example.com\n"


def test_invalid_lines_are_marked_and_exit_with_3(cli: RunCommand, partner_with_mirror: Partner) -> None:
    """They go to stderr, with a tab and the reason, even if their bytes are not UTF-8."""
    result = cli("check", "email", "--any-group", stdin=b"nobody\r\nb\xf6b@example.com\ndan@example.com\n")
    assert (result.status, result.out) == (3, b"dan@example.com\n")
    lines = result.err.splitlines()
    assert [line.partition(b"\tinvalid: ")[0] for line in lines] == [b"nobody", b"b\xf6b@example.com"]
    assert b"has no @" in lines[0]
    assert b"save the file as UTF-8" in lines[1]


def test_json_has_a_verdict_for_every_line(cli: RunCommand, partner_with_mirror: Partner) -> None:
    """All on stdout, in the order of the lines."""
    result = cli("check", "email", "--any-group", "--json", stdin=b"Ann@example.com\ndan@example.com\nx\xf6\n")
    assert (result.status, result.err) == (3, b"")
    shown = [json.loads(line) for line in result.out.splitlines()]
    assert shown[:2] == [
        {"address": "Ann@example.com", "canonical": "ann@example.com", "verdict": "barred", "problem": None},
        {"address": "dan@example.com", "canonical": "dan@example.com", "verdict": "allowed", "problem": None},
    ]
    assert (shown[2]["address"], shown[2]["canonical"], shown[2]["verdict"]) == ("x\\xf6", None, "invalid")
    assert "save the file as UTF-8" in shown[2]["problem"]


def test_json_escapes_what_controls_a_terminal(cli: RunCommand, partner_with_mirror: Partner) -> None:
    """A list may hold what others wrote: C1 and what changes the direction of text."""
    line = "a\x9b2J\u202e\x7fb@"
    result = cli("check", "email", "--any-group", "--json", stdin=line.encode() + b"\n")
    assert result.out.isascii()
    assert b"\x7f" not in result.out
    assert json.loads(result.out)["address"] == line


@pytest.mark.parametrize(("stdin", "status"), [(b"ann@example.com\n", 3), (b"dan@example.com\n", 0), (b"", 0)])
@pytest.mark.parametrize("as_json", [[], ["--json"]])
def test_fail_if_barred_exits_with_3(
    cli: RunCommand, partner_with_mirror: Partner, stdin: bytes, status: int, as_json: list[str]
) -> None:
    assert cli("check", "email", "--any-group", "--fail-if-barred", *as_json, stdin=stdin).status == status
    assert cli("check", "email", "--any-group", *as_json, stdin=stdin).status == 0


def test_the_group_must_be_chosen(cli: RunCommand, partner_with_mirror: Partner) -> None:
    """Nothing is guessed: the error explains each of the three options."""
    cli("check", "email", stdin=_ALL).assert_failed(
        2, "--group ID", "--no-group", "--any-group", "opted out of anything"
    )
    cli("check", "email", "--no-group", "--any-group").assert_failed(2, "Use only one of")
    cli("check", "email", "--group", partner_with_mirror.group_id, "--any-group").assert_failed(2, "Use only one of")


def test_group_of_the_profile_is_the_default(cli: RunCommand, partner_with_mirror: Partner, log_in: LogIn) -> None:
    """It does not apply to another organization."""
    log_in(partner_with_mirror, group_id=partner_with_mirror.other_group_id)
    assert cli("check", "email", stdin=_ALL).out == b"ann@example.com\ndan@example.com\n"
    assert cli("check", "email", "--any-group", stdin=_ALL).out == b"dan@example.com\n"
    cli("check", "email", "--org", "other", stdin=_ALL).assert_failed(2, "Say which group the message is of")


def test_malformed_group_is_wrong_usage(cli: RunCommand, partner_with_mirror: Partner) -> None:
    """A misspelt id must not allow everybody."""
    cli("check", "email", "--group", "newsletter", stdin=_ALL).assert_failed(2, "grp_")


def test_group_without_records_is_reported(cli: RunCommand, partner_with_mirror: Partner, log_in: LogIn) -> None:
    """A well-formed but wrong id would allow everybody who opted out of the right group."""
    unknown, text = "grp_" + "0" * 22, f"The mirror has no record of the group grp_{'0' * 22}: check the id."
    result = cli("check", "email", "--group", unknown, stdin=b"ann@example.com\n")
    assert (result.status, result.out) == (0, b"ann@example.com\n")
    assert result.err_text == f"stoplist-client: {text}\n"
    assert cli("check", "email", "--group", partner_with_mirror.group_id, stdin=b"dan@example.com\n").err_text == ""
    log_in(partner_with_mirror, group_id=unknown)
    assert text in cli("check", "email", stdin=b"").err_text


@pytest.mark.parametrize("options", [["--org", "other"], ["--mirror", "nowhere.db"]])
def test_missing_mirror_allows_nobody(cli: RunCommand, partner_with_mirror: Partner, options: list[str]) -> None:
    cli("check", "email", "--any-group", *options, stdin=_ALL).assert_failed(1, "`stoplist-client sync`")


def test_old_mirror_allows_nobody(cli: RunCommand, partner_with_mirror: Partner) -> None:
    """Unless --max-age permits its age."""
    cli("check", "email", "--any-group", "--max-age", "0", stdin=_ALL).assert_failed(1, "--max-age any")
    assert cli("check", "email", "--any-group", "--max-age", "any", stdin=_ALL).out == b"dan@example.com\n"
    assert cli("check", "email", "--any-group", "--max-age", "1h", stdin=_ALL).out == b"dan@example.com\n"
    cli("check", "email", "--any-group", "--max-age", "soon", stdin=_ALL).assert_failed(2, "24h")


def test_check_needs_no_key_with_mirror_option(
    cli: RunCommand, partner_with_mirror: Partner, client_folder: Path
) -> None:
    """Without --mirror, the error says what is missing."""
    assert cli("logout").status == 0
    mirror = str(client_folder / "mirror-default.db")
    assert cli("check", "email", "--any-group", "--mirror", mirror, stdin=_ALL).out == b"dan@example.com\n"
    cli("check", "email", "--any-group", stdin=_ALL).assert_failed(1, "--mirror", "login")


def test_check_does_not_import_httpx2(partner_with_mirror: Partner) -> None:
    """check needs no network, and starts faster without it."""
    result = run_process("check", "email", "--any-group", stdin=_ALL, variables={"PYTHONPROFILEIMPORTTIME": "1"})
    assert result.out == b"dan@example.com\n"
    assert b"stoplist_client.mirror" in result.err
    assert b"httpx2" not in result.err


def test_each_line_is_answered_at_once(partner_with_mirror: Partner) -> None:
    """A program can write one line and read its answer before it writes the next."""
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


def test_check_runs_as_a_process(partner_with_mirror: Partner) -> None:
    """A reader that stops early, as `| head` does, ends it quietly."""
    result = run_process("check", "email", "--any-group", "--fail-if-barred", stdin=_ALL)
    assert (result.status, result.out) == (3, b"dan@example.com\n")
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
