"""The product is an ordinary wheel: pip installs it into an empty environment, and there it runs."""

import os
import re
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

import stoplist

ROOT = Path(__file__).parents[2]

# A wheel is the same whatever interpreter made it, and an environment takes its time: once is enough.
pytestmark = pytest.mark.slow


def run(*command: str | Path, folder: Path) -> str:
    """What the command prints. It sees no more of this environment than a stranger's shell has."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL"))}
    ran = subprocess.run([str(part) for part in command], cwd=folder, env=environ, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy of its sources, lest the build leave its traces in the checkout."""
    copy = tmp_path_factory.mktemp("source")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    shutil.copytree(ROOT / "src", copy / "src", ignore=shutil.ignore_patterns("*.egg-info", "__pycache__"))
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", copy, folder=copy)
    (built,) = (copy / "dist").glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The scripts of an environment that was empty until the locked dependencies and the wheel came in."""
    folder = tmp_path_factory.mktemp("empty")
    venv.create(folder, with_pip=True)
    pip = (folder / "bin" / "python", "-m", "pip", "install", "--disable-pip-version-check")
    run(*pip, "--require-hashes", "-r", ROOT / "requirements" / "runtime.txt", folder=folder)
    # Without an index pip refuses the wheel if what is locked does not satisfy what the wheel asks for.
    run(*pip, "--no-index", wheel, folder=folder)
    return folder / "bin"


def test_the_wheel_holds_the_whole_package_and_nothing_else(wheel: Path) -> None:
    """Every module, every SQL file and the type marker are in it; tests and benchmarks are not."""
    source = ROOT / "src"
    expected = {
        str(path.relative_to(source)) for pattern in ("*.py", "*.sql", "py.typed") for path in source.rglob(pattern)
    }
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert held == expected


def test_the_wheel_carries_its_license(wheel: Path) -> None:
    """Who gets the wheel gets the terms."""
    with zipfile.ZipFile(wheel) as archive:
        (license_name,) = (name for name in archive.namelist() if name.endswith("/LICENSE"))
        assert archive.read(license_name) == (ROOT / "LICENSE").read_bytes()


def test_the_installed_command_says_what_it_can_do(installed: Path, tmp_path: Path) -> None:
    """`stoplist --help` works away from the source, and names the command that a newcomer needs first."""
    assert re.search(r"^ +serve\b", run(installed / "stoplist", "--help", folder=tmp_path), re.MULTILINE)


def test_the_installed_command_knows_its_version(installed: Path, tmp_path: Path) -> None:
    """The package, the wheel and the command tell the same version."""
    assert stoplist.__version__ in run(installed / "stoplist", "--version", folder=tmp_path)


def test_nothing_is_missing_from_what_is_installed(installed: Path, tmp_path: Path) -> None:
    """The locked packages satisfy one another."""
    run(installed / "python", "-m", "pip", "check", folder=tmp_path)
