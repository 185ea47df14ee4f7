"""The time of a search, measured in scans, so that tests need no clock."""

import pytest

from stoplist.records import listing


def limit_scans(patch: pytest.MonkeyPatch, scans: int, *, rows: int) -> None:
    """Let each search end after so many scans, of at most `rows` records each."""

    class ScanLimit:
        def __init__(self, limit_ns: int) -> None:
            assert limit_ns == listing.SEARCH_NS
            self._left = scans

        @property
        def is_over(self) -> bool:
            self._left -= 1
            return self._left <= 0

    patch.setattr(listing, "TimeLimit", ScanLimit)
    patch.setattr(listing, "_ROWS_PER_SCAN", rows)
