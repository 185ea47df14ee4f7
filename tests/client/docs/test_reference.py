"""docs/client-reference.md is what the docstrings say, and all that is public has one."""

import re

import stoplist_client

from tools.client_reference import TARGET, reference

_ENTRY = re.compile(r"^#{3,4} (\S+)\n\n```python\n.*?\n```\n\n(.*?)(?=^#|\Z)", re.MULTILINE | re.DOTALL)


def test_the_reference_is_up_to_date() -> None:
    """Whoever changes a docstring or a signature runs `make reference`."""
    assert TARGET.read_text() == reference()


def test_everything_public_has_a_docstring() -> None:
    """Classes, functions, constants, and the methods and properties of the classes."""
    entries = dict(_ENTRY.findall(reference()))
    assert set(entries) >= {name for name in stoplist_client.__all__ if not name.startswith("_")}
    assert [name for name, text in entries.items() if not text.strip()] == []
