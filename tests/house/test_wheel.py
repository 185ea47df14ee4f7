"""The product is three ordinary wheels: pip installs them into empty environments, where they run."""

import re
import zipfile
from pathlib import Path

import pytest
import stoplist_client

import stoplist
from tests.constants import ROOT
from tests.house.wheels import ADDRESSES, PROJECTS, run, scripts_of

# A wheel does not depend on the interpreter, and environments are slow: once is enough.
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def installed(wheels: dict[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the environment of a server, with nothing but the server and the addresses package."""
    return scripts_of(tmp_path_factory.mktemp("empty"), "runtime.txt", wheels[ROOT], wheels[ADDRESSES])


projects = pytest.mark.parametrize("project", PROJECTS, ids=["server", "addresses", "client"])


@projects
def test_a_wheel_holds_its_whole_package_and_nothing_else(project: Path, wheels: dict[Path, Path]) -> None:
    """Every module, all SQL, the page's parts, the vectors and the type marker; no tests or benchmarks."""
    source = project / "src"
    kinds = ("*.py", "*.sql", "*.lua", "*.html", "*.css", "*.js", "*.svg", "*vectors.json", "py.typed")
    expected = {str(path.relative_to(source)) for kind in kinds for path in source.rglob(kind)}
    with zipfile.ZipFile(wheels[project]) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert held == expected


@projects
def test_a_wheel_carries_its_license(project: Path, wheels: dict[Path, Path]) -> None:
    with zipfile.ZipFile(wheels[project]) as archive:
        (license_name,) = (name for name in archive.namelist() if name.endswith("/LICENSE"))
        assert archive.read(license_name) == (ROOT / "LICENSE").read_bytes()


def test_the_installed_command_prints_its_help(installed: Path, tmp_path: Path) -> None:
    """`stoplist --help` works away from the source, and names the command that a newcomer needs first."""
    assert re.search(r"^ +serve\b", run(installed / "stoplist", "--help", folder=tmp_path), re.MULTILINE)


def test_the_installed_command_knows_its_version(installed: Path, tmp_path: Path) -> None:
    """The package, the wheel and the command have the same version."""
    assert stoplist.__version__ in run(installed / "stoplist", "--version", folder=tmp_path)


def test_the_client_wheel_needs_no_server(at_a_partner: Path, tmp_path: Path) -> None:
    """The command and the package have one version; of our wheels only the addresses package is required."""
    assert stoplist_client.__version__ in run(at_a_partner / "stoplist-client", "--version", folder=tmp_path)
    program = (
        "import importlib.util as i, stoplist_client as s; "
        "assert all(getattr(s, name) for name in s.__all__); print(s.__version__, i.find_spec('stoplist'))"
    )
    assert run(at_a_partner / "python", "-c", program, folder=tmp_path) == f"{stoplist_client.__version__} None\n"


@pytest.mark.parametrize("where", ["installed", "at_a_partner"])
def test_locked_dependencies_are_complete(where: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """The locked packages satisfy one another."""
    run(request.getfixturevalue(where) / "python", "-m", "pip", "check", folder=tmp_path)


def test_the_installed_addresses_have_their_vectors(installed: Path, tmp_path: Path) -> None:
    """They work without the server."""
    program = "from stoplist_addresses import RULES, load_vectors as l; print(RULES[l()[0].channel](l()[0].input))"
    assert run(installed / "python", "-c", program, folder=tmp_path) == "jane@example.com\n"


def test_the_installed_server_has_its_description_and_its_page(installed: Path, tmp_path: Path) -> None:
    """`stoplist openapi` prints the description, from which the page is made."""
    described = run(installed / "stoplist", "openapi", folder=tmp_path)
    assert '"openapi": "3.0.3"' in described
    (tmp_path / "openapi.json").write_text(described)
    program = (
        "import asyncio, json; from stoplist.web.reference.page import make_page; "
        "print(asyncio.run(make_page(json.load(open('openapi.json')))).html.decode())"
    )
    assert 'id="submitEmailUnsubscribes"' in run(installed / "python", "-c", program, folder=tmp_path)
