"""The product is three ordinary wheels: pip installs them into empty environments, where they run."""

import re
import zipfile
from pathlib import Path

import pytest
import stoplist_client

import stoplist
from tests.constants import ROOT
from tests.services.releases import VERSION, pip, run

# A wheel does not depend on the interpreter, and environments are slow: once is enough.
pytestmark = pytest.mark.slow

PROJECTS = {"stoplist": ROOT, "stoplist_addresses": ROOT / "addresses", "stoplist_client": ROOT / "client"}
projects = pytest.mark.parametrize("project", PROJECTS)


@projects
def test_a_wheel_holds_its_whole_package_and_nothing_else(project: str, release: Path) -> None:
    """Every module, all SQL, the page's parts, the vectors and the type marker; no tests or benchmarks."""
    source = PROJECTS[project] / "src"
    kinds = ("*.py", "*.sql", "*.lua", "*.html", "*.css", "*.js", "*.svg", "*vectors.json", "py.typed")
    expected = {str(path.relative_to(source)) for kind in kinds for path in source.rglob(kind)}
    with wheel(release, project) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert held == expected


@projects
def test_a_wheel_carries_its_license(project: str, release: Path) -> None:
    with wheel(release, project) as archive:
        (license_name,) = (name for name in archive.namelist() if name.endswith("/LICENSE"))
        assert archive.read(license_name) == (ROOT / "LICENSE").read_bytes()


def test_the_installed_command_prints_its_help(server_programs: Path, tmp_path: Path) -> None:
    """`stoplist --help` works away from the source, and names the command that a newcomer needs first."""
    assert re.search(r"^ +serve\b", run(server_programs / "stoplist", "--help", folder=tmp_path), re.MULTILINE)


def test_the_installed_command_knows_its_version(server_programs: Path, tmp_path: Path) -> None:
    """The package, the wheel and the command have the same version."""
    assert stoplist.__version__ in run(server_programs / "stoplist", "--version", folder=tmp_path)


def test_the_client_wheel_needs_no_server(client_programs: Path, tmp_path: Path) -> None:
    """The command and the package have one version; of our wheels only the addresses package is required."""
    assert stoplist_client.__version__ in run(client_programs / "stoplist-client", "--version", folder=tmp_path)
    program = (
        "import importlib.util as i, stoplist_client as s; "
        "assert all(getattr(s, name) for name in s.__all__); print(s.__version__, i.find_spec('stoplist'))"
    )
    assert run(client_programs / "python", "-c", program, folder=tmp_path) == f"{stoplist_client.__version__} None\n"


@pytest.mark.parametrize("where", ["server_programs", "client_programs"])
def test_locked_dependencies_are_complete(where: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """The locked packages satisfy one another."""
    pip(request.getfixturevalue(where), "check", folder=tmp_path)


def test_the_installed_addresses_have_their_vectors(server_programs: Path, tmp_path: Path) -> None:
    """They work without the server."""
    program = "from stoplist_addresses import RULES, load_vectors as l; print(RULES[l()[0].channel](l()[0].input))"
    assert run(server_programs / "python", "-c", program, folder=tmp_path) == "jane@example.com\n"


def test_the_installed_server_has_its_description_and_its_page(server_programs: Path, tmp_path: Path) -> None:
    """`stoplist openapi` prints the description, from which the page is made."""
    described = run(server_programs / "stoplist", "openapi", folder=tmp_path)
    assert '"openapi": "3.0.3"' in described
    (tmp_path / "openapi.json").write_text(described)
    program = (
        "import asyncio, json; from stoplist.web.reference.page import make_page; "
        "print(asyncio.run(make_page(json.load(open('openapi.json')))).html.decode())"
    )
    assert 'id="submitEmailUnsubscribes"' in run(server_programs / "python", "-c", program, folder=tmp_path)


def wheel(release: Path, project: str) -> zipfile.ZipFile:
    return zipfile.ZipFile(release / f"{project}-{VERSION}-py3-none-any.whl")
