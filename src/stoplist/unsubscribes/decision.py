"""Decide in memory what a batch changes. Nothing here reads or writes a store.

Source: docs/interface.md section D6; when a record is *confirmed*: section D11, Reversing.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import msgspec
from msgspec import UNSET, UnsetType

from stoplist import ids, rfc3339
from stoplist.unsubscribes.erased import digest_of, stated_address
from stoplist.unsubscribes.items import Act
from stoplist.unsubscribes.model import (
    CREATED,
    OUTRANKED,
    RESUBSCRIBED,
    UNCHANGED,
    UNSUBSCRIBED,
    UPDATED,
    ItemResult,
    Result,
    Status,
)
from stoplist.unsubscribes.precedence import later_act_wins, time_of_unstated

_IDS_AT_ONCE = 500

CONFIRMED = 1
"""Somebody sent the record again since its last change."""
REPEATED_BY_LINK = 2
"""Only the link key that made the last change sent the record again: no confirmation where its acts are taken back."""

_CLICKED_AGAIN_MS = 1000


class CurrentRecord(msgspec.Struct, array_like=True, gc=False):
    """A record as the batch finds it, and then as the batch leaves it. The first fields are read from the store.

    `submission_id` names the submission that made the present state; `change` is the index of the change of this batch
    that made it, if any. `address` is its erased form if the person was erased.
    """

    address: str
    id: str
    status: Status
    reason: str
    occurred_ms: int
    latest_act_ms: int | None
    is_confirmed: int
    submission_id: str
    seq: int = 0
    change: int | None = None
    is_touched: bool = False
    has_later_act: bool = False
    is_stored: bool = True


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


class ReturnedAddress(NamedTuple):
    """A record whose address a resubscription brought back, and the index of that change.

    `is_stored`: the record was stored under its erased form, from which it must be renamed.
    """

    record_id: str
    erased_form: str
    address: str
    change: int
    is_stored: bool


def was_just_clicked(record: CurrentRecord, *, now_ms: int, sender_mark: str) -> bool:
    """Return whether a person has clicked this very link already, or a mailbox provider for them: nothing is stored.

    `sender_mark` is that of the link key.
    """
    is_recent = record.latest_act_ms is not None and record.latest_act_ms >= now_ms - _CLICKED_AGAIN_MS
    is_own = record.submission_id.startswith(sender_mark)
    return record.status == UNSUBSCRIBED and is_recent and (is_own or bool(record.is_confirmed))


class BatchDecision:
    """Decides the acts of a batch one after the other against `records` (by address of the acts), which it updates.

    `erased` has the erased form of each address with an erased record in the feed: opt-outs are stored under that form.

    `sender` identifies who sends the acts (`sender_key`); `max_acts` is the greatest possible number of acts. `changes`
    are in the order of their numbers; `counts` are by result. With `is_import` there are no `results`, and the sender,
    an import, confirms no record of its own: its parts count as one batch. With `is_link` the sender is a link key.
    """

    def __init__(
        self,
        records: dict[str, CurrentRecord],
        *,
        now_ms: int,
        sender: str,
        max_acts: int,
        is_import: bool = False,
        is_link: bool = False,
        erased: Mapping[str, str] | None = None,
    ) -> None:
        self._erased = erased or {}
        self._records, self._now_ms, self._sender_mark = records, now_ms, ids.submission_mark(sender)
        self._is_import, self._is_link = is_import, is_link
        self._new_ids = _record_ids(min(max_acts, _IDS_AT_ONCE))
        self.results: list[ItemResult] = []
        self.changes: list[Change] = []
        self.superseded: set[int] = set()
        """Indexes of the changes that a later item of the same batch replaced."""
        self.counts = dict.fromkeys((CREATED, UPDATED, UNCHANGED, OUTRANKED), 0)
        self.unknown_digests = 0
        """The number of rows by a digest that the feed does not know: they are left out."""
        self.left_counts: Counter[tuple[str, str]] = Counter()
        """The number of stored records that lost a (status, reason)."""
        self.updated: list[CurrentRecord] = []
        """The stored records whose state changed."""
        self.replaced: list[tuple[str, str, Status, int]] = []
        """The `id`, address (or digest), status and number of these records before that."""
        self.returned: list[ReturnedAddress] = []
        self._touched: list[CurrentRecord] = []
        self._erased_changes: dict[str, list[Change]] = {}

    def take(self, act: Act) -> None:
        """Decide one act."""
        current = self._records.get(act.address)
        if current is None:
            self._create(act)
            return
        occurred_ms = act.occurred_ms
        if occurred_ms is None:
            occurred_ms = time_of_unstated(now_ms=self._now_ms, latest_act_ms=current.latest_act_ms)
        if self._is_import and current.status == act.status and current.change is None:
            self._repeat(current, occurred_ms)
        elif later_act_wins(current.status, current.latest_act_ms, act.status, occurred_ms):
            self._update(current, act, occurred_ms)
        else:
            self._keep(current, act, occurred_ms)

    @property
    def touched(self) -> list[CurrentRecord]:
        """Return the records that keep their state, but not their latest act or whether they are confirmed."""
        return [current for current in self._touched if current.change is None]

    @property
    def confirmed_by_import(self) -> list[CurrentRecord]:
        """Return those of `touched` that an import has confirmed, and nothing more: they need not be written."""
        return [current for current in self.touched if self._is_import and not current.has_later_act]

    @property
    def has_writes(self) -> bool:
        return bool(self.changes or self._touched)

    @property
    def meets_erased(self) -> bool:
        """Return whether any of the acts is of a person who was erased."""
        return bool(self._erased)

    def is_of_erased(self, address: str) -> bool:
        """Return whether the address is that of a person who was erased."""
        return address in self._erased

    def day_counts(self) -> dict[int, tuple[object, ...]]:
        """Return rows for `count_changes`: status, reason, number of changes, growth of the records showing it."""
        counts: dict[tuple[str, str], list[int]] = {}
        for at, change in enumerate(self.changes):
            kind_counts = counts.setdefault((change.status, change.reason), [0, 0])
            kind_counts[0] += 1
            kind_counts[1] += at not in self.superseded
        for kind, count in self.left_counts.items():
            counts.setdefault(kind, [0, 0])[1] -= count
        return {at: (*kind, *counts[kind]) for at, kind in enumerate(sorted(counts))}

    def _create(self, act: Act) -> None:
        if self._is_import and act.address not in self._erased and digest_of(act.address) is not None:
            self.unknown_digests += 1
            return
        occurred_ms = self._now_ms if act.occurred_ms is None else act.occurred_ms
        current = CurrentRecord(
            act.address, next(self._new_ids), act.status, act.reason, occurred_ms, occurred_ms, 0, self._sender_mark
        )
        if self._erased and act.address in self._erased:
            current.is_stored = False
            current.address = self._erased[act.address]
            if act.status == RESUBSCRIBED:
                self._bring_back(current, act.address)
        self._records[act.address] = current
        self._record_change(current, act, CREATED)

    def _update(self, current: CurrentRecord, act: Act, occurred_ms: int) -> None:
        if current.change is None:
            self.updated.append(current)
            address = stated_address(current.address) if self._erased else current.address
            self.replaced.append((current.id, address, current.status, current.seq))
            self.left_counts[current.status, current.reason] += 1
        else:
            self.superseded.add(current.change)
        if self._erased and act.status == RESUBSCRIBED and digest_of(current.address) is not None:
            self._bring_back(current, act.address)
        current.status, current.reason = act.status, act.reason
        current.occurred_ms = current.latest_act_ms = occurred_ms
        current.is_confirmed, current.submission_id = 0, self._sender_mark
        self._record_change(current, act, UPDATED)

    def _record_change(self, current: CurrentRecord, act: Act, result: Result) -> None:
        current.change = len(self.changes)
        at_ms = current.occurred_ms
        change = Change(current.address, current.id, act.status, act.reason, act.source, at_ms, at_ms)
        if self._erased and digest_of(current.address) is not None:
            change.source = None
            self._erased_changes.setdefault(current.id, []).append(change)
        self.changes.append(change)
        self._add_result(act, current, result)

    def _repeat(self, current: CurrentRecord, occurred_ms: int) -> None:
        """Do what `_keep` does for a row of an import and a stored record that has its status, without its calls.

        Most rows of a list that is imported again are such rows.
        """
        latest_act_ms, is_touched = current.latest_act_ms, False
        if latest_act_ms is None or occurred_ms > latest_act_ms:
            current.latest_act_ms = occurred_ms
            current.has_later_act = is_touched = True
        if current.is_confirmed != CONFIRMED and not current.submission_id.startswith(self._sender_mark):
            current.is_confirmed, is_touched = CONFIRMED, True
        if is_touched and not current.is_touched:
            current.is_touched = True
            self._touched.append(current)
        self.counts[UNCHANGED] += 1

    def _bring_back(self, current: CurrentRecord, address: str) -> None:
        """Give the record its address again, and its states that this batch made so far."""
        form = current.address
        if address == form:  # imported by its digest: nobody knows the address
            return
        self.returned.append(ReturnedAddress(current.id, form, address, len(self.changes), current.is_stored))
        for change in self._erased_changes.pop(current.id, ()):
            change.address = address
        current.address = address

    def _keep(self, current: CurrentRecord, act: Act, occurred_ms: int) -> None:
        is_same = current.status == act.status
        is_own = current.submission_id.startswith(self._sender_mark)
        if self._is_link and is_same and was_just_clicked(current, now_ms=self._now_ms, sender_mark=self._sender_mark):
            self._add_result(act, current, UNCHANGED)
            return
        latest_act_ms = current.latest_act_ms
        if is_same and (latest_act_ms is None or occurred_ms > latest_act_ms):
            current.latest_act_ms = occurred_ms
            current.has_later_act = True
            self._touch(current)
        is_repetition = is_same and occurred_ms == current.occurred_ms and is_own
        confirmed = REPEATED_BY_LINK if self._is_link and is_own else CONFIRMED
        # Only a later batch confirms a record, not another item of the batch that made its present state.
        if current.change is None and not is_repetition and current.is_confirmed not in (CONFIRMED, confirmed):
            current.is_confirmed = confirmed
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
        if self._is_import:
            return
        latest_act_at: str | UnsetType = UNSET
        if result == OUTRANKED and current.latest_act_ms is not None:
            latest_act_at = rfc3339.format_ms(current.latest_act_ms)
        address_digest: str | UnsetType = UNSET
        if self._erased and (digest := digest_of(current.address)) is not None:
            address_digest = digest
        self.results.append(
            ItemResult(act.item_index, current.id, act.address, result, current.status, latest_act_at, address_digest)
        )


def _record_ids(at_once: int) -> Iterator[str]:
    while True:
        yield from ids.new_ids(ids.RECORD_ID, at_once)
