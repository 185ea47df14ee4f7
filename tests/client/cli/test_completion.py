"""The command `completion`: its scripts, and the completions that shells ask for."""

import shutil
import subprocess

import pytest

from tests.client.cli.command_runner import LogIn, RunCommand, run_process
from tests.client.partners import Partner


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_script_is_valid_for_the_shell(cli: RunCommand, shell: str) -> None:
    """Checked with the shell itself if it is installed."""
    result = cli("completion", shell)
    assert (result.status, result.err_text) == (0, "")
    assert "stoplist-client" in result.out_text
    assert "_STOPLIST_CLIENT_COMPLETE" in result.out_text
    if program := shutil.which(shell):
        checked = subprocess.run([program, "-n"], input=result.out, capture_output=True, check=False)
        assert (checked.returncode, checked.stderr) == (0, b"")


def test_commands_are_completed() -> None:
    """The command runs as a process, with the protocol of the script."""
    asked = {"_STOPLIST_CLIENT_COMPLETE": "bash_complete", "COMP_WORDS": "stoplist-client u", "COMP_CWORD": "1"}
    result = run_process(variables=asked)
    assert (result.status, result.out.split()) == (0, [b"plain,unsubscribe"])


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        ("stoplist-client unsubscribe e", ["email"]),
        ("stoplist-client check ", ["email", "sms", "phone"]),
        ("stoplist-client sync --profile s", ["staging"]),
        ("stoplist-client unsubscribe email --rea", ["--reason"]),
        ("stoplist-client completion f", ["fish"]),
    ],
)
def test_channels_profiles_and_options_are_completed(
    cli: RunCommand, partner: Partner, log_in: LogIn, monkeypatch: pytest.MonkeyPatch, words: str, completed: list[str]
) -> None:
    log_in(partner, name="staging")
    log_in(partner, name="production")
    monkeypatch.setenv("_STOPLIST_CLIENT_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(len(words.split(" ")) - 1))
    assert [line.partition(",")[2] for line in cli().out_text.splitlines()] == completed
