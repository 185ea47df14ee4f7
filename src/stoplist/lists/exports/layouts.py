"""The two layouts of an export: CSV with a header, and NDJSON with the same fields.

CSV follows RFC 4180. Its `source` and labels are guarded, because people open such files in spreadsheets; addresses are
written as they are, because programs must find them. Source: docs/interface.md section D12.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Protocol

import msgspec

from stoplist.lists.exports.snapshot import State
from stoplist.lists.formulas import guarded
from stoplist.rfc3339 import format_ms
from stoplist.unsubscribes.erased import PREFIX, digest_of

COLUMNS = (
    *("id", "org_slug", "address", "address_digest", "key_fingerprint", "group_id"),
    *("status", "reason", "occurred_at", "recorded_at", "source", "seq"),
)
HISTORY_COLUMNS = (*COLUMNS, "submission_id", "actor_kind", "actor_id", "actor_label")
CSV, NDJSON = "csv", "ndjson"

_SPECIAL = re.compile(r'[",\r\n]')
_NDJSON = msgspec.json.Encoder()


class Layout(Protocol):
    """Writes the states of one export. `group_ids` has the id of each group number, `labels` those of keys.

    `key_fingerprint` is that of the feed's digest key.
    """

    def head(self) -> bytes:
        """Return what stands before the first state."""
        ...

    def lines(self, states: Sequence[State], labels: Mapping[str, str]) -> bytes:
        """Return a line for each of the states."""
        ...


class _Line(msgspec.Struct, frozen=True, gc=False):
    """A line of NDJSON."""

    id: str
    org_slug: str
    address: str | None
    address_digest: str | None
    key_fingerprint: str | None
    group_id: str | None
    status: str
    reason: str
    occurred_at: str
    recorded_at: str
    source: str | None
    seq: int


class _HistoryLine(_Line, frozen=True, gc=False):
    """A line of NDJSON with the history."""

    submission_id: str | None
    actor_kind: str | None
    actor_id: str | None
    actor_label: str | None


class _Csv:
    """The layout `csv`."""

    def __init__(
        self, org_slug: str, group_ids: Mapping[int, str], *, has_history: bool, key_fingerprint: str = ""
    ) -> None:
        self._org_slug, self._key_fingerprint = org_slug, key_fingerprint
        self._group_ids, self._has_history = {0: "", **group_ids}, has_history

    def head(self) -> bytes:
        return (",".join(HISTORY_COLUMNS if self._has_history else COLUMNS) + "\r\n").encode()

    def lines(self, states: Sequence[State], labels: Mapping[str, str]) -> bytes:
        # The only loop that takes time in an export of millions: each field once, without a call where it can be.
        slug, groups = self._org_slug, self._group_ids
        lines, recorded_ms, recorded_at = [], None, ""
        for state in states:
            if state.recorded_ms != recorded_ms:  # the same for a whole batch
                recorded_ms, recorded_at = state.recorded_ms, format_ms(state.recorded_ms)
            address, digest_cells = state.address, ","
            if _SPECIAL.search(address):
                address = _quoted(address)
            elif address.startswith(PREFIX):
                address, digest_cells = "", f"{address[len(PREFIX) :]},{self._key_fingerprint}"
            line = (
                f"{state.id},{slug},{address},{digest_cells},{groups[state.group_no]},{state.status},{state.reason},"
                f"{format_ms(state.occurred_ms)},{recorded_at},{_guarded_cell(state.source)},{state.seq}"
            )
            if self._has_history:
                actor = _guarded_cell(state.actor_id)
                label = _guarded_cell(labels.get(state.actor_id or ""))
                line += f",{state.submission_id or ''},{state.actor_kind or ''},{actor},{label}"
            lines.append(line + "\r\n")
        return "".join(lines).encode()


class _Ndjson:
    """The layout `ndjson`."""

    def __init__(
        self, org_slug: str, group_ids: Mapping[int, str], *, has_history: bool, key_fingerprint: str = ""
    ) -> None:
        self._org_slug, self._group_ids, self._has_history = org_slug, group_ids, has_history
        self._key_fingerprint = key_fingerprint

    def head(self) -> bytes:
        return b""

    def lines(self, states: Sequence[State], labels: Mapping[str, str]) -> bytes:
        return _NDJSON.encode_lines([self._line(state, labels) for state in states])

    def _line(self, state: State, labels: Mapping[str, str]) -> _Line:
        digest = digest_of(state.address)
        fields = (
            *(
                state.id,
                self._org_slug,
                state.address if digest is None else None,
                digest,
                None if digest is None else self._key_fingerprint,
                self._group_ids.get(state.group_no),
                state.status,
                state.reason,
            ),
            *(format_ms(state.occurred_ms), format_ms(state.recorded_ms), state.source, state.seq),
        )
        if not self._has_history:
            return _Line(*fields)
        label = labels.get(state.actor_id or "")
        return _HistoryLine(*fields, state.submission_id, state.actor_kind, state.actor_id, label)


LAYOUTS: dict[str, Callable[..., Layout]] = {CSV: _Csv, NDJSON: _Ndjson}
CONTENT_TYPES = {CSV: "text/csv; charset=utf-8; header=present", NDJSON: "application/x-ndjson"}


@lru_cache(maxsize=4096)
def _guarded_cell(text: str | None) -> str:
    return "" if text is None else _quoted(guarded(text))


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"' if _SPECIAL.search(text) else text
