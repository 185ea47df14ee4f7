"""No Struct of the client shows its content, neither by repr nor by rich."""

import importlib
import inspect
import pkgutil
import types
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
import pytest
import stoplist_client
from stoplist_client.secret import Secret

pytestmark = pytest.mark.interpreter

NEEDLE = "needle"
# Everything else must be hidden, also in a Struct that is added later.
HARMLESS = {
    *("base_url", "ca_file", "channel", "client_id", "cursor", "group_id", "id", "item_error", "key", "method", "name"),
    *("next_cursor", "org_slug", "problem", "refusal", "status", "submission_id", "submission_ids", "url", "verdict"),
    *("one", "many", "one_of_either", "many_of_either"),  # statements of SQL
    "digest",  # of a whole feed
}


def structs() -> Iterator[type[msgspec.Struct]]:
    """Yield every Struct that a module of the package defines."""
    for module in pkgutil.walk_packages(stoplist_client.__path__, "stoplist_client."):
        if module.name.rpartition(".")[2] == "__main__":
            continue
        for value in vars(importlib.import_module(module.name)).values():
            if inspect.isclass(value) and issubclass(value, msgspec.Struct) and value.__module__ == module.name:
                yield value


STRUCTS = sorted(structs(), key=lambda kind: (kind.__module__, kind.__qualname__))


def filled(kind: type[msgspec.Struct]) -> msgspec.Struct:
    """Return a Struct in which each text except the harmless ones is the needle."""
    hints = get_type_hints(kind, include_extras=False)
    return kind(**{name: "-" if name in HARMLESS else value_of(hints[name]) for name in kind.__struct_fields__})


def value_of(hint: Any) -> Any:
    origin, arguments = get_origin(hint), get_args(hint)
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return filled(hint)
    if origin is Annotated:
        return value_of(arguments[0])
    if origin is Literal:
        return arguments[0]
    if origin in (Union, types.UnionType):
        return value_of(next(argument for argument in arguments if argument is not types.NoneType))
    if origin in (list, set, frozenset):
        return origin([value_of(arguments[0])])
    if origin is tuple or origin is Sequence:
        return tuple(value_of(argument) for argument in arguments if argument is not ...)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return {value_of(arguments[0]): value_of(arguments[1])}
    simple: dict[Any, Any] = {bytes: NEEDLE.encode(), int: 7, float: 7.0, bool: False, datetime: datetime.now(UTC)}
    if hint is Secret:
        return Secret(NEEDLE)
    return simple.get(hint, NEEDLE)


def as_rich(value: Any) -> str:
    """Return what rich prints: `__rich_repr__` if there is one, and the elements of containers."""
    if isinstance(value, Mapping):
        return as_rich(list(value.items()))
    if isinstance(value, list | tuple | set | frozenset):
        return " ".join(map(as_rich, value))
    own = getattr(value, "__rich_repr__", None)
    return repr(value) if own is None else f"{type(value).__name__} {as_rich(list(own()))}"


def test_all_modules_are_searched() -> None:
    """Public and private ones, and those of sub-packages."""
    names = {f"{kind.__module__}.{kind.__name__}".removeprefix("stoplist_client.") for kind in STRUCTS}
    assert {
        "model.Item",
        "flows.renewal._Access",
        "flows.flow.Send",
        "mirror.model.Checked",
        "cli.profile.Profile",
    } <= names
    assert len(names) == len(STRUCTS)


@pytest.mark.parametrize("kind", STRUCTS, ids=lambda kind: f"{kind.__module__}.{kind.__name__}")
def test_struct_shows_none_of_its_content(kind: type[msgspec.Struct]) -> None:
    """This holds for repr, for str, and field by field."""
    value = filled(kind)
    assert NEEDLE not in f"{value!r} {value} {[value]}"
    assert NEEDLE not in as_rich(value)
