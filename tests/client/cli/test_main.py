"""What all commands share: help, version, how errors end, and what is never shown."""

import os
import signal
import subprocess
import sys

import click
import pytest
from stoplist_client.cli.exit_status import GlobalOptions, ended
from stoplist_client.cli.main import COMMANDS, stoplist_client

from tests.client.cli.typing_commands import COMMAND, PATIENCE_S, Logged, Typed, environment, run
from tests.client.partners import Partner
from tests.services.keeping import reserve_port


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_with_an_example(typed: Typed, name: str) -> None:
    """--help and -h say what it does; the line in the list of commands is about the same command."""
    done = typed(name, "--help")
    assert (done.status, done.told) == (0, "")
    assert f"Usage: stoplist-client {name}" in done.text
    assert f"      stoplist-client {name}" in done.text.replace("\n    ", "\n      ") or name == "completion"
    assert typed(name, "-h").text == done.text


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_takes_profile_and_debug(name: str) -> None:
    """Wherever one types them."""
    command = stoplist_client.get_command(click.Context(stoplist_client), name)
    assert command is not None
    options = {option for param in command.params for option in param.opts}
    assert "--debug" in options
    assert "--profile" in options or name == "completion"


def test_the_help_says_how_it_ends(typed: Typed) -> None:
    """The exit statuses are documented where people look first; no command at all shows the same help."""
    text = typed("--help").text
    for status in ("0  ", "1  ", "2  ", "3  ", "130"):
        assert f"\n    {status}" in text
    done = typed()
    assert (done.status, done.told, done.text) == (2, text, "")


def test_the_version_is_told() -> None:
    """As a process, with nothing on stderr."""
    done = run("--version")
    assert (done.status, done.out.split()[0], done.err) == (0, b"stoplist-client", b"")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["frobnicate"], "frobnicate"),
        (["check", "email", "--frobnicate"], "--frobnicate"),
        (["look-up", "email", "ann@example.com", "--profile", "a/b"], "--profile"),
        (["completion", "powershell"], "powershell"),
        (["completion"], "Missing argument 'SHELL'. Choose from: bash, zsh, fish. See"),
        (["lookup", "email"], "There is no command 'lookup': did you mean look-up?"),
        (["ann@example.com"], "That is no command. See `stoplist-client --help`."),
        (["sync", "--channel", "fax"], "'--channel': A channel is one of email, sms and phone. See"),
        (["look-up", "email", "--json", "--json-lines"], "not both"),
        (["check", "email", "\udcff"], "UTF-8"),
    ],
)
def test_wrong_usage_is_one_line_and_2(typed: Typed, arguments: list[str], text: str) -> None:
    """It names what is wrong and where help is."""
    done = typed(*arguments)
    done.failed(2, text)
    assert "@" not in done.told


def test_separators_are_named_where_options_are_listed(typed: Typed) -> None:
    """By a word each, which is what one can type without quotes."""
    text = " ".join(typed("scrub", "--help").text.split())
    assert "--delimiter NAME What separates the columns: comma, semicolon, tab or bar" in text


def test_a_service_that_is_away_is_told(
    typed: Typed, partner: Partner, log_in: Logged, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the attempts, in one line, with 1."""
    monkeypatch.setattr("stoplist_client.flows.retries._FIRST_WAIT_S", 0.001)
    with reserve_port() as closed:
        server = _Away(closed.getsockname()[1], partner.service.ca_file)
        log_in(partner._replace(service=partner.service._replace(server=server)))  # type: ignore[arg-type]
        typed("look-up", "email", "ann@example.com").failed(1, "No answer from the service")


class _Away:
    """A server that nobody runs."""

    def __init__(self, port: int, ca: str) -> None:
        self.base_url, self.ca = f"https://localhost:{port}", ca


def test_debug_shows_the_way_and_no_secret(typed: Typed, partner: Partner, log_in: Logged) -> None:
    """Files, lines and functions; neither the secret, nor a token, nor an address."""
    log_in(partner)
    done = typed("look-up", "email", "ann@example.com", "--org", "nobody", "--debug")
    assert done.status == 1
    assert "look_up.py, line" in done.told
    assert "UnauthorizedOrganization" in done.told
    for secret in ("svc_cs_", "svc_at_", "svc_rt_", "ann@", partner.key.secret):
        assert secret not in done.told


def test_the_text_of_a_foreign_error_is_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    """A library's error may repeat what it was given: its class and place are told, and it is called a defect."""
    with pytest.raises(KeyError) as raised:
        raise KeyError("ann@example.com")
    wishes = GlobalOptions()
    for is_debugging in (False, True):
        wishes.debug = is_debugging
        assert ended(raised.value, wishes) == 1
        told = capsys.readouterr().err
        assert "defect" in told
        assert "KeyError in test_main.py" in told
        assert "ann@" not in told
    assert "in test_the_text_of_a_foreign_error" in told


def test_a_reader_that_went_away_ends_it_quietly(partner: Partner, log_in: Logged) -> None:
    """As with `| head`: nothing is said, and it has not gone well."""
    log_in(partner)
    reading, writing = os.pipe()
    os.close(reading)
    process = subprocess.run(
        [COMMAND, "look-up", "email", "ann@example.com"],
        stdout=writing, stderr=subprocess.PIPE, env=environment(), timeout=PATIENCE_S, check=False
    )  # fmt: skip
    os.close(writing)
    assert (process.returncode, process.stderr) == (1, b"")


def test_a_full_disk_is_told() -> None:
    """What cannot be written is an error, even where all fits into the buffer."""
    with open("/dev/full", "wb") as full:
        process = subprocess.run(
            [COMMAND, "completion", "fish"],
            stdout=full, stderr=subprocess.PIPE, env=environment(), timeout=PATIENCE_S, check=False
        )  # fmt: skip
    assert process.returncode == 1
    assert process.stderr == b"stoplist-client: No space left on device.\n"


def test_ctrl_c_ends_with_130(partner: Partner, log_in: Logged) -> None:
    """While it waits for lines, and without a traceback."""
    log_in(partner)
    process = subprocess.Popen(
        [COMMAND, "look-up", "email", "--json-lines"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b"ann@example.com\n" * 100)
    process.stdin.flush()
    for _ in range(100):
        assert process.stdout.readline()
    # So it runs, and waits for the next hundred.
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, err.strip()) == (130, b"stoplist-client: Interrupted.")


def test_a_closed_stdin_is_told(partner: Partner, log_in: Logged) -> None:
    """As from a program that closed it."""
    log_in(partner)
    code = "import sys; sys.stdin = None; from stoplist_client.cli import main; main(['look-up', 'email'])"
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, env=environment(), check=False)
    assert process.returncode == 1
    assert b"standard input is closed" in process.stderr
