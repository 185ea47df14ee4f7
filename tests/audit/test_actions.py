"""Every action that the product records has a text, and there are no texts for others."""

import ast
import re
from pathlib import Path

import stoplist
from stoplist.audit.actions import ACTIONS
from tests.audit.operations import OPERATIONS

_SOURCE = Path(stoplist.__file__).parent
_ACTION = re.compile(r"(?!stoplist\.)[a-z]+(?:_[a-z]+)?\.[a-z_]+")
# What writes an entry: the operation itself, and what adds to one what entries of a kind have alike.
_CALLS = ("trail.record(", "audit_writer(")
# The index of the action in `record(transaction, actor, action, target, …)`.
_ACTION_ARGUMENT = 2


def files_that_record() -> dict[Path, ast.Module]:
    """Return the modules that write to the audit."""
    texts = {path: path.read_text("utf-8") for path in _SOURCE.rglob("*.py")}
    return {path: ast.parse(text) for path, text in texts.items() if any(call in text for call in _CALLS)}


def recorded_actions() -> dict[str, Path]:
    """Return every text in these modules that could be an action, with its file."""
    return {
        node.value: path
        for path, tree in files_that_record().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and _ACTION.fullmatch(node.value)
    }


def test_every_recorded_action_has_a_text() -> None:
    """A new action gets a line in the table, which lists and select boxes show."""
    unknown = {action: path.name for action, path in recorded_actions().items() if action not in ACTIONS}
    assert unknown == {}


def test_actions_are_written_out_in_the_code() -> None:
    """Each action is a constant, a name or an entry of a table in the same module; none is composed."""
    for path, tree in files_that_record().items():
        for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
            if not (isinstance(call.func, ast.Attribute) and ast.unparse(call.func) == "trail.record"):
                continue
            action = call.args[_ACTION_ARGUMENT]
            parts = [action.body, action.orelse] if isinstance(action, ast.IfExp) else [action]
            assert all(isinstance(part, ast.Constant | ast.Name | ast.Subscript) for part in parts), (
                f"{path}: {ast.unparse(action)}"
            )


def test_every_text_is_of_a_recorded_action() -> None:
    """A select box offers only actions that can be found."""
    assert ACTIONS.keys() - recorded_actions().keys() == set()


def test_the_actions_of_all_operations_have_a_text() -> None:
    assert {action for operation in OPERATIONS.values() for action in operation.actions} <= ACTIONS.keys()


def test_no_two_actions_have_the_same_text() -> None:
    assert len(set(ACTIONS.values())) == len(ACTIONS)
