"""Everything that is installed has a known hash, pip and the build tools included."""

import json
import re
from pathlib import Path

import pytest

from tests.constants import ROOT

LOCKS = sorted((ROOT / "requirements").glob("*.txt"))
INSTALLERS = [ROOT / "Makefile", ROOT / "docs" / "operate.md", *sorted((ROOT / "tools").glob("*-*"))]
_REQUIREMENT = re.compile(r"^[a-z][^\n]*(?:\n {4}--hash[^\n]*)*", re.MULTILINE | re.IGNORECASE)


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.name)
def test_every_package_is_pinned_with_its_hashes(lock: Path) -> None:
    """No line takes whatever version, or whatever file, there is."""
    requirements = _REQUIREMENT.findall(lock.read_text())
    assert requirements
    for requirement in requirements:
        assert re.match(r"[\w.\[\],-]+==[\w.+]+[ \\;]", requirement), requirement.partition("\n")[0]
        assert "--hash=sha256:" in requirement


def test_every_package_from_npm_has_its_hash_and_no_address() -> None:
    """The lock holds what package.json asks for; each machine takes it from its own registry."""
    folder = ROOT / "tests" / "e2e" / "generated_clients"
    packages = json.loads((folder / "package-lock.json").read_text())["packages"]
    asked_for = json.loads((folder / "package.json").read_text())["dependencies"]
    assert packages.pop("")["dependencies"] == asked_for
    assert {name.removeprefix("node_modules/") for name in packages} >= asked_for.keys()
    for name, package in packages.items():
        assert package["integrity"].startswith("sha512-"), name
        assert "resolved" not in package, name


@pytest.mark.parametrize(("lock", "package"), [("build.txt", "pip"), ("build.txt", "setuptools"), ("lock.txt", "uv")])
def test_build_tools_are_locked(lock: str, package: str) -> None:
    assert re.search(rf"^{package}==", (ROOT / "requirements" / lock).read_text(), re.MULTILINE)


@pytest.mark.parametrize("path", INSTALLERS, ids=lambda path: path.name)
def test_nothing_is_installed_without_hashes(path: Path) -> None:
    """`--require-hashes` is given; or it is our own, which downloads nothing: no dependencies, no build environment."""
    lines = path.read_text().replace("\\\n", " ").split("\n")
    for line in (line for line in lines if re.search(r"pip install|\$\(PIP_INSTALL\)", line) and "=" not in line[:14]):
        assert "--require-hashes" in line or ("--no-build-isolation" in line and "--no-deps" in line), line


def test_pip_is_replaced_before_it_installs_anything_else() -> None:
    """The pip that comes with Python installs only the locked one, and the build backend."""
    script = (ROOT / "tools" / "make-venv").read_text()
    first, *_ = re.findall(r"pip install .*", script.replace("\\\n", " "))
    assert first.endswith("--require-hashes -r requirements/build.txt")
