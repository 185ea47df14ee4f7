"""The systemd units, as systemd reads them."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.conftest import leave_out
from tests.constants import ROOT

UNITS = sorted(path.name for path in (ROOT / "deploy").glob("stoplist*.*") if path.suffix in (".service", ".timer"))
SERVICES = [name for name in UNITS if name.endswith(".service")]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the units, whose programs are one that exists here."""
    folder = tmp_path_factory.mktemp("units")
    for name in UNITS:
        text = (ROOT / "deploy" / name).read_text()
        text = re.sub(r"^User=.*\n|^Group=.*\n", "", text, flags=re.MULTILINE)
        (folder / name).write_text(text.replace("/opt/stoplist/bin/stoplist", "/bin/true"))
    return folder


def analyze(*arguments: str | Path, config: pytest.Config) -> str:
    program = shutil.which("systemd-analyze")
    if program is None:
        leave_out(
            config, "with systemd", "no systemd-analyze was found (on Debian: apt install systemd).", is_optional=True
        )
    done = subprocess.run([program, *arguments], capture_output=True, text=True, check=False)
    return f"{done.returncode}\n{done.stdout}{done.stderr}"


@pytest.mark.parametrize("name", UNITS)
def test_systemd_accepts_a_unit(name: str, installed: Path, pytestconfig: pytest.Config) -> None:
    """Every line is known, and says what it should; `verify` prints nothing."""
    said = analyze("verify", "--man=no", installed / name, config=pytestconfig)
    assert [line for line in said.splitlines()[1:] if "stoplist" in line] == []


def test_a_misspelt_line_is_noticed(installed: Path, tmp_path: Path, pytestconfig: pytest.Config) -> None:
    """`verify` can fail."""
    (tmp_path / "stoplist.service").write_text(
        (installed / "stoplist.service").read_text().replace("MemoryMax", "MemMax")
    )
    assert "MemMax" in analyze("verify", "--man=no", tmp_path / "stoplist.service", config=pytestconfig)


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_may_do_little(name: str, installed: Path, pytestconfig: pytest.Config) -> None:
    """systemd's own measure, from 0 to 10; below 4 is OK to it."""
    said = analyze("security", "--offline=yes", "--threshold=25", installed / name, config=pytestconfig)
    assert said.startswith("0\n"), said


def test_all_services_are_confined_alike() -> None:
    """The server has a capability besides, to listen on port 443. The measure above bears a line less."""
    confining = re.compile(r"^(?:Lock|NoNew|Private|Protect|Remove|Restrict|SystemCall|UMask)\w+=.*", re.MULTILINE)
    lines = {name: confining.findall((ROOT / "deploy" / name).read_text()) for name in SERVICES}
    assert len(lines["stoplist.service"]) > 20
    for name in SERVICES:
        assert lines[name] == lines["stoplist.service"], name


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_has_bounds(name: str) -> None:
    """Memory, tasks and time; the jobs beside the server also come after it."""
    lines = (ROOT / "deploy" / name).read_text().splitlines()
    settings = dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))
    assert {"MemoryMax", "TasksMax", "LimitCORE"} <= settings.keys()
    if "Type" in settings and settings["Type"] == "oneshot":
        assert {"TimeoutStartSec", "Nice", "CPUWeight", "IOWeight"} <= settings.keys()


@pytest.mark.parametrize("name", [name for name in UNITS if name.endswith(".timer")])
def test_a_timer_has_its_service(name: str) -> None:
    assert name.replace(".timer", ".service") in SERVICES
