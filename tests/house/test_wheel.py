"""The product is two ordinary wheels: pip installs them into an empty environment, and there it runs."""

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


def built_wheel(project: Path, copy: Path) -> Path:
    """The wheel, built from a copy of its sources, lest the build leave its traces in the checkout."""
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(project / name, copy)
    shutil.copytree(project / "src", copy / "src", ignore=shutil.ignore_patterns("*.egg-info", "__pycache__"))
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", copy, folder=copy)
    (built,) = (copy / "dist").glob("*.whl")
    return built


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, Path]:
    """The wheel of the server and that of the addresses, each by the folder of its project."""
    projects = (ROOT, ROOT / "addresses")
    return {project: built_wheel(project, tmp_path_factory.mktemp("source")) for project in projects}


@pytest.fixture(scope="module")
def installed(wheels: dict[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The scripts of an environment that was empty until the locked dependencies and the wheels came in."""
    folder = tmp_path_factory.mktemp("empty")
    venv.create(folder, with_pip=True)
    pip = (folder / "bin" / "python", "-m", "pip", "install", "--disable-pip-version-check")
    run(*pip, "--require-hashes", "-r", ROOT / "requirements" / "runtime.txt", folder=folder)
    # Without an index pip refuses the wheels if what is locked does not satisfy what they ask for.
    run(*pip, "--no-index", *wheels.values(), folder=folder)
    return folder / "bin"


@pytest.mark.parametrize("project", [ROOT, ROOT / "addresses"], ids=["server", "addresses"])
def test_a_wheel_holds_its_whole_package_and_nothing_else(project: Path, wheels: dict[Path, Path]) -> None:
    """Every module, all SQL, the page's parts, the vectors and the type marker; tests and benchmarks are not in it."""
    source = project / "src"
    kinds = ("*.py", "*.sql", "*.lua", "*.html", "*.css", "*.js", "*.svg", "vectors.json", "py.typed")
    expected = {str(path.relative_to(source)) for kind in kinds for path in source.rglob(kind)}
    with zipfile.ZipFile(wheels[project]) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert held == expected


@pytest.mark.parametrize("project", [ROOT, ROOT / "addresses"], ids=["server", "addresses"])
def test_a_wheel_carries_its_license(project: Path, wheels: dict[Path, Path]) -> None:
    """Who gets the wheel gets the terms, the same for both."""
    with zipfile.ZipFile(wheels[project]) as archive:
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


def test_the_installed_addresses_have_their_vectors(installed: Path, tmp_path: Path) -> None:
    """And rule without the server."""
    program = "from stoplist_addresses import RULES, load_vectors as l; print(RULES[l()[0].channel](l()[0].input))"
    assert run(installed / "python", "-c", program, folder=tmp_path) == "jane@example.com\n"


def test_the_installed_server_has_its_description_and_its_page(installed: Path, tmp_path: Path) -> None:
    """`stoplist openapi` prints the one, and the other is made of it."""
    described = run(installed / "stoplist", "openapi", folder=tmp_path)
    assert '"openapi": "3.0.3"' in described
    (tmp_path / "openapi.json").write_text(described)
    program = (
        "import asyncio, json; from stoplist.web.api.docs.page import make_page; "
        "print(asyncio.run(make_page(json.load(open('openapi.json')))).html.decode())"
    )
    assert 'id="submitEmailUnsubscribes"' in run(installed / "python", "-c", program, folder=tmp_path)
