"""Behaviour that all commands share: help, version, errors, and secrecy."""

import os
import signal
import subprocess
import sys

import click
import pytest
from stoplist_client.cli.exit_status import GlobalOptions, report_error
from stoplist_client.cli.main import COMMANDS, stoplist_client

from tests.client.cli.command_runner import COMMAND, LogIn, RunCommand, environment, run_process
from tests.client.partners import Partner
from tests.constants import PATIENCE_S
from tests.services.managed_program import reserve_port

pytestmark = pytest.mark.interpreter


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_with_an_example(cli: RunCommand, name: str) -> None:
    result = cli(name, "--help")
    assert (result.status, result.err_text) == (0, "")
    assert f"Usage: stoplist-client {name}" in result.out_text
    assert f"      stoplist-client {name}" in result.out_text.replace("\n    ", "\n      ") or name == "completion"
    assert cli(name, "-h").out_text == result.out_text


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_takes_profile_and_debug(name: str) -> None:
    command = stoplist_client.get_command(click.Context(stoplist_client), name)
    assert command is not None
    options = {option for param in command.params for option in param.opts}
    assert "--debug" in options
    assert "--profile" in options or name == "completion"


def test_help_lists_the_exit_statuses(cli: RunCommand) -> None:
    """The same help is shown if no command is given."""
    text = cli("--help").out_text
    for status in ("0  ", "1  ", "2  ", "3  ", "130"):
        assert f"\n    {status}" in text
    result = cli()
    assert (result.status, result.err_text, result.out_text) == (2, text, "")


def test_version_is_printed() -> None:
    result = run_process("--version")
    assert (result.status, result.out.split()[0], result.err) == (0, b"stoplist-client", b"")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["frobnicate"], "frobnicate"),
        (["check", "email", "--frobnicate"], "--frobnicate"),
        (["look-up", "email", "ann@example.com", "--profile", "a/b"], "--profile"),
        (["completion", "powershell"], "powershell"),
        (["completion"], "Missing argument 'SHELL'. Choose from: bash, zsh, fish. See"),
        (["lookup", "email"], "There is no command 'lookup'. Did you mean look-up?"),
        (["ann@example.com"], "That is not a command. See `stoplist-client --help`."),
        (["sync", "--channel", "fax"], "'--channel': A channel is email, sms or phone. See"),
        (["look-up", "email", "--json", "--json-lines"], "not both"),
        (["check", "email", "\udcff"], "UTF-8"),
    ],
)
def test_wrong_usage_is_one_line_and_status_2(cli: RunCommand, arguments: list[str], text: str) -> None:
    """The line names the problem and the help, and repeats no address."""
    result = cli(*arguments)
    result.assert_failed(2, text)
    assert "@" not in result.err_text


def test_help_names_the_delimiters(cli: RunCommand) -> None:
    """Each has a name that needs no quotes in a shell."""
    text = " ".join(cli("scrub", "--help").out_text.split())
    assert "--delimiter NAME The column separator: comma, semicolon, tab or bar" in text


def test_unavailable_service_is_reported_in_one_line(
    cli: RunCommand, partner: Partner, log_in: LogIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stoplist_client.flows.retries._FIRST_WAIT_S", 0.001)
    with reserve_port() as closed:
        server = _UnreachableServer(closed.getsockname()[1], partner.service.ca_file)
        log_in(partner._replace(service=partner.service._replace(server=server)))  # type: ignore[arg-type]
        cli("look-up", "email", "ann@example.com").assert_failed(1, "No answer from the service")


class _UnreachableServer:
    """A server that does not run."""

    def __init__(self, port: int, ca: str) -> None:
        self.base_url, self.ca = f"https://localhost:{port}", ca


def test_debug_prints_frames_without_secrets(cli: RunCommand, partner: Partner, log_in: LogIn) -> None:
    """Files, lines and functions are printed; the secret, tokens and addresses are not."""
    log_in(partner)
    result = cli("look-up", "email", "ann@example.com", "--org", "nobody", "--debug")
    assert result.status == 1
    assert "look_up.py, line" in result.err_text
    assert "UnauthorizedOrganization" in result.err_text
    for secret in ("svc_cs_", "svc_at_", "svc_rt_", "ann@", partner.key.client_secret):
        assert secret not in result.err_text


def test_messages_of_libraries_are_not_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """An unexpected error is reported as a bug, with its class and place only: its message may repeat an address."""
    with pytest.raises(KeyError) as raised:
        raise KeyError("ann@example.com")
    global_options = GlobalOptions()
    for is_debugging in (False, True):
        global_options.debug = is_debugging
        assert report_error(raised.value, global_options) == 1
        output = capsys.readouterr().err
        assert "This is a bug" in output
        assert "KeyError in test_main.py" in output
        assert "ann@" not in output
    assert "in test_messages_of_libraries" in output


def test_closed_pipe_ends_the_command_quietly(partner: Partner, log_in: LogIn) -> None:
    """Behind `| head`, for example, nothing is printed, and the status is 1."""
    log_in(partner)
    reading, writing = os.pipe()
    os.close(reading)
    process = subprocess.run(
        [COMMAND, "look-up", "email", "ann@example.com"],
        stdout=writing, stderr=subprocess.PIPE, env=environment(), timeout=PATIENCE_S, check=False
    )  # fmt: skip
    os.close(writing)
    assert (process.returncode, process.stderr) == (1, b"")


def test_full_disk_is_reported() -> None:
    """A failed write is an error even if the whole output fits into the buffer."""
    with open("/dev/full", "wb") as full:
        process = subprocess.run(
            [COMMAND, "completion", "fish"],
            stdout=full, stderr=subprocess.PIPE, env=environment(), timeout=PATIENCE_S, check=False
        )  # fmt: skip
    assert process.returncode == 1
    assert process.stderr == b"stoplist-client: No space left on device.\n"


def test_ctrl_c_exits_with_130(partner: Partner, log_in: LogIn) -> None:
    """No traceback is printed, even while the command waits for input."""
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
    # The command runs, and waits for more lines.
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, err.strip()) == (130, b"stoplist-client: Interrupted.")


def test_closed_stdin_is_reported(partner: Partner, log_in: LogIn) -> None:
    log_in(partner)
    code = "import sys; sys.stdin = None; from stoplist_client.cli import main; main(['look-up', 'email'])"
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, env=environment(), check=False)
    assert process.returncode == 1
    assert b"Standard input is closed" in process.stderr
