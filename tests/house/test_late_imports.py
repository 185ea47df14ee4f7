"""The late imports are those listed in docs/decisions/0002-packages-and-layers.md."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from stoplist.web.lazy_pages import SLOW_MODULES
from tests.constants import ROOT

SOURCES = (ROOT / "src", ROOT / "client" / "src", ROOT / "addresses" / "src")
RECORD = (ROOT / "docs" / "decisions" / "0002-packages-and-layers.md").read_text()


def imports_of(node: ast.AST) -> Iterator[str]:
    """Yield what an import statement imports, or nothing for any other node."""
    if isinstance(node, ast.ImportFrom):
        yield from (f"{node.module}.{alias.name}" for alias in node.names)
    elif isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)


def late_imports(module: Path) -> Iterator[str]:
    """Yield the imports inside functions of a module, and `import_module` for each call of it."""
    tree = ast.parse(module.read_text())
    at_the_top = set(tree.body)
    for condition in tree.body:
        if isinstance(condition, ast.If):  # TYPE_CHECKING, or the version of Python
            at_the_top |= {*condition.body, *condition.orelse}
    for node in ast.walk(tree):
        if node not in at_the_top:
            yield from imports_of(node)
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            yield "import_module"


def test_late_imports_are_listed_in_the_decision() -> None:
    """mypy and import-linter do not see imports by name; the decision gives a reason for each late import."""
    found = [
        f"{module.relative_to(folder).as_posix()}: {name}"
        for folder in SOURCES
        for module in folder.rglob("*.py")
        for name in late_imports(module)
    ]
    listed = re.findall(r"^\| `([^`]+: [^`]+)` \|", RECORD, re.MULTILINE)
    assert set(found) == set(listed)
    calls = [one for one in found if one.endswith(": import_module")]
    assert len(calls) == len(set(calls))  # each row of the table stands for one call


def test_what_the_pages_import_by_name_is_imported_plainly_too() -> None:
    """So that mypy and import-linter see it, and no name is left in the list that no page needs."""
    imported = {
        name
        for module in (ROOT / "src").rglob("*.py")
        for node in ast.parse(module.read_text()).body
        for one in imports_of(node)
        for name in (one, one.rpartition(".")[0])
    }
    assert set(SLOW_MODULES) - imported == {"jinja2.nodes"}  # jinja2 imports it
