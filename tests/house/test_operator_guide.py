"""The operator guide names all existing metrics, commands and deployment files, and no others."""

import re
from typing import Any

import pytest

from stoplist.cli.main import COMMANDS
from tests.constants import ROOT

GUIDE = (ROOT / "docs" / "operate.md").read_text()
SOURCE = ROOT / "src" / "stoplist"
_METRICS = ("web/metrics.py", "web/metric_collectors.py", "server/aggregated_metrics.py")
CODE = "\n".join((SOURCE / name).read_text() for name in _METRICS)


def test_explained_metrics_are_those_that_exist() -> None:
    """An operator finds the meaning of every name."""
    named = {f"stoplist_{name}" for name in re.findall(r'self\._counter\(\s*"(\w+)"', CODE)}
    named |= set(re.findall(r'\(\s*"(stoplist_\w+)"', CODE))
    (table,) = re.findall(r"\| Metric \| Meaning \|\n(.*?)\n\n", GUIDE, re.DOTALL)
    explained = {name.removesuffix("_total") for name in re.findall(r"`(stoplist_\w+)", table)}
    assert explained == named


def test_every_command_of_the_guide_exists() -> None:
    """`stoplist NAME …` in a block or in the text."""
    named = set(re.findall(r"(?:^|/bin/|&& )stoplist ([a-z][a-z-]*)", "\n".join(_code(GUIDE)), re.MULTILINE))
    assert named
    assert named <= set(COMMANDS)


def test_every_file_to_deploy_is_in_the_guide() -> None:
    files = {path.relative_to(ROOT).as_posix() for path in (ROOT / "deploy").rglob("*") if path.is_file()}
    assert files == set(re.findall(r"deploy/[\w./-]+\w", GUIDE))


@pytest.mark.parametrize("name", ["haproxy.cfg", "nginx.conf"])
def test_a_balancers_log_has_no_query_string(name: str) -> None:
    """The log formats use only the path; tests/e2e/test_balancers.py checks the logs themselves."""
    text = (ROOT / "deploy" / name).read_text()
    (log_format,) = re.findall(r"^\s*log[-_]format .*?(?<!')$", text, re.MULTILINE | re.DOTALL)
    assert any(path in log_format for path in ("%[var(txn.path)]", "$logged_path"))
    assert not re.search(r"%HU|%HP\b|%HQ|%r\b|%\{\+Q\}r|\$request\b|\$request_uri|\$args|\$query_string", log_format)


def _code(text: str) -> list[Any]:
    return re.findall(r"```\n(.*?)```", text, re.DOTALL) + re.findall(r"`([^`\n]+)`", text)
