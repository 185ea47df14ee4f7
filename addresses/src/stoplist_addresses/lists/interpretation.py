"""Turns rows into opt-outs, column by column. Source: docs/interface.md section D12, When, Other fields, Bad rows."""

import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from operator import itemgetter
from typing import cast

from stoplist_addresses.control_characters import with_one_space
from stoplist_addresses.lists.formats import STOPLIST, Format, word
from stoplist_addresses.lists.header import Header
from stoplist_addresses.lists.last_versions import LastVersions
from stoplist_addresses.lists.model import DEFAULT_REASON, BadRow, ListError, ListOptions, OptOut, Part
from stoplist_addresses.lists.rows import Rows
from stoplist_addresses.lists.selection import Selection
from stoplist_addresses.lists.statuses import Statuses, Verdict
from stoplist_addresses.lists.times import NoTimeZone, TimeReader

_FINGERPRINT = "key_fingerprint"
UNKNOWN_STATUS, MISSING_TIME, UNREADABLE_TIME = "unknown_status", "missing_time", "unreadable_time"

_MAX_SOURCE = 200
# The ' by which an export of Stoplist guards what a spreadsheet would read as a formula: before a sign with or without
# these characters before it, and before a control. A run of them is read once: from every ', it would take minutes.
_RUN = re.compile(r"([\s\"'\ufeff]+)([=+\-@\uff1d\uff0b\uff0d\uff20]?)")
_GUARD = re.compile(r"(?<=[;\t\r\n])'")
_GUARD_OF_CONTROL = re.compile(r"(?<=[;\t\r\n])'(?=[\t\r\n])")


@dataclass(slots=True)
class Tally:
    """A part that is being read."""

    rows: int = 0
    opt_outs: list[OptOut] = field(default_factory=list)
    bad: list[BadRow] = field(default_factory=list)
    not_opted_out: int = 0
    redated: int = 0
    dated_after_as_of: int = 0
    sources_changed: int = 0
    reasons_replaced: int = 0
    erased: int = 0
    earlier_versions: int = 0
    by_digest: list[OptOut] = field(default_factory=list)
    _origins: list[tuple[int, Selection]] = field(default_factory=list)

    def part(self, sha256: str) -> Part:
        """Return the part."""
        self.bad.sort(key=lambda each: each.line)
        return Part(
            self.rows,
            sha256,
            self.opt_outs,
            self.bad,
            self.not_opted_out,
            self.redated,
            self.dated_after_as_of,
            self.sources_changed,
            self.reasons_replaced,
            self.erased,
            self.earlier_versions,
            self.by_digest,
            self._cells,
        )

    def add(self, selected: Selection, opt_outs: Iterable[OptOut]) -> None:
        """Add the opt-outs of the selected rows."""
        self._origins.append((len(self.opt_outs), selected))
        self.opt_outs.extend(opt_outs)

    def _cells(self, index: int) -> tuple[str, ...]:
        first, selected = self._origins[bisect_right(self._origins, index, key=itemgetter(0)) - 1]
        return selected.cells(index - first)


