"""Reads the rows of an NDJSON file: one JSON object a line, all with the fields of the first.

Only Stoplist's own exports are read so. Source: docs/interface.md section D12, Files.
"""

import json
from collections.abc import Sequence

from stoplist_addresses.lists.blocks import Block
from stoplist_addresses.lists.model import ListError
from stoplist_addresses.lists.rows import AnyRows, Rows


def is_json(first_line: str) -> bool:
    """Return whether a file with this first line is JSON, so that it is neither CSV nor a list of addresses."""
    return first_line.lstrip().startswith(("{", "["))


def names_of(first_line: str, *, line: int) -> tuple[str, ...]:
    """Return the names of the fields of a first line. Raise ListError if it is no JSON object."""
    return tuple(_object(first_line, line))


def read_json_rows(block: Block, names: Sequence[str]) -> Rows:
    """Return the rows of a block, with a cell for each of the names. Raise ListError at a line that is no object."""
    lines = block.lines.split("\n")
    lines.pop()
    ends = [at for at, line in enumerate(lines, 1) if line.strip()]
    numbers = [block.first_line + end - 1 for end in ends]
    rows = [_cells(lines[end - 1], names, number) for end, number in zip(ends, numbers, strict=True)]
    return AnyRows(len(rows), numbers, ends, rows)


def _cells(text: str, names: Sequence[str], line: int) -> list[str]:
    fields = _object(text, line)
    return [_cell(fields.get(name), line) for name in names]


def _cell(value: object, line: int) -> str:
    if value is None:
        return ""
    text = str(value) if isinstance(value, int) else value
    if not isinstance(text, str):
        raise ListError(f"Line {line} has a value that is neither text nor a whole number, as none in an export is.")
    try:
        text.encode()
    except UnicodeEncodeError:  # an escape of half a character
        raise ListError(f"Line {line} has an escape that is no character.") from None
    return text


def _object(text: str, line: int) -> dict[str, object]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise ListError(f"Line {line} is not a JSON object: an NDJSON file has one on each line.")
    return found
