"""Nothing in a guarded cell is a formula for a spreadsheet, and the longest cell is guarded at once."""

import pytest
from stoplist_addresses.lists.blocks import MAX_ROW_BYTES

from stoplist.lists.formulas import guarded


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        ("=1", "'=1"),
        ("a=1", "a=1"),
        ("a;=1", "a;'=1"),
        ("a; \t=1", "a;' \t'=1"),
        ("a \t=1", "a \t'=1"),
        ("\n\r -1", "'\n'\r' -1"),
        ("; a-1", "; a-1"),
    ],
)
def test_every_beginning_of_a_cell_is_guarded(cell: str, expected: str) -> None:
    assert guarded(cell) == expected


def test_a_long_run_of_controls_is_searched_once() -> None:
    """A search from each of them would take minutes."""
    controls = "\t" * MAX_ROW_BYTES
    assert guarded(controls) == f"'{controls}"
    assert guarded(f"a{controls}=1").count("'") == MAX_ROW_BYTES
