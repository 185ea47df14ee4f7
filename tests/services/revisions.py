"""Other revisions of this repository, installed below build/revisions/ from the history of the checkout.

A clone without history fetches the one commit that it needs.
"""

import fcntl
import io
import os
import subprocess
import sys
import tarfile
from pathlib import Path

from tests.services.managed_program import Unavailable as Unavailable

RELEASES = {"0.1.0": "8be310d044236ed30adb4d816c3df88829ef5fe1"}
"""The commit of each released version. Its database is kept in tests/releases/."""

REPOSITORY = Path(__file__).parents[2]
_BUILDS = REPOSITORY / "build" / "revisions"


def build(revision: str) -> tuple[str, Path]:
    """Install a revision with the packages that it locked, once. Return its abbreviated hash and `stoplist` command.

    Raise Unavailable if the history of this checkout lacks the revision, or if its packages cannot be installed.
    """
    _fetch_if_missing(revision)
    name = _git("rev-parse", f"{revision}^{{commit}}").decode()[:7]
    folder = _BUILDS / name
    _BUILDS.mkdir(parents=True, exist_ok=True)
    with (_BUILDS / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # processes that run tests side by side
        if not (folder / ".venv/.installed").exists():
            _install(name, folder)
    return name, folder / ".venv/bin/stoplist"


def _install(name: str, folder: Path) -> None:
    with tarfile.open(fileobj=io.BytesIO(_git("archive", name))) as archive:
        archive.extractall(folder, filter="data")
    made = subprocess.run(
        ["make", "install", f"PYTHON={sys.executable}"],
        cwd=folder,
        # Its first start compiles what it imports: a small part. pip takes "false" for on, as in releases.py.
        env=os.environ | {"PIP_NO_COMPILE": "false"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if made.returncode:
        raise Unavailable(f"revision {name} cannot be installed: {made.stdout.strip()[-500:]}")


def _fetch_if_missing(revision: str) -> None:
    """Fetch the commit alone: a clone for CI often has the newest one and nothing before it."""
    known = subprocess.run(["git", "cat-file", "-e", f"{revision}^{{commit}}"], cwd=REPOSITORY, capture_output=True)
    if known.returncode:
        _git("fetch", "--quiet", "--depth=1", "origin", revision)


def _git(*arguments: str) -> bytes:
    done = subprocess.run(["git", *arguments], cwd=REPOSITORY, capture_output=True)
    if done.returncode:
        raise Unavailable(f"git {arguments[0]} fails: {done.stderr.decode(errors='replace').strip()}")
    return done.stdout
