"""completion: scripts that shells accept, and what they are answered."""

import shutil
import subprocess

import pytest

from tests.client.cli.typing_commands import Logged, Typed, run
from tests.client.partners import Partner


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_is_one_that_the_shell_accepts(typed: Typed, shell: str) -> None:
    """It is about this command; where the shell is there, it reads it without a complaint."""
    done = typed("completion", shell)
    assert (done.status, done.told) == (0, "")
    assert "stoplist-client" in done.text
    assert "_STOPLIST_CLIENT_COMPLETE" in done.text
    if program := shutil.which(shell):
        checked = subprocess.run([program, "-n"], input=done.out, capture_output=True, check=False)
        assert (checked.returncode, checked.stderr) == (0, b"")


def test_commands_are_completed() -> None:
    """By the protocol that the script speaks, as a process."""
    asked = {"_STOPLIST_CLIENT_COMPLETE": "bash_complete", "COMP_WORDS": "stoplist-client u", "COMP_CWORD": "1"}
    done = run(variables=asked)
    assert (done.status, done.out.split()) == (0, [b"plain,unsubscribe"])


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
def test_words_are_completed(
    typed: Typed, partner: Partner, log_in: Logged, monkeypatch: pytest.MonkeyPatch, words: str, completed: list[str]
) -> None:
    """Channels, profiles, options and their values."""
    log_in(partner, name="staging")
    log_in(partner, name="production")
    monkeypatch.setenv("_STOPLIST_CLIENT_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(len(words.split(" ")) - 1))
    assert [line.partition(",")[2] for line in typed().text.splitlines()] == completed
