"""Reads a file part by part and canonicalises its addresses, in slices between which other work goes on.

Source: docs/interface.md section D12.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import NamedTuple

from stoplist_addresses import AddressError
from stoplist_addresses.lists import ListFile, Part

from stoplist.lists.imports.model import MAX_ROWS_PER_PART, ImportCounts
from stoplist.slicing import yield_to_loop
from stoplist.unsubscribes.channel import Channel
from stoplist.unsubscribes.erased import form_of
from stoplist.unsubscribes.items import Act
from stoplist.unsubscribes.model import UNSUBSCRIBED

INVALID_ADDRESS = "invalid_address"
REJECTION_TEXTS = {
    "unknown_status": "The status is a word that is not known: say which words mean an opt-out.",
    "missing_time": "The time is missing: say when the list was true.",
    "unreadable_time": "The time cannot be read: say when the list was true.",
}
_ROWS_PER_SLICE = 250  # about a millisecond

Pause = Callable[[], Awaitable[None]]


class RejectedRow(NamedTuple):
    """A row that is left out: its line in the file, the kind of error, a text for people, and its own columns."""

    line: int
    kind: str
    text: str
    cells: Sequence[str]


class PartOfFile(NamedTuple):
    """Consecutive rows of a file, with canonical addresses. `counts` has what the file alone tells of them."""

    acts: list[Act]
    rejected: list[RejectedRow]
    counts: ImportCounts
    sha256: str


class PartReader:
    """Reads parts of at most `rows` rows. Yields to the event loop after each millisecond or so."""

    def __init__(
        self, file: ListFile, channel: Channel, *, rows: int = MAX_ROWS_PER_PART, pause: Pause = yield_to_loop
    ) -> None:
        self._rows, self._rows_per_slice = rows, min(rows, _ROWS_PER_SLICE)
        self._slices: Iterator[Part] = file.parts(rows=self._rows_per_slice)
        self._canonical, self._pause = channel.canonical, pause

    async def next_part(self) -> PartOfFile | None:
        """Return the next part, or None at the end. The last part may have no rows.

        Raise ListError where the file breaks.
        """
        acts: list[Act] = []
        rejected: list[RejectedRow] = []
        counts, sha256 = ImportCounts(), None
        while counts.rows + self._rows_per_slice <= self._rows:
            part = next(self._slices, None)
            if part is None:
                break
            self._take(part, acts, rejected)
            counts, sha256 = add_counts(counts, _counts_of(part)), part.sha256
            await self._pause()
        if sha256 is None:
            return None
        counts.bad = dict(Counter(row.kind for row in rejected))
        return PartOfFile(acts, rejected, counts, sha256)

    def _take(self, part: Part, acts: list[Act], rejected: list[RejectedRow]) -> None:
        bad = [RejectedRow(row.line, row.error, REJECTION_TEXTS[row.error], row.cells) for row in part.bad]
        canonical = self._canonical
        for index, (line, address, occurred_ms, reason, source) in enumerate(part.opt_outs):
            try:
                acts.append(Act(len(acts), canonical(address), UNSUBSCRIBED, occurred_ms, reason, source))
            except AddressError as error:
                bad.append(RejectedRow(line, INVALID_ADDRESS, str(error), part.cells(index)))
        for _, digest, occurred_ms, reason, _ in part.by_digest:
            acts.append(Act(len(acts), form_of(digest), UNSUBSCRIBED, occurred_ms, reason, None))
        rejected += sorted(bad, key=lambda row: row.line)


def add_counts(one: ImportCounts, other: ImportCounts, decided: dict[str, int] | None = None) -> ImportCounts:
    """Return the sum of two counts, plus the results that were `decided`."""
    numbers = {
        name: getattr(one, name) + getattr(other, name)
        for name in ImportCounts.__struct_fields__
        if name not in ("bad", "repeated")
    }
    for name, count in (decided or {}).items():
        numbers[name] += count
    return ImportCounts(bad=dict(Counter(one.bad) + Counter(other.bad)), repeated=one.repeated, **numbers)


def _counts_of(part: Part) -> ImportCounts:
    """Return the counts of a part, without its bad rows."""
    return ImportCounts(
        rows=part.rows,
        not_opted_out=part.not_opted_out,
        erased=part.erased,
        earlier_versions=part.earlier_versions,
        redated=part.redated,
        dated_after_as_of=part.dated_after_as_of,
        sources_changed=part.sources_changed,
        reasons_replaced=part.reasons_replaced,
    )