class Interpreter:
    """Reads the rows of one file by its header and the options."""

    def __init__(self, header: Header, statuses: Statuses, times: TimeReader, options: ListOptions) -> None:
        self._fields, self._statuses, self._times = header.fields, statuses, times
        is_own = header.format is STOPLIST
        self._is_guarded = is_own and not header.is_json
        self._digests = header.named("address_digest", "columns") if is_own else None
        self._key_fingerprint = options.key_fingerprint
        has_fingerprints = is_own and header.has(_FINGERPRINT)
        self._fingerprints = header.named(_FINGERPRINT, "columns") if has_fingerprints else None
        self._history = header.history
        self.versions: LastVersions | None = None
        """Set for an export with its history: only the last version of each record is taken."""
        self._now_ms, self._as_of_ms = options.now_ms, options.as_of_ms
        self._source = clean_source(options.source or "") or None
        self._source_is_changed = (self._source or "") != (options.source or "").strip()
        self._reasons = _Reasons(header.format, options)

    def read(self, rows: Rows, begin: int, end: int, tally: Tally) -> None:
        """Add the rows from `begin` to before `end` to a part."""
        tally.rows += end - begin
        selected = Selection(rows, begin, end)
        self._leave_out_earlier_versions(selected, tally)
        self._leave_out(selected, tally)
        erased = self._take_erased(selected, tally)
        tally.add(selected, self._opt_outs(selected, self._fields["address"], tally))
        if erased is not None and self._digests is not None:
            tally.by_digest.extend(self._opt_outs(erased, self._digests, tally))

    def require_time_zone(self, rows: Rows, begin: int, end: int) -> None:
        """Raise ListError if one of these rows has a time that needs a time zone, and none is stated."""
        selected, ignored = Selection(rows, begin, end), Tally()
        self._leave_out(selected, ignored)
        self._take_erased(selected, ignored)
        self._times_of(selected, ignored)

    def _opt_outs(self, selected: Selection, addresses: int, tally: Tally) -> Iterable[OptOut]:
        """Return the opt-outs of the selected rows; `addresses` is the index of the column that says who."""
        times = self._times_of(selected, tally)
        reasons = self._reasons_of(selected, tally)
        sources = self._sources_of(selected, tally)
        return zip(selected.lines(), selected.column(addresses), times, reasons, sources)  # noqa: B905 (some repeat)

    def _leave_out_earlier_versions(self, selected: Selection, tally: Tally) -> None:
        if self.versions is not None and self._history is not None:
            is_last = self.versions.are_last(*map(selected.column, self._history))
            tally.earlier_versions += is_last.count(False)
            selected.keep(is_last)

    def _leave_out(self, selected: Selection, tally: Tally) -> None:
        """Leave out rows that are no opt-outs, or that say a status nobody knows."""
        verdicts = self._statuses.verdicts(selected.column)
        if verdicts is not None:
            tally.not_opted_out += verdicts.count(Verdict.NOT_OPTED_OUT)
            tally.bad.extend(
                selected.bad_row(at, UNKNOWN_STATUS)
                for at, verdict in enumerate(verdicts)
                if verdict is Verdict.UNKNOWN_STATUS
            )
            selected.keep([verdict is Verdict.OPTED_OUT for verdict in verdicts])

    def _take_erased(self, selected: Selection, tally: Tally) -> Selection | None:
        """Take the rows of erased persons out; return those that the service can know by their digests."""
        if self._digests is None:
            return None
        addresses = selected.column(self._fields["address"])
        if "" not in addresses:
            return None
        digests = selected.column(self._digests)
        is_erased = [not address and bool(digest) for address, digest in zip(addresses, digests, strict=True)]
        erased = selected.split(is_erased)
        tally.erased += len(erased)
        if self._key_fingerprint is None or self._fingerprints is None:
            return None
        erased.keep([one == self._key_fingerprint for one in erased.column(self._fingerprints)])
        tally.erased -= len(erased)
        return erased

    def _times_of(self, selected: Selection, tally: Tally) -> Iterable[int]:
        """Return the times of the selected rows. Leave out rows that have none."""
        index = self._fields.get("occurred_at")
        as_of_ms, now_ms = self._as_of_ms, self._now_ms
        if index is None:
            return repeat(now_ms if as_of_ms is None else as_of_ms)
        texts = selected.column(index)
        try:
            times = self._times.read_column(texts)
        except NoTimeZone:
            raise self._no_time_zone(selected, texts) from None
        if as_of_ms is None and None in times:
            for at, (time, text) in enumerate(zip(times, texts, strict=True)):
                if time is None:
                    tally.bad.append(selected.bad_row(at, UNREADABLE_TIME if text.strip() else MISSING_TIME))
            selected.keep([time is not None for time in times])
            times = [time for time in times if time is not None]
        if None not in times and max(cast("list[int]", times), default=0) <= (now_ms if as_of_ms is None else as_of_ms):
            return cast("list[int]", times)
        return [self._dated(time, tally) for time in times]

    def _dated(self, time: int | None, tally: Tally) -> int:
        """Return the time of a row that has none, or one that may lie after the list was true."""
        if time is None:
            tally.redated += 1
            return self._now_ms if self._as_of_ms is None else self._as_of_ms
        if time > self._now_ms:
            tally.redated += 1
            return self._now_ms
        tally.dated_after_as_of += self._as_of_ms is not None and time > self._as_of_ms
        return time

    def _no_time_zone(self, selected: Selection, texts: Sequence[str]) -> ListError:
        def needs_zone(text: str) -> bool:
            try:
                self._times.read(text)
            except NoTimeZone:
                return True
            return False

        at = next(at for at, text in enumerate(texts) if needs_zone(text))
        return ListError(
            f"The time on line {selected.lines()[at]} has no offset from UTC: say the time zone of the file, so that "
            "no opt-out is dated hours too early or too late.",
            is_usage=True,
            option="time_zone",
        )

    def _reasons_of(self, selected: Selection, tally: Tally) -> Iterable[str]:
        index = self._fields.get("reason")
        if index is None:
            return repeat(self._reasons.default)
        texts = selected.column(index)
        of_texts = {text: self._reasons.known(text) for text in set(texts)}
        unknown = [text for text, reason in of_texts.items() if reason is None]
        if unknown:
            counted = set(unknown)
            tally.reasons_replaced += sum(bool(text.strip()) and text in counted for text in texts)
            of_texts.update(dict.fromkeys(unknown, self._reasons.default))
        return [of_texts[text] for text in texts]  # type: ignore[misc]

    def _sources_of(self, selected: Selection, tally: Tally) -> Iterable[str | None]:
        index = self._fields.get("source")
        if index is None:
            tally.sources_changed += self._source_is_changed * len(selected)
            return repeat(self._source)
        texts = selected.column(index)
        if self._is_guarded:
            texts = [_RUN.sub(_unguarded, text) if "'" in text else text for text in texts]
        cleaned = {text: clean_source(text) for text in set(texts)}
        changed = {
            text for text, clean in cleaned.items() if clean != text.strip() or (self._source_is_changed and not clean)
        }
        if changed:
            tally.sources_changed += sum(text in changed for text in texts)
        return [cleaned[text] or self._source for text in texts]


def _unguarded(run: re.Match[str]) -> str:
    """Return a run and its sign without the guards."""
    before = run.string[run.start() - 1] if run.start() else "\n"
    guard = _GUARD if run[2] else _GUARD_OF_CONTROL
    return guard.sub("", before + run[1])[1:] + run[2]


class _Reasons:
    """The reasons that the service knows, by the words of a file."""

    def __init__(self, format_: Format | None, options: ListOptions) -> None:
        of_format = None if format_ is None else format_.reason
        self.default = options.reason or of_format or DEFAULT_REASON
        self._known = {each: each for each in options.reasons}
        if format_ is not None:
            self._known |= format_.reasons

    def known(self, text: str) -> str | None:
        """Return the reason that a cell says; None if it says none that is known."""
        return self._known.get(word(text))


def clean_source(text: str) -> str:
    """Return a source with one space for each run of control characters, cut to 200 characters."""
    return with_one_space(text.strip())[:_MAX_SOURCE].rstrip()
