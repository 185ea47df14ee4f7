"""Runs `stoplist` commands in this process, and returns their output and exit status."""

import contextlib
import io
import json
import os
import pty
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from stoplist.cli import main


class CommandResult(NamedTuple):
    """The exit status and output of a command."""

    status: int
    out: str
    err: str

    def of_success(self) -> str:
        """Return the output of a command that must succeed."""
        assert self.status == 0, self
        return self.out

    def of_refusal(self) -> str:
        """Return the error of a command that must fail with exit status 1 and one line on stderr only."""
        assert (self.status, self.out) == (1, ""), self
        assert self.err.startswith("stoplist: ")
        assert self.err.count("\n") == 1
        return self.err


class Prompt:
    """A working directory for commands, with its own data folder and no STOPLIST_* variable set."""

    def __init__(self, patch: pytest.MonkeyPatch, folder: Path) -> None:
        self._patch = patch
        self.folder, self.data_dir = folder, folder / "data"
        patch.chdir(folder)

    def set(self, **variables: str) -> None:
        """Set STOPLIST_* variables, given without their prefix."""
        for name, value in variables.items():
            self._patch.setitem(os.environ, f"STOPLIST_{name}", value)

    @property
    def database_url(self) -> str:
        """Return the URL of the database that the commands use."""
        return os.environ.get("STOPLIST_DATABASE_URL", f"sqlite:///{self.data_dir / 'stoplist.db'}")

    def run(self, *arguments: str) -> CommandResult:
        """Run `stoplist` with these arguments, by the program's own `main`."""
        self._patch.setattr(sys, "argv", ["stoplist", *arguments])
        out, err, status = io.StringIO(), io.StringIO(), 0
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                main()
            except SystemExit as exit_:
                status = exit_.code if isinstance(exit_.code, int) else 0
        return CommandResult(status, out.getvalue(), err.getvalue())

    def ok(self, *arguments: str) -> str:
        """Return the output of a command that must succeed."""
        return self.run(*arguments).of_success()

    def json(self, *arguments: str) -> Any:
        """Return the JSON output of a command that must succeed."""
        return json.loads(self.ok(*arguments, "--json"))

    def refused(self, *arguments: str) -> str:
        """Return the error of a command that must be refused."""
        return self.run(*arguments).of_refusal()

    def wrong_usage(self, *arguments: str) -> str:
        """Return the error of a wrong command line: exit status 2, on stderr only."""
        result = self.run(*arguments)
        assert (result.status, result.out) == (2, ""), result
        return result.err


def at_a_terminal(
    prompt: Prompt, answer: str, *arguments: str, question: str = "[y/N]", meanwhile: Callable[[], Any] = lambda: None
) -> CommandResult:
    """Run a command on a terminal and type the answer to its question; `err` is what the terminal shows."""
    ours, theirs = pty.openpty()
    terminal_output = b""
    with subprocess.Popen(
        [sys.executable, "-c", "from stoplist.cli.main import main; main()", *arguments],
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=theirs,
        cwd=prompt.folder,
    ) as process:
        os.close(theirs)
        while question.encode() not in terminal_output:
            terminal_output += os.read(ours, 65_536)
        meanwhile()
        os.write(ours, answer.encode())
        out, _ = process.communicate(timeout=60)
    try:
        while part := os.read(ours, 65_536):
            terminal_output += part
    except OSError:  # on Linux, the end of a terminal without a writer
        pass
    os.close(ours)
    return CommandResult(process.returncode, out.decode(), terminal_output.decode().replace("\r\n", "\n"))
