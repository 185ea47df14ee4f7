"""Erasure, word by word from docs/interface.md section D13, on top of the rules of sections D6 and D11.

The model knows every address: `erased` says which records the product must know by their digest alone.
"""

from dataclasses import dataclass, field, replace

from tests.records.naive_reversal import ReversibleFeed
from tests.unsubscribes.naive import NaiveItem, NaiveRecord, NaiveResult

Key = tuple[str, str | None]


@dataclass
class ErasableFeed(ReversibleFeed):
    """The naive feed whose persons can be erased. Erasing is no batch: the state that stands only gets a new number."""

    erased: set[Key] = field(default_factory=set)
    returned: set[tuple[Key, int]] = field(default_factory=set)
    """The records that a batch brought back, and the batch."""

    def erase(self, address: str, now_ms: int) -> int:
        """Erase the person; return how many records were erased."""
        records = [one for one in self.in_order() if one.address == address and self._key(one) not in self.erased]
        for record in records:
            self.seq += 1
            record.states[-1] = replace(record.now, seq=self.seq, recorded_ms=now_ms)
            self._forget(record)
        return len(records)

    def is_known(self, address: str) -> bool:
        """Return whether the person was erased, in any group."""
        return any(key[0] == address for key in self.erased)

    def _take(self, sender: str, group: str | None, item: NaiveItem, now_ms: int) -> NaiveResult:
        key, was_known = (item.address, group), self.is_known(item.address)
        is_new = self.find(item.address, group) is None
        is_erased = key in self.erased or (is_new and was_known)
        if item.status == "unsubscribed" and is_erased:
            item = replace(item, source=None)
        result = super()._take(sender, group, item, now_ms)
        if is_erased and result.result in ("created", "updated"):
            if item.status == "resubscribed":
                self.erased.discard(key)
                self.returned.add((key, self.batches))
            else:
                self.erased.add(key)
        return result

    def _take_back(self, record: NaiveRecord, batch: int, sender: str, now_ms: int) -> None:
        super()._take_back(record, batch, sender, now_ms)
        if (self._key(record), batch) in self.returned or self._key(record) in self.erased:
            self._forget(record)

    def _forget(self, record: NaiveRecord) -> None:
        self.erased.add(self._key(record))
        record.states = [replace(state, source=None) for state in record.states]

    def _key(self, record: NaiveRecord) -> Key:
        return record.address, record.group
