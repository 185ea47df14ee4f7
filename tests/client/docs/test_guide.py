"""Runs everything in the client's quick start and guide from top to bottom, in one shell.

The environment is like that of `make client`, in a copy of the checkout, beside a demo server.
"""

import os
import re
import shutil
from contextlib import closing
from pathlib import Path

import pytest
from stoplist_client import errors
from stoplist_client.cli.main import COMMANDS
from stoplist_client.errors import BY_CODE, ApiError, StoplistClientError

from tests.constants import ROOT
from tests.e2e.reader import Reader, Shell
from tests.e2e.server_process import Installation, RunningServer

QUICK_START, GUIDE = ROOT / "client" / "README.md", ROOT / "docs" / "client.md"
# The parts of a checkout that `make client` needs.
PARTS = ("tools", "requirements", "addresses", "client")
PROGRAMS = ("bash", "make", "python3", "seq", "sort", "uniq")
MISSING = [name for name in PROGRAMS if shutil.which(name) is None]
needs_programs = pytest.mark.skipif(bool(MISSING) and not os.environ.get("CI"), reason=f"not installed: {MISSING}")

_EXAMPLE = {
    "client_id": "svc_ci_Example1Example2Example3",
    "client_secret": "svc_cs_Example1Example2Example3Example4Example5Example6E",
}


def demo_key(server: RunningServer) -> dict[str, str]:
    """Return the key that `make serve` prints, by its placeholders in the documents."""
    assert server.out.wait_for("Stop with Ctrl+C.")
    return {example: re.findall(rf"{name} +(svc_\w+)", server.out.text)[0] for name, example in _EXAMPLE.items()}


@pytest.fixture
def checkout(tmp_path: Path, client_programs: Path) -> Installation:
    """A copy of the parts of the checkout that partners need, after `make client`."""
    shutil.copy2(ROOT / "Makefile", tmp_path)
    for part in PARTS:
        shutil.copytree(ROOT / part, tmp_path / part, ignore=shutil.ignore_patterns("*.egg-info", "__pycache__"))
    # Installed from the wheels instead of the checkout: the same packages, and one environment for all tests.
    environment = tmp_path / ".venv-client"
    environment.symlink_to(client_programs.parent)
    (environment / ".client").touch()
    installation = Installation(tmp_path)
    installation.variables["STOPLISTCLIENT_DIR"] = str(tmp_path / "of-the-client")
    return installation


# The setup is slow, and the commands are the same on every Python version.
@pytest.mark.slow
@needs_programs
def test_quick_start_and_guide_are_correct(checkout: Installation) -> None:
    """This is the test of every command in them."""
    with checkout.serving("--demo") as server, closing(Shell(checkout)) as shell:
        reader = Reader(checkout, server, shell, demo_key(server))
        for document in (QUICK_START, GUIDE):
            reader.follow(document)


def first_cells(heading: str, cells: int) -> list[tuple[str, ...]]:
    """Return the code in the first cells of each row of the table with this heading."""
    rows = GUIDE.read_text().split(f"\n{heading}", 1)[1].split("\n\n", 1)[0].splitlines()[2:]
    return [tuple(re.findall(r"`([^`]+)`", "|".join(row.split("|")[1 : cells + 1]))) for row in rows]


def test_guide_has_every_error_with_its_code() -> None:
    refusals = [(kind.__name__, code) for code, kind in BY_CODE.items()]
    assert sorted(first_cells("| Class | `code` |", 2)) == sorted(refusals)
    known = {kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, Exception)}
    others = [(kind.__name__,) for kind in known - {StoplistClientError} if not issubclass(kind, ApiError)]
    assert sorted(first_cells("| Class | When |", 1)) == sorted(others)


def test_guide_has_every_command() -> None:
    """They are in the order of --help."""
    assert first_cells("| Command | What", 1) == [(name,) for name in COMMANDS]
