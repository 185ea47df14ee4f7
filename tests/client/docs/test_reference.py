"""docs/client-reference.md matches the docstrings, and everything public has one."""

import re
from functools import cache

import stoplist_client

from tools.client_reference import TARGET, reference

_ENTRY = re.compile(r"^#{3,4} (\S+)\n\n```python\n.*?\n```\n\n(.*?)(?=^#|\Z)", re.MULTILINE | re.DOTALL)

_HEAD = re.compile(r"^#{3,4} (\S+)\n\n```python\n(.*?)\n```", re.MULTILINE | re.DOTALL)
# KeyringBackend is from keyring, and named with its module.
_OTHERS = """
    AsyncIterable AsyncIterator Callable Enum Exception False Iterable Iterator KeyringBackend Literal None Path
    PathLike Protocol True ValueError
"""


@cache
def _reference() -> str:
    return reference()


def test_reference_is_up_to_date() -> None:
    """`make reference` rewrites it after a change of a docstring or signature."""
    assert TARGET.read_text() == _reference()


def test_everything_public_has_a_docstring() -> None:
    """Classes, functions, constants, and the methods and properties of classes."""
    entries = dict(_ENTRY.findall(_reference()))
    assert set(entries) >= {name for name in stoplist_client.__all__ if not name.startswith("_")}
    assert [name for name, text in entries.items() if not text.strip()] == []


def test_errors_show_their_attributes() -> None:
    """They show their types, and the code of each refusal."""
    heads = dict(_HEAD.findall(_reference()))
    assert heads["ApiError"].split("\n    ")[1:] == [
        "text: str",
        "status: int",
        "code: str",
        "parameter: str | None",
        "item_errors: tuple[ItemError, ...]",
        "org_slug: str | None",
        "group_id: str | None",
        "request_id: str | None",
        "retry_after_s: int | None",
    ]
    assert heads["StoplistClientError"].endswith("submitted: Submitted | None")
    assert heads["NotUnderstood"].endswith("status: int\n    request_id: str | None")
    assert heads["MirrorTooOld"].endswith("age_s: float")
    assert heads["RateLimited"].endswith('code = "rate_limited"')


def test_signatures_name_public_names_only() -> None:
    """Internal aliases and constants are spelled out."""
    entries = set(stoplist_client.__all__)
    codes = "\n".join(code for _name, code in _HEAD.findall(_reference()))
    named = set(re.findall(r"\b_?[A-Z]\w*\b", re.sub(r"""(["']).*?\1""", "", codes)))
    assert named - entries - set(_OTHERS.split()) == set()
    assert "max_age_s: float = 86400.0" in codes


def test_arguments_are_a_list() -> None:
    text = dict(_ENTRY.findall(_reference()))["Mirror"]
    assert "- `max_age_s`: " in text
    assert "- `page_records`: " in text
