"""Every action that the product records has its words, and there are no words for others."""

import ast
import re
from pathlib import Path

import stoplist
from stoplist.audit.actions import ACTIONS
from tests.audit.operations import OPERATIONS

_SOURCE = Path(stoplist.__file__).parent
_ACTION = re.compile(r"(?!stoplist\.)[a-z]+\.[a-z_]+")
# Where in the call that records one the action stands: `record(transaction, actor, action, target, …)`.
_PLACE = 2


def files_that_record() -> dict[Path, ast.Module]:
    """The modules that write to the audit."""
    texts = {path: path.read_text("utf-8") for path in _SOURCE.rglob("*.py")}
    return {path: ast.parse(text) for path, text in texts.items() if "trail.record(" in text}


def recorded() -> dict[str, Path]:
    """Every text in these modules that could be an action, with where it stands."""
    return {
        node.value: path
        for path, tree in files_that_record().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and _ACTION.fullmatch(node.value)
    }


def test_every_recorded_action_has_words() -> None:
    """A new one gets a line in the table, which lists and select boxes show."""
    unknown = {action: path.name for action, path in recorded().items() if action not in ACTIONS}
    assert unknown == {}


def test_what_is_recorded_is_a_word_that_can_be_found() -> None:
    """Given as it is, or by way of a name or a table of the same module: nothing is put together."""
    for path, tree in files_that_record().items():
        for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
            if not (isinstance(call.func, ast.Attribute) and ast.unparse(call.func) == "trail.record"):
                continue
            action = call.args[_PLACE]
            parts = [action.body, action.orelse] if isinstance(action, ast.IfExp) else [action]
            assert all(isinstance(part, ast.Constant | ast.Name | ast.Subscript) for part in parts), (
                f"{path}: {ast.unparse(action)}"
            )


def test_there_are_no_words_for_what_is_never_recorded() -> None:
    """A select box offers what can be found."""
    assert ACTIONS.keys() - recorded().keys() == set()


def test_the_actions_of_operations_have_words() -> None:
    """Those that the tests of each operation see in the audit."""
    assert {action for operation in OPERATIONS.values() for action in operation.actions} <= ACTIONS.keys()


def test_words_tell_actions_apart() -> None:
    """No two are called the same."""
    assert len(set(ACTIONS.values())) == len(ACTIONS)
