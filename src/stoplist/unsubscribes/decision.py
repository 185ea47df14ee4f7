"""What a batch changes, decided in memory: nothing here reads or writes a store.

Source: docs/interface.md section D6; what makes a record *confirmed* is section D11, Reversing.
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
    """A record as the batch finds it, and then as the batch leaves it. The first fields are those read from the store.

    `submission_id` tells who sent the present state; `change` is the place of the one that made it among the batch's.
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
    """A new state of a record, in the order in which the statements take it."""

    address: str
    id: str
    status: Status
    reason: str
    source: str | None
    occurred_ms: int
    latest_act_ms: int
    is_confirmed: int = 0


class BatchDecision:
    """The acts of a batch taken one after the other, against the records `known` by address, which it changes.

    `sender` is as `sender_of` says it; `most` is how many acts there can be. `changes` stand in the order of their
    numbers, `counts` are by result.
    """

    def __init__(self, known: dict[str, CurrentRecord], *, now_ms: int, sender: str, most: int) -> None:
        self._known, self._now_ms, self._mine = known, now_ms, ids.submission_mark(sender)
        self._new_ids = _record_ids(min(most, _IDS_AT_ONCE))
        self.results: list[ItemResult] = []
        self.changes: list[Change] = []
        self.superseded: set[int] = set()
        """The places of changes that a later item of the same batch replaced."""
        self.counts = dict.fromkeys((CREATED, UPDATED, UNCHANGED, OUTRANKED), 0)
        self.left: Counter[tuple[str, str]] = Counter()
        """How many records that the store holds left a (status, reason)."""
        self.updated: list[str] = []
        """The addresses of records that the store holds in another state."""
        self._touched: list[CurrentRecord] = []

    def take(self, act: Act) -> None:
        """Decide one act."""
        standing = self._known.get(act.address)
        if standing is None:
            self._create(act)
            return
        occurred_ms = act.occurred_ms
        if occurred_ms is None:
            occurred_ms = time_of_unstated(now_ms=self._now_ms, latest_act_ms=standing.latest_act_ms)
        if later_act_wins(standing.status, standing.latest_act_ms, act.status, occurred_ms):
            self._update(standing, act, occurred_ms)
        else:
            self._keep(standing, act, occurred_ms)

    @property
    def touched(self) -> list[CurrentRecord]:
        """The records that keep their state, but not their latest act or whether they are confirmed."""
        return [standing for standing in self._touched if standing.change is None]

    @property
    def stores_something(self) -> bool:
        """Whether anything has to be written."""
        return bool(self.changes or self._touched)

    def _create(self, act: Act) -> None:
        occurred_ms = self._now_ms if act.occurred_ms is None else act.occurred_ms
        standing = CurrentRecord(
            act.address, next(self._new_ids), act.status, act.reason, occurred_ms, occurred_ms, 0, self._mine
        )
        self._known[act.address] = standing
        self._change(standing, act, CREATED)

    def _update(self, standing: CurrentRecord, act: Act, occurred_ms: int) -> None:
        if standing.change is None:
            self.updated.append(standing.address)
            self.left[standing.status, standing.reason] += 1
        else:
            self.superseded.add(standing.change)
        standing.status, standing.reason = act.status, act.reason
        standing.occurred_ms = standing.latest_act_ms = occurred_ms
        standing.is_confirmed, standing.submission_id = 0, self._mine
        self._change(standing, act, UPDATED)

    def _change(self, standing: CurrentRecord, act: Act, result: Result) -> None:
        standing.change = len(self.changes)
        at_ms = standing.occurred_ms
        self.changes.append(Change(act.address, standing.id, act.status, act.reason, act.source, at_ms, at_ms))
        self._answer(act, standing, result)

    def _keep(self, standing: CurrentRecord, act: Act, occurred_ms: int) -> None:
        is_same = standing.status == act.status
        latest_act_ms = standing.latest_act_ms
        if is_same and (latest_act_ms is None or occurred_ms > latest_act_ms):
            standing.latest_act_ms = occurred_ms
            self._touch(standing)
        is_repetition = (
            is_same and occurred_ms == standing.occurred_ms and standing.submission_id.startswith(self._mine)
        )
        # Sent again *since*: what came with the very batch that made the present state is no later word.
        if standing.change is None and not is_repetition and not standing.is_confirmed:
            standing.is_confirmed = 1
            self._touch(standing)
        self._answer(act, standing, UNCHANGED if is_same else OUTRANKED)

    def _touch(self, standing: CurrentRecord) -> None:
        if standing.change is not None:
            change = self.changes[standing.change]
            change.latest_act_ms, change.is_confirmed = standing.latest_act_ms or 0, standing.is_confirmed
        elif not standing.is_touched:
            standing.is_touched = True
            self._touched.append(standing)

    def _answer(self, act: Act, standing: CurrentRecord, result: Result) -> None:
        self.counts[result] += 1
        latest_act_at: str | UnsetType = UNSET
        if result == OUTRANKED and standing.latest_act_ms is not None:
            latest_act_at = rfc3339.format_ms(standing.latest_act_ms)
        self.results.append(
            ItemResult(act.item_index, standing.id, act.address, result, standing.status, latest_act_at)
        )


def _record_ids(at_once: int) -> Iterator[str]:
    while True:
        yield from ids.new_ids(ids.RECORD_ID, at_once)
