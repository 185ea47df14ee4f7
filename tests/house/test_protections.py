"""The list of protections that tools/mutations.py takes out keeps up with the code."""

import ast
import tomllib
from typing import Any

import pytest

from tests.constants import ROOT

PROTECTIONS = tomllib.loads((ROOT / "tools" / "mutations.toml").read_text())["protection"]


def test_there_are_a_hundred_protections() -> None:
    """Fewer would prove less of the suite."""
    assert len({protection["id"] for protection in PROTECTIONS}) == len(PROTECTIONS) >= 100


@pytest.mark.parametrize("protection", PROTECTIONS, ids=lambda protection: protection["id"])
def test_a_protection_is_where_the_list_says(protection: dict[str, Any]) -> None:
    """The text to take out is in its file as often as it should be, and the tests that should notice exist."""
    text = (ROOT / protection["file"]).read_text()
    assert text.count(protection["find"]) == protection.get("count", 1)
    for test in protection["tests"]:
        file, _, function = test.partition("::")
        definitions = ast.walk(ast.parse((ROOT / file).read_text())) if function else ()
        names = {node.name for node in definitions if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
        assert not function or function.partition("[")[0] in names
