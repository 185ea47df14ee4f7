"""Decide in memory what a batch changes. Nothing here reads or writes a store.

Source: docs/interface.md section D6; when a record is *confirmed*: section D11, Reversing.
"""

from collections import Counter
from collections.abc import Iterator

import msgspec
from msgspec import UNSET, UnsetType

from stoplist import ids, rfc3339
from stoplist.unsubscribes.items import Act
from stoplist.unsubscribes.model import CREATED, OUTRANKED, UNCHANGED, UPDATED, ItemResult, Result, Status
from stoplist.unsubscribes.precedence import later_act_wins, time_of_unstated

_IDS_AT_ONCE = 500


class CurrentRecord(msgspec.Struct, array_like=True, gc=False):
    """A record as the batch finds it, and then as the batch leaves it. The first fields are read from the store.

    `submission_id` names the submission that made the present state; `change` is the index of the change of this batch
    that made it, if any.
    """

    address: str
    id: str
    status: Status
    reason: str
    occurred_ms: int
    latest_act_ms: int | None
    is_confirmed: int
    submission_id: str
    change: int | None = None
    is_touched: bool = False


class Change(msgspec.Struct, array_like=True, gc=False):
    """A new state of a record. The fields are in the order in which the SQL statements read them."""

    address: str
    id: str
    status: Status
    reason: str
    source: str | None
    occurred_ms: int
    latest_act_ms: int
    is_confirmed: int = 0


class BatchDecision:
    """Decides the acts of a batch one after the other against `records` (by address), which it updates.

    `sender` is the `sender_key` of the actor; `max_acts` is the greatest possible number of acts. `changes` are in the
    order of their numbers; `counts` are by result.
    """

    def __init__(self, records: dict[str, CurrentRecord], *, now_ms: int, sender: str, max_acts: int) -> None:
        self._records, self._now_ms, self._sender_mark = records, now_ms, ids.submission_mark(sender)
        self._new_ids = _record_ids(min(max_acts, _IDS_AT_ONCE))
        self.results: list[ItemResult] = []
        self.changes: list[Change] = []
        self.superseded: set[int] = set()
        """Indexes of the changes that a later item of the same batch replaced."""
        self.counts = dict.fromkeys((CREATED, UPDATED, UNCHANGED, OUTRANKED), 0)
        self.left_counts: Counter[tuple[str, str]] = Counter()
        """The number of stored records that lost a (status, reason)."""
        self.updated: list[str] = []
        """The addresses of the stored records whose state changed."""
        self._touched: list[CurrentRecord] = []

    def take(self, act: Act) -> None:
        """Decide one act."""
        current = self._records.get(act.address)
        if current is None:
            self._create(act)
            return
        occurred_ms = act.occurred_ms
        if occurred_ms is None:
            occurred_ms = time_of_unstated(now_ms=self._now_ms, latest_act_ms=current.latest_act_ms)
        if later_act_wins(current.status, current.latest_act_ms, act.status, occurred_ms):
            self._update(current, act, occurred_ms)
        else:
            self._keep(current, act, occurred_ms)

    @property
    def touched(self) -> list[CurrentRecord]:
        """Return the records that keep their state, but not their latest act or whether they are confirmed."""
        return [current for current in self._touched if current.change is None]

    @property
    def has_writes(self) -> bool:
        return bool(self.changes or self._touched)

    def _create(self, act: Act) -> None:
        occurred_ms = self._now_ms if act.occurred_ms is None else act.occurred_ms
        current = CurrentRecord(
            act.address, next(self._new_ids), act.status, act.reason, occurred_ms, occurred_ms, 0, self._sender_mark
        )
        self._records[act.address] = current
        self._record_change(current, act, CREATED)

    def _update(self, current: CurrentRecord, act: Act, occurred_ms: int) -> None:
        if current.change is None:
            self.updated.append(current.address)
            self.left_counts[current.status, current.reason] += 1
        else:
            self.superseded.add(current.change)
        current.status, current.reason = act.status, act.reason
        current.occurred_ms = current.latest_act_ms = occurred_ms
        current.is_confirmed, current.submission_id = 0, self._sender_mark
        self._record_change(current, act, UPDATED)

    def _record_change(self, current: CurrentRecord, act: Act, result: Result) -> None:
        current.change = len(self.changes)
        at_ms = current.occurred_ms
        self.changes.append(Change(act.address, current.id, act.status, act.reason, act.source, at_ms, at_ms))
        self._add_result(act, current, result)

    def _keep(self, current: CurrentRecord, act: Act, occurred_ms: int) -> None:
        is_same = current.status == act.status
        latest_act_ms = current.latest_act_ms
        if is_same and (latest_act_ms is None or occurred_ms > latest_act_ms):
            current.latest_act_ms = occurred_ms
            self._touch(current)
        is_repetition = (
            is_same and occurred_ms == current.occurred_ms and current.submission_id.startswith(self._sender_mark)
        )
        # Only a later batch confirms a record, not another item of the batch that made its present state.
        if current.change is None and not is_repetition and not current.is_confirmed:
            current.is_confirmed = 1
            self._touch(current)
        self._add_result(act, current, UNCHANGED if is_same else OUTRANKED)

    def _touch(self, current: CurrentRecord) -> None:
        if current.change is not None:
            change = self.changes[current.change]
            change.latest_act_ms, change.is_confirmed = current.latest_act_ms or 0, current.is_confirmed
        elif not current.is_touched:
            current.is_touched = True
            self._touched.append(current)

    def _add_result(self, act: Act, current: CurrentRecord, result: Result) -> None:
        self.counts[result] += 1
        latest_act_at: str | UnsetType = UNSET
        if result == OUTRANKED and current.latest_act_ms is not None:
            latest_act_at = rfc3339.format_ms(current.latest_act_ms)
        self.results.append(ItemResult(act.item_index, current.id, act.address, result, current.status, latest_act_at))


def _record_ids(at_once: int) -> Iterator[str]:
    while True:
        yield from ids.new_ids(ids.RECORD_ID, at_once)
