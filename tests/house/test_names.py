"""Names and docstrings: one name for one thing, and first sentences that are sentences."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import constants
from tests.constants import ROOT
from tests.house import checks

# The server, what partners install, and the tests; nobody reads two of them as one.
CODE_BASES = {"the server": ["src"], "the wheels of partners": ["client", "addresses"], "the tests": ["tests"]}
_CLAUSE = re.compile(
    r"(?:What|Whatever|Who|Whoever|Whom|Whose|Whether|How|Which|Whichever|Where|Wherever|Of|As|Nobody)\b"
)
_CONSTANT = re.compile(r"^_?([A-Z][A-Z0-9_]*) = ", re.MULTILINE)
_CLASS = re.compile(r"^class (\w+)", re.MULTILINE)
_TEST = re.compile(r"^ *(?:async )?def (test_\w+)", re.MULTILINE)
_MAX_TEST_NAME = len("test_") + 60


def modules(*folders: str) -> Iterator[tuple[Path, str]]:
    """Yield the name and the text of each module."""
    for path in checks.files(ROOT):
        name = path.relative_to(ROOT)
        if path.suffix == ".py" and name.parts[0] in folders:
            yield name, path.read_text()


@pytest.mark.parametrize("code_base", CODE_BASES)
def test_a_class_name_is_defined_once(code_base: str) -> None:
    """Two things have two names. Local classes are not counted."""
    definitions = defaultdict(list)
    for name, text in modules(*CODE_BASES[code_base]):
        for class_name in _CLASS.findall(text):
            definitions[class_name].append(str(name))
    assert {name: files for name, files in definitions.items() if len(files) > 1} == {}


def test_shared_constants_are_defined_once() -> None:
    """Tests import them from tests/constants.py."""
    shared = {name for name in vars(constants) if name.isupper()}
    again = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in sorted((ROOT / "tests").rglob("*.py"))
        if path != Path(constants.__file__)
        for name in _CONSTANT.findall(path.read_text())
        if name in shared
    ]
    assert again == []


def test_a_docstring_begins_with_a_sentence() -> None:
    """A clause such as "What the caller gets." or "Whether it is." does not count."""
    clauses = [
        f"{name}: {docstring.splitlines()[0]}"
        for name, text in modules("src", "client", "addresses", "bench", "tools", "tests")
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and (docstring := ast.get_docstring(node))
        and _CLAUSE.match(docstring)
    ]
    assert not clauses, "\n".join(clauses)


def test_a_test_has_a_short_name() -> None:
    """A claim has at most 60 characters and is never a paragraph."""
    names = [name for _, text in modules("tests") for name in _TEST.findall(text)]
    assert len(names) > 1000
    assert [name for name in names if len(name) > _MAX_TEST_NAME] == []


def test_the_map_of_the_source_names_what_exists() -> None:
    """Every module that ARCHITECTURE.md names exists, and every package of the server and the client is on the map."""
    text = (ROOT / "ARCHITECTURE.md").read_text()
    present = {path.name for path in checks.files(ROOT)}
    assert {name for name in re.findall(r"\b\w+\.py\b", text) if name not in present} == set()
    packages = {
        path.parent.name
        for folder in ("src/stoplist", "client/src/stoplist_client")
        for path in (ROOT / folder).rglob("__init__.py")
        if path.parent != ROOT / folder
    }
    assert {name for name in packages if f"{name}/" not in text} == set()
