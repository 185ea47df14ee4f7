"""Decides which rows are opt-outs. A list never resubscribes anybody. Source: docs/interface.md section D12, Who."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum

from stoplist_addresses.lists.formats import Words, normalized, word
from stoplist_addresses.lists.header import Header
from stoplist_addresses.lists.model import ListError
from stoplist_addresses.lists.rows import Rows

_MAX_VALUES_SHOWN = 8


class Verdict(IntEnum):
    """The verdict on a row. Of several columns, the greatest one holds."""

    OPTED_OUT = 0
    NOT_OPTED_OUT = 1
    UNKNOWN_STATUS = 2


class Statuses:
    """The columns that decide whether a row is an opt-out."""

    def __init__(self, header: Header, opted_out_when: Sequence[tuple[str, str]]) -> None:
        self._words: dict[int, Words] = {}
        if header.format is not None:
            for index, name in enumerate(header.names):
                if words := header.format.statuses.get(normalized(name)):
                    self._words[index] = words
        stated: dict[int, set[str]] = {}
        for name, value in opted_out_when:
            stated.setdefault(header.named(name, "opted_out_when"), set()).add(word(value))
        for index, values in stated.items():
            self._words[index] = Words(frozenset(values))
        self._undecided = [index for index in header.status_columns if index not in self._words]
        self._names = header.names

    def refuse_undecided(self, rows: Rows | None) -> None:
        """Raise ListError if a column may say a status, and it is not stated which of its values mean an opt-out."""
        for index in self._undecided:
            column = rows.column(index, 0, rows.count) if rows else []
            found = f" At the beginning of the file its values are {shown_counts(map(word, column))}." if column else ""
            raise ListError(
                f"The column {self._names[index]!r} may say who opted out: say which of its values mean that.{found} "
                "If it does not say so, as a date does not, give the column another name in the file.",
                is_usage=True,
                option="opted_out_when",
            )

    def verdicts(self, column_of: Callable[[int], list[str]]) -> list[Verdict] | None:
        """Return the verdict on each row, whose cells `column_of` gives; None if all of them are opt-outs."""
        found: list[Verdict] | None = None
        for index, words in self._words.items():
            column = column_of(index)
            of_cells = {cell: _verdict(cell, words) for cell in set(column)}
            if any(of_cells.values()):
                verdicts = [of_cells[cell] for cell in column]
                found = verdicts if found is None else list(map(max, found, verdicts))
        return found


def _verdict(cell: str, words: Words) -> Verdict:
    text = word(cell)
    if text in words.opted_out:
        return Verdict.OPTED_OUT
    if words.not_opted_out is None or text in words.not_opted_out:
        return Verdict.NOT_OPTED_OUT
    return Verdict.UNKNOWN_STATUS


def shown_counts(values: Iterable[str]) -> str:
    """Return values with their counts, the most frequent first."""
    counts = Counter(values)
    shown = ", ".join(f"{value or '(empty)'} ({count})" for value, count in counts.most_common(_MAX_VALUES_SHOWN))
    return f"{shown} and others" if len(counts) > _MAX_VALUES_SHOWN else shown
