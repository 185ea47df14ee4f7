"""Dry run of an import: counts what it would do, and stores nothing.

Source: docs/interface.md section D12.
"""

from typing import Final

from stoplist.actor import Actor
from stoplist.lists.imports.model import ImportCounts
from stoplist.lists.imports.part_reader import PartOfFile, Pause, RejectedRow, add_counts
from stoplist.lists.imports.seen_addresses import SeenAddresses
from stoplist.organizations.target import Target
from stoplist.slicing import in_slices, yield_to_loop
from stoplist.unsubscribes.channel import Channel, feed_id
from stoplist.unsubscribes.decision import CurrentRecord
from stoplist.unsubscribes.feed import find_feed
from stoplist.unsubscribes.items import Act
from stoplist.unsubscribes.model import CREATED, RESUBSCRIBED, UNCHANGED, OptOutStores
from stoplist.unsubscribes.record_reader import FoundRecords, RecordReader
from stoplist.unsubscribes.storing import decide_batch
from stoplist.unsubscribes.validated_batch import ValidatedBatch

FIRST_BAD_ROWS: Final = 5


class ListCheck:
    """Counts what an import into one organization, channel and group would do to the records as they are now.

    While `is_exact` is false, `repeated` and `unchanged` are upper bounds, and `created` is a lower one.
    """

    def __init__(self, actor: Actor, stores: OptOutStores, channel: Channel, target: Target, group_no: int) -> None:
        self.counts = ImportCounts(repeated=0)
        self.sha256 = ""
        self.first_bad: list[RejectedRow] = []
        self._actor, self._stores, self._channel = actor, stores, channel
        self._target, self._group_no = target, group_no
        self._seen = SeenAddresses()
        # Only rows for these can have a result that depends on the rows before them.
        self._resubscribed: dict[str, CurrentRecord] = {}

    @property
    def is_exact(self) -> bool:
        """Return whether only repetitions were counted as such."""
        return self._seen.is_exact

    async def take(self, part: PartOfFile, pause: Pause = yield_to_loop) -> None:
        """Count the next rows of the file."""
        self.sha256 = part.sha256
        self.first_bad += part.rejected[: FIRST_BAD_ROWS - len(self.first_bad)]
        decided: dict[str, int] = {}
        if part.acts:
            feed = await find_feed(self._stores.database, self._target, self._channel)
            reader = RecordReader(self._stores.database, feed, self._group_no)
            try:
                reader.start(part.acts)
                found = await reader.records()
            finally:
                await reader.end()
            decided = await self._decide(part.acts, found, pause)
        self.counts = add_counts(self.counts, part.counts, decided)

    async def _decide(self, acts: list[Act], found: FoundRecords, pause: Pause) -> dict[str, int]:
        records = found.by_address
        known_acts = [act for act in acts if not found.is_unknown(act.address)]
        unknown_digests, acts = len(acts) - len(known_acts), known_acts
        addresses = {act.address for act in acts}
        new = addresses.difference(records)
        first_new = await self._add(new, pause)
        first_known = await self._add(addresses.intersection(records), pause)
        if self.counts.repeated is not None:
            self.counts.repeated += len(acts) - first_new - first_known
        for address, record in records.items():
            if record.status == RESUBSCRIBED:
                self._resubscribed.setdefault(address, record)
        hard = [act for act in acts if act.address in self._resubscribed]
        known = {act.address: self._resubscribed[act.address] for act in hard}
        decision = await decide_batch(self._batch(hard), FoundRecords(known, found.erased), pause)
        for record in known.values():
            # For the next part, these are the records as this part left them.
            record.change, record.is_touched = None, False
        counts = dict(decision.counts)
        counts[CREATED] += first_new
        counts[UNCHANGED] += len(acts) - len(hard) - first_new
        counts["erased"] = unknown_digests
        return counts

    async def _add(self, addresses: set[str], pause: Pause) -> int:
        """Return how many of the addresses had not been seen before."""
        first = 0
        async for some in in_slices(list(addresses), pause, check_every=250):
            first += self._seen.add(some)
        return first

    def _batch(self, acts: list[Act]) -> ValidatedBatch:
        number = feed_id(self._target.organization_id, self._channel)
        return ValidatedBatch(
            self._actor, number, self._group_no, None, acts, len(acts), self._stores.clock.now_ms(), "check"
        )
