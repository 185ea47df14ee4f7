"""Calls go one way: the layer contract of pyproject.toml is kept, and would notice if it were not."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CONFIGURATION = ROOT / "pyproject.toml"
LINT_IMPORTS = Path(sys.executable).with_name("lint-imports")


def faults(folder: Path) -> str:
    """What import-linter has against the package in `folder/src`; nothing when it keeps the contracts."""
    answer = subprocess.run(
        [str(LINT_IMPORTS), "--no-cache", "--no-logo", "--config", str(CONFIGURATION)],
        cwd=folder,
        env={"PYTHONPATH": "src"},
        capture_output=True,
        text=True,
    )
    return answer.stdout + answer.stderr if answer.returncode else ""


def test_calls_go_one_way() -> None:
    """Edge, operation, ground; HTTP at the edges alone, the drivers in db alone; nothing in a circle."""
    assert faults(ROOT) == ""


@pytest.fixture
def house(tmp_path: Path) -> Path:
    """Packages with all the rooms of ours, and nothing in them but one module."""
    for contract in tomllib.loads(CONFIGURATION.read_text())["tool"]["importlinter"]["contracts"]:
        for package in contract.get("containers", []):
            for room in " ".join(contract["layers"]).replace(":", " ").replace("|", " ").split():
                folder = tmp_path / "src" / package / room
                folder.mkdir(parents=True)
                (folder / "__init__.py").touch()
                (folder / "inside.py").touch()
            (tmp_path / "src" / package / "__init__.py").touch()
    return tmp_path


def test_empty_rooms_keep_the_contracts(house: Path) -> None:
    """The made-up house is sound as it stands, so that each of the tests below shows one fault."""
    assert faults(house) == ""


@pytest.mark.parametrize(
    ("room", "imports"),
    [
        ("oauth", "stoplist.web.inside"),
        ("limits", "stoplist.oauth"),
        ("organizations", "stoplist.limits"),
        ("audit", "stoplist.organizations"),
        ("db", "stoplist.audit"),
        ("oauth", "starlette.requests"),
        ("errors", "click"),
        ("audit", "asyncpg"),
        ("web", "sqlite3"),
        ("db", "stoplist.log.inside, stoplist.oauth"),
    ],
)
def test_a_call_the_wrong_way_is_found(room: str, imports: str, house: Path) -> None:
    """Each wall stands: upwards, sideways, and past the seams."""
    (house / "src" / "stoplist" / room / "inside.py").write_text(f"import {imports}\n")
    assert "BROKEN" in faults(house)


@pytest.mark.parametrize("imports", ["stoplist.ids", "stoplist_client.model"])
def test_addresses_stay_free_of_server_and_client(imports: str, house: Path) -> None:
    """A partner's program installs their wheel alone."""
    (house / "src" / "stoplist_addresses").mkdir()
    (house / "src" / "stoplist_addresses" / "__init__.py").write_text(f"import {imports}\n")
    assert "What an address is knows nothing of the server BROKEN" in faults(house)


def test_the_client_stays_free_of_the_server(house: Path) -> None:
    """A partner has no server; what both must know is said twice, in docs/interface.md and by tests."""
    (house / "src" / "stoplist_client" / "errors" / "inside.py").write_text("import stoplist.errors\n")
    assert "Server and client meet on the wire alone BROKEN" in faults(house)


def test_the_server_stays_free_of_the_client(house: Path) -> None:
    """A server is installed without it."""
    (house / "src" / "stoplist" / "cli" / "inside.py").write_text("import stoplist_client.model\n")
    assert "Server and client meet on the wire alone BROKEN" in faults(house)


@pytest.mark.parametrize(
    ("room", "imports"),
    [
        ("mirror", "stoplist_client.cli"),
        ("core", "stoplist_client.client"),
        ("client", "stoplist_client.async_client"),
        ("submitting", "stoplist_client.driver"),
        ("following", "stoplist_client.submitting"),
        ("flow", "stoplist_client.sending"),
        ("sending", "httpx2"),
        ("renewal", "asyncio"),
        ("mirror", "anyio"),
    ],
)
def test_a_call_the_wrong_way_in_the_client_is_found(room: str, imports: str, house: Path) -> None:
    """Its walls stand too: upwards, sideways, and between a flow and the network."""
    (house / "src" / "stoplist_client" / room / "inside.py").write_text(f"import {imports}\n")
    assert "BROKEN" in faults(house)


@pytest.mark.parametrize("package", ["stoplist", "stoplist_client"])
def test_a_circle_is_found(package: str, house: Path) -> None:
    """Two modules that import each other cannot be understood one at a time."""
    rooms = house / "src" / package
    one, other = ("log", "ids") if package == "stoplist" else ("tokens", "secret")
    (rooms / one / "inside.py").write_text(f"import {package}.{other}.inside\n")
    (rooms / other / "inside.py").write_text(f"import {package}.{one}.inside\n")
    assert "No circular imports BROKEN" in faults(house)


@pytest.mark.parametrize("package", ["stoplist", "stoplist_client"])
def test_a_new_room_without_a_place_is_found(package: str, house: Path) -> None:
    """Who adds a room says where it stands."""
    (house / "src" / package / "attic.py").touch()
    assert "attic" in faults(house)
