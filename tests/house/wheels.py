"""The wheels of the checkout, and environments with these wheels installed."""

import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

from tests.constants import ROOT

ADDRESSES, CLIENT = ROOT / "addresses", ROOT / "client"
PROJECTS = (ROOT, ADDRESSES, CLIENT)


def run(*command: str | Path, folder: Path) -> str:
    """Return what the command prints, with no more of this environment than a stranger's shell has."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL"))}
    # What a test imports is compiled then: a small part. pip takes "false" for on here, as for all that switches off.
    environ["PIP_NO_COMPILE"] = "false"
    ran = subprocess.run([str(part) for part in command], cwd=folder, env=environ, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def built_wheel(project: Path, copy: Path) -> Path:
    """Build the wheel from a copy of its sources, so that the build leaves nothing in the checkout."""
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(project / name, copy)
    shutil.copytree(project / "src", copy / "src", ignore=shutil.ignore_patterns("*.egg-info", "__pycache__"))
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", copy, folder=copy)
    (built,) = (copy / "dist").glob("*.whl")
    return built


def scripts_of(folder: Path, lock: str, *wheels: Path) -> Path:
    """Create an environment, install the locked dependencies and these wheels, and return its scripts."""
    venv.create(folder, with_pip=True)
    pip = (folder / "bin" / "python", "-m", "pip", "install", "--disable-pip-version-check")
    run(*pip, "--require-hashes", "-r", ROOT / "requirements" / lock, folder=folder)
    # Without an index, pip fails if the locked packages do not satisfy the wheels' requirements.
    run(*pip, "--no-index", *wheels, folder=folder)
    return folder / "bin"
