"""The counts of an import for people. docs/interface.md section D12."""

from stoplist.cli.import_output import count_lines
from stoplist.lists.imports.model import ImportCounts


def test_counts_that_are_bounds_say_so() -> None:
    counts = ImportCounts(rows=9, repeated=2, created=6, unchanged=3)
    exact = count_lines(counts, is_check=True)
    assert not [line for line in exact if "at most" in line or "at least" in line]
    bounds = [line.split(":")[0].split(maxsplit=1) for line in count_lines(counts, is_check=True, is_exact=False)]
    assert [text for _, text in bounds if text.startswith("at ")] == [
        "at most repeated within the file",
        "at least would be created",
        "at most would be unchanged",
    ]
