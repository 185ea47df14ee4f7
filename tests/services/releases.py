"""The files of a release, built from the checkout, and environments in which pip has installed them."""

import fcntl
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable
from pathlib import Path

import pytest

import stoplist
from tests.constants import ROOT
from tests.house import checks
from tools.release import build_release

VERSION = stoplist.__version__
BUILT_S = 1_770_000_000


def built_release(folder: Path) -> Path:
    """Build a release from a copy of this checkout, committed or not, and return the folder of its files."""
    source, target = folder / "source", folder / "dist"
    for path in checks.files(ROOT):
        copy = source / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
    target.mkdir()
    build_release(source, target, built_s=BUILT_S)
    return target


def installed(release: Path, project: str, folder: Path) -> Path:
    """Install a project into an empty environment by the requirements of the release, which have all the hashes.

    Return the folder of its programs.
    """
    venv.create(folder)
    requirements = release / f"{project}-{VERSION}-requirements.txt"
    pip(folder / "bin", "install", "--require-hashes", "--only-binary", ":all:", "-r", requirements, folder=folder)
    return folder / "bin"


def pip(programs: Path, *command: str | Path, folder: Path) -> None:
    """Run the pip of this environment on another one, which has none: to install one takes seconds."""
    own = (sys.executable, "-m", "pip", "--disable-pip-version-check")
    run(*own, "--python", programs / "python", *command, folder=folder)


def run(*command: str | Path, folder: Path) -> str:
    """Return what the command prints, with no more of this environment than a stranger's shell has."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL"))}
    # What a test imports is compiled then: a small part. pip takes "false" for on here, as for all that switches off.
    environ["PIP_NO_COMPILE"] = "false"
    ran = subprocess.run([str(part) for part in command], cwd=folder, env=environ, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], Path]) -> Path:
    """Return what `make` returns for a new folder. Of the processes of a run, the first makes it for all."""
    base = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        base = base.parent
    with (base / f"{name}.lock").open("a+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        lock.seek(0)
        made = lock.read()
        if not made:
            (base / name).mkdir()
            made = str(make(base / name))
            lock.write(made)
    return Path(made)
