"""Refuses an own export whose records are of several targets, because one import has one target.

Source: docs/interface.md section D12, Formats.
"""

from collections import Counter

from stoplist_addresses.lists.formats import STOPLIST
from stoplist_addresses.lists.header import Header
from stoplist_addresses.lists.model import ListError, ListOptions
from stoplist_addresses.lists.rows import Rows

_GROUP = "group_id"


class OwnTargets:
    """The number of rows of an own export, by their group."""

    def __init__(self, header: Header, options: ListOptions) -> None:
        self._index: int | None = None
        if header.format is STOPLIST:
            index = header.named(_GROUP, "columns")
            is_picked = any(header.named(name, "opted_out_when") == index for name, _ in options.opted_out_when)
            self._index = None if is_picked else index
        self._counts: Counter[str] = Counter()

    @property
    def is_needed(self) -> bool:
        """Return whether this is an own export of which no target was picked."""
        return self._index is not None

    def count(self, rows: Rows, begin: int, end: int) -> None:
        """Count the rows from `begin` to before `end`."""
        if self._index is not None:
            self._counts.update(rows.column(self._index, begin, end))

    def refuse_several(self) -> None:
        """Raise ListError if rows of several targets were counted."""
        if len(self._counts) > 1:
            counts = ", ".join(f"{group or 'all groups'} ({count})" for group, count in self._counts.most_common())
            raise ListError(
                f"The export has records of several targets: {counts}. Pick one by its {_GROUP}, which is empty for "
                "all groups.",
                is_usage=True,
                option="opted_out_when",
            )
