"""`stoplist` at a prompt, in this process: what it prints, and with which status it ends."""

import contextlib
import io
import json
import os
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from stoplist.cli import main


class Done(NamedTuple):
    """What became of a command."""

    status: int
    out: str
    err: str


class Prompt:
    """A folder in which commands are typed, with a data folder of its own and no variable of Stoplist set."""

    def __init__(self, patch: pytest.MonkeyPatch, folder: Path) -> None:
        self._patch = patch
        self.folder, self.data_dir = folder, folder / "data"
        patch.chdir(folder)

    def set(self, **variables: str) -> None:
        """From now on these STOPLIST_* variables are set, given without their prefix."""
        for name, value in variables.items():
            self._patch.setitem(os.environ, f"STOPLIST_{name}", value)

    def run(self, *arguments: str) -> Done:
        """`stoplist` with these arguments, the program's own `main` included."""
        self._patch.setattr(sys, "argv", ["stoplist", *arguments])
        out, err, status = io.StringIO(), io.StringIO(), 0
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                main()
            except SystemExit as exit_:
                status = exit_.code if isinstance(exit_.code, int) else 0
        return Done(status, out.getvalue(), err.getvalue())

    def ok(self, *arguments: str) -> str:
        """What a command that succeeds prints."""
        done = self.run(*arguments)
        assert done.status == 0, done
        return done.out

    def json(self, *arguments: str) -> Any:
        """What a command that succeeds prints for programs."""
        return json.loads(self.ok(*arguments, "--json"))

    def refused(self, *arguments: str) -> str:
        """What is wrong, when it is more than the command line shows: exit status 1, one line on stderr alone."""
        done = self.run(*arguments)
        assert (done.status, done.out) == (1, ""), done
        assert done.err.startswith("stoplist: ")
        assert done.err.count("\n") == 1
        return done.err

    def wrong_usage(self, *arguments: str) -> str:
        """What is wrong with the command line by itself: exit status 2, on stderr alone."""
        done = self.run(*arguments)
        assert (done.status, done.out) == (2, ""), done
        return done.err
