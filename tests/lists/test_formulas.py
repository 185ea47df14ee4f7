"""Nothing in a guarded cell is a formula for a spreadsheet, and the longest cell is guarded at once."""

import pytest

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


@pytest.mark.timeout(60)
def test_a_long_run_of_controls_is_searched_once() -> None:
    """A search from each of them would take half an hour: a minute in the longest cell, of 64 KiB."""
    controls = "\t" * 400_000
    assert guarded(controls) == f"'{controls}"
    assert guarded(f"a{controls}=1").count("'") == len(controls)
