"""The rules of the six operations, written again word by word from docs/interface.md sections D6 and D11.

Slow on purpose: a record keeps every state it ever had, and every question scans all of them.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable
from copy import deepcopy
from dataclasses import dataclass, field, replace

from stoplist.unsubscribes.model import PageState, Record
from tests.constants import DAY_MS

NEVER = -(10**15)
"""Earlier than any act: the latest one known where none is."""


@dataclass(frozen=True)
class NaiveItem:
    """One act as it was sent; `occurred_ms` is None if no time was sent."""

    address: str
    status: str = "unsubscribed"
    occurred_ms: int | None = None
    reason: str | None = None
    source: str | None = None

    @property
    def kept_reason(self) -> str:
        """Return the reason, or the default if none was sent."""
        return self.reason or ("consent" if self.status == "resubscribed" else "unsubscribe")


@dataclass(frozen=True)
class NaiveState:
    """A present or former state of a record."""

    seq: int
    batch: int
    sender: str
    status: str
    reason: str
    source: str | None
    occurred_ms: int
    recorded_ms: int
    latest_act_ms: int | None = None
    """The latest act known when another state followed, but for those of the batch that made that one."""


@dataclass
class NaiveRecord:
    """The record of an address and a group (None: all groups), with every state in order, the present one last."""

    address: str
    group: str | None
    states: list[NaiveState]
    latest_act_ms: int
    is_sent_again: bool = False
    latest_before_ms: int = NEVER
    """The latest act known before the present batch."""

    @property
    def now(self) -> NaiveState:
        return self.states[-1]

    def follow(self, state: NaiveState) -> None:
        """Append this state to the present one."""
        is_of_one_batch = state.batch == self.now.batch
        latest_act_ms = self.latest_act_ms if is_of_one_batch else self.latest_before_ms
        self.states[-1] = replace(self.now, latest_act_ms=latest_act_ms)
        self.states.append(state)


@dataclass(frozen=True)
class NaiveResult:
    """The result of an item; `latest_act_ms` is the later act that outranks it, if any."""

    address: str
    result: str
    status: str
    latest_act_ms: int | None = None


@dataclass
class NaiveFeed:
    """An organization's records on one channel. Batches are numbered from 1, including those that stored nothing."""

    records: list[NaiveRecord] = field(default_factory=list)
    seq: int = 0
    batches: int = 0

    def find(self, address: str, group: str | None) -> NaiveRecord | None:
        for record in self.records:
            if (record.address, record.group) == (address, group):
                return record
        return None

    def submit(
        self, sender: str, group: str | None, items: list[NaiveItem], now_ms: int
    ) -> tuple[list[NaiveResult], bool]:
        """Return the result of each item, and whether anything had to be stored."""
        self.begin_batch()
        before = deepcopy(self.records)
        results = [self._take(sender, group, item, now_ms) for item in items]
        return results, self.records != before

    def begin_batch(self) -> None:
        self.batches += 1
        for record in self.records:
            record.latest_before_ms = record.latest_act_ms

    def in_order(self) -> list[NaiveRecord]:
        """Return the records ordered by their latest change."""
        return sorted(self.records, key=lambda record: record.now.seq)

    def superseded(self) -> list[tuple[NaiveRecord, NaiveState]]:
        """Return every superseded state once, in the order of their creation."""
        pairs = [(record, state) for record in self.records for state in record.states[:-1]]
        return sorted(pairs, key=lambda pair: pair[1].seq)

    def changes(self) -> Counter[tuple[int, str, str]]:
        """Count by day, status and reason how often records took that status."""
        states = [state for record in self.records for state in record.states]
        return Counter((state.recorded_ms // DAY_MS, state.status, state.reason) for state in states)

    def standing(self) -> Counter[tuple[str, str]]:
        """Count by status and reason how many records show them."""
        return Counter((record.now.status, record.now.reason) for record in self.records)

    def _take(self, sender: str, group: str | None, item: NaiveItem, now_ms: int) -> NaiveResult:
        record = self.find(item.address, group)
        if record is None:
            occurred_ms = now_ms if item.occurred_ms is None else item.occurred_ms
            state = self._state(sender, item, occurred_ms, now_ms)
            self.records.append(NaiveRecord(item.address, group, [state], occurred_ms))
            return NaiveResult(item.address, "created", item.status)
        occurred_ms = self._occurred(record, item, now_ms)
        if self._flips(record, item, occurred_ms):
            record.follow(self._state(sender, item, occurred_ms, now_ms))
            record.latest_act_ms = occurred_ms
            record.is_sent_again = False
            return NaiveResult(item.address, "updated", item.status)
        if not self._is_repetition(record, sender, item, occurred_ms):
            record.is_sent_again = True
        if record.now.status == item.status:
            record.latest_act_ms = max(record.latest_act_ms, occurred_ms)
            return NaiveResult(item.address, "unchanged", item.status)
        return NaiveResult(item.address, "outranked", record.now.status, record.latest_act_ms)

    def _occurred(self, record: NaiveRecord, item: NaiveItem, now_ms: int) -> int:
        """Return the item's time; by default now, for an opt-out at least the latest known act."""
        if item.occurred_ms is not None:
            return item.occurred_ms
        return max(now_ms, record.latest_act_ms)

    def _flips(self, record: NaiveRecord, item: NaiveItem, occurred_ms: int) -> bool:
        """Return whether the act is later than the latest known act; on a tie the opt-out wins."""
        if item.status == record.now.status:
            return False
        if occurred_ms == record.latest_act_ms:
            return item.status == "unsubscribed"
        return occurred_ms > record.latest_act_ms

    def _is_repetition(self, record: NaiveRecord, sender: str, item: NaiveItem, occurred_ms: int) -> bool:
        """Return whether this does not count as sending again: the same act by the same sender, or the same batch."""
        if record.now.batch == self.batches:
            return True
        return (sender, item.status, occurred_ms) == (record.now.sender, record.now.status, record.now.occurred_ms)

    def _state(self, sender: str, item: NaiveItem, occurred_ms: int, now_ms: int) -> NaiveState:
        self.seq += 1
        return NaiveState(
            seq=self.seq,
            batch=self.batches,
            sender=sender,
            status=item.status,
            reason=item.kept_reason,
            source=item.source,
            occurred_ms=occurred_ms,
            recorded_ms=now_ms,
        )


def naive_state(records: Iterable[Record], seq: int) -> PageState:
    """Return the state of a feed with these records, by the letter of docs/interface.md section D14."""
    hashes = [naive_hash([record.id, record.group_id, record.address, record.status, record.seq]) for record in records]
    return PageState(seq=seq, records=len(hashes), digest=f"{sum(hashes) % 2**256:064x}")


def naive_hash(fields: list[str | int | None]) -> int:
    """Return the hash of a record's `id`, `group_id`, `address`, `status` and `seq`, as a number."""
    # For these values, this is the form of RFC 8785.
    text = json.dumps(fields, separators=(",", ":"), ensure_ascii=False)
    return int(hashlib.sha256(text.encode()).hexdigest(), 16)
