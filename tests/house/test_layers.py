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
    """A package with all the rooms of ours, and nothing in them but one module."""
    layers = tomllib.loads(CONFIGURATION.read_text())["tool"]["importlinter"]["contracts"][0]["layers"]
    for room in " ".join(layers).replace(":", " ").replace("|", " ").split():
        folder = tmp_path / "src" / "stoplist" / room
        folder.mkdir(parents=True)
        (folder / "__init__.py").touch()
        (folder / "inside.py").touch()
    (tmp_path / "src" / "stoplist" / "__init__.py").touch()
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


def test_addresses_stay_free_of_the_server(house: Path) -> None:
    """A partner's program installs their wheel alone."""
    (house / "src" / "stoplist_addresses").mkdir()
    (house / "src" / "stoplist_addresses" / "__init__.py").write_text("import stoplist.ids\n")
    assert "What an address is knows nothing of the server BROKEN" in faults(house)


def test_a_circle_is_found(house: Path) -> None:
    """Two modules that import each other cannot be understood one at a time."""
    (house / "src" / "stoplist" / "log" / "inside.py").write_text("import stoplist.ids.inside\n")
    (house / "src" / "stoplist" / "ids" / "inside.py").write_text("import stoplist.log.inside\n")
    assert "No circular imports BROKEN" in faults(house)


def test_a_new_room_without_a_place_is_found(house: Path) -> None:
    """Who adds a room says where it stands."""
    (house / "src" / "stoplist" / "attic.py").touch()
    assert "attic" in faults(house)
