"""The late imports are those listed in docs/decisions/0002-rooms-and-layers.md."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = (ROOT / "src", ROOT / "client" / "src", ROOT / "addresses" / "src")
RECORD = (ROOT / "docs" / "decisions" / "0002-rooms-and-layers.md").read_text()


def late_imports(module: Path) -> Iterator[str]:
    """Yield the imports inside functions of a module, and `import_module` for each call of it."""
    tree = ast.parse(module.read_text())
    at_the_top = set(tree.body)
    for condition in tree.body:
        if isinstance(condition, ast.If):  # TYPE_CHECKING, or the version of Python
            at_the_top |= {*condition.body, *condition.orelse}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node not in at_the_top:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import) and node not in at_the_top:
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            yield "import_module"


def test_late_imports_are_listed_in_the_decision() -> None:
    """mypy and import-linter do not see imports by name; the decision gives a reason for each late import."""
    found = {
        f"{module.relative_to(folder).as_posix()}: {name}"
        for folder in SOURCES
        for module in folder.rglob("*.py")
        for name in late_imports(module)
    }
    assert found == set(re.findall(r"^\| `([^`]+: [^`]+)` \|", RECORD, re.MULTILINE))
