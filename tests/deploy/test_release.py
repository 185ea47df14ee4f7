"""The files of a release: the same bytes whoever builds them, and enough to install a server that works."""

import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from tests.constants import ROOT
from tests.deploy.main_job import make_key, store_and_follow
from tests.e2e.server_process import Installation
from tests.services.releases import VERSION, built_release, run

# Builds, and installations into empty environments, do not depend on the interpreter.
pytestmark = pytest.mark.slow

PIPX = Path(sys.executable).with_name("pipx")
REQUIREMENTS = f"stoplist-{VERSION}-requirements.txt"
CONSTRAINTS = f"stoplist-{VERSION}-constraints.txt"


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_second_build_has_the_same_bytes(release: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In another folder, at another time, by an account with another umask, time zone and language."""
    monkeypatch.setenv("TZ", "Pacific/Apia")
    monkeypatch.setenv("LC_ALL", "C")
    before = os.umask(0o077)
    try:
        again = built_release(tmp_path)
    finally:
        os.umask(before)
    assert {name: len(held) for name, held in contents(again).items()} == {
        name: len(held) for name, held in contents(release).items()
    }
    assert contents(again) == contents(release)


def test_a_release_has_its_files_and_their_checksums(release: Path) -> None:
    stems = {f"{name}-{VERSION}" for name in ("stoplist", "stoplist_addresses", "stoplist_client")}
    expected = {f"{stem}{end}" for stem in stems for end in ("-py3-none-any.whl", ".tar.gz")}
    installed = stems - {f"stoplist_addresses-{VERSION}"}
    expected |= {f"{stem}{end}" for stem in installed for end in ("-requirements.txt", "-constraints.txt", ".cdx.json")}
    sums = (release / "SHA256SUMS").read_text()
    assert {line.split("  ")[1] for line in sums.splitlines()} == expected
    assert contents(release).keys() == expected | {"SHA256SUMS"}
    checked = subprocess.run(["sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS"], cwd=release, check=False)
    assert checked.returncode == 0


def test_a_source_archive_has_what_an_operator_needs(release: Path) -> None:
    """The units and configurations, the guide and the locks; no tests, and the owner is nobody of this machine."""
    with tarfile.open(release / f"stoplist-{VERSION}.tar.gz") as archive:
        members = archive.getmembers()
    names = {member.name.partition("/")[2] for member in members if member.isfile()}
    wanted = [path for folder in ("deploy", "docs", "requirements", "src") for path in (ROOT / folder).rglob("*.*")]
    in_checkout = {str(path.relative_to(ROOT)) for path in wanted if path.is_file() and path.suffix != ".pyc"}
    assert {name for name in in_checkout if ".egg-info/" not in name} <= names
    assert not {name for name in names if name.startswith("tests")}
    assert {(member.uid, member.gid, member.uname, member.gname) for member in members} == {(0, 0, "", "")}


def test_pip_installs_a_server_that_does_its_job(server_programs: Path, tmp_path: Path) -> None:
    """Into an empty environment, by the requirements of the release, which have all the hashes."""
    does_its_job(tmp_path, server_programs / "stoplist")


def test_pipx_installs_a_server_that_does_its_job(
    release: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The wheel by its name, and everything else at the locked versions."""
    monkeypatch.setenv("PIPX_HOME", str(tmp_path / "pipx"))
    monkeypatch.setenv("PIPX_BIN_DIR", str(tmp_path / "bin"))
    monkeypatch.setenv("PIPX_MAN_DIR", str(tmp_path / "man"))
    run(PIPX, "install", f"--pip-args=--constraint={release / CONSTRAINTS}", f"stoplist=={VERSION}", folder=tmp_path)
    does_its_job(tmp_path, tmp_path / "bin" / "stoplist")


def test_a_changed_wheel_is_not_installed(release: Path, tmp_path: Path) -> None:
    """The hashes are those of our own wheels too."""
    for name, held in contents(release).items():
        (tmp_path / name).write_bytes(held + b" " if name.startswith("stoplist_addresses") else held)
    lines = (tmp_path / REQUIREMENTS).read_text().splitlines()
    ours = tmp_path / "ours.txt"
    ours.write_text("\n".join(line for line in lines if line.startswith(("--find-links", "stoplist-addresses=="))))
    target = str(tmp_path / "none")
    pip = [sys.executable, "-m", "pip", "install", "--no-index", "--no-deps", "--target", target, "-r", str(ours)]
    done = subprocess.run(pip, capture_output=True, text=True)
    assert done.returncode == 1
    assert "DO NOT MATCH THE HASHES" in done.stderr


def does_its_job(folder: Path, program: Path) -> None:
    installation = Installation(folder).with_command(program)
    with installation.serving() as server, server.client() as client:
        store_and_follow(client, make_key(installation.ok))
        assert server.terminate() == 0
