"""The reversal of a submission, word by word from docs/interface.md section D11, on top of the rules of section D6."""

from dataclasses import dataclass, field

from stoplist.records.reversal_plan import Reversal
from tests.unsubscribes.naive import NEVER, NaiveFeed, NaiveRecord, NaiveState


def counts_of(found: Reversal) -> tuple[int, int, int, int]:
    """Return the counts of a reversal."""
    return found.restored, found.corrected, found.superseded, found.confirmed


@dataclass(frozen=True)
class NaiveLeftOut:
    """A record that is not reversed, and the last state that the submission gave it."""

    record: NaiveRecord
    state: NaiveState
    why: str


@dataclass
class NaiveReversal:
    """The outcome for each record that the submission created or updated."""

    restored: list[NaiveRecord] = field(default_factory=list)
    corrected: list[NaiveRecord] = field(default_factory=list)
    left_out: list[NaiveLeftOut] = field(default_factory=list)
    taken_back: list[NaiveRecord] = field(default_factory=list)

    def number(self, why: str) -> int:
        """Return how many records are left out for this reason."""
        return sum(each.why == why for each in self.left_out)

    @property
    def counts(self) -> tuple[int, int, int, int]:
        return len(self.restored), len(self.corrected), self.number("superseded"), self.number("confirmed")


@dataclass
class ReversibleFeed(NaiveFeed):
    """The naive feed with batches that can be reversed. A reversal is a batch too; its target is recorded."""

    reversals: list[tuple[int, int]] = field(default_factory=list)

    def would_reverse(self, batch: int) -> NaiveReversal:
        """Return what a reversal of this batch would do now."""
        found = NaiveReversal()
        for record in sorted(self.records, key=lambda each: each.now.seq):
            own = [state for state in record.states if state.batch == batch]
            if not own:
                continue
            after = record.states[record.states.index(own[-1]) + 1 :]
            if after and (batch, after[0].batch) in self.reversals:
                found.taken_back.append(record)
            elif after:
                found.left_out.append(NaiveLeftOut(record, own[-1], "superseded"))
            elif record.is_sent_again:
                found.left_out.append(NaiveLeftOut(record, own[-1], "confirmed"))
            elif self._before(record, batch) is None:
                found.corrected.append(record)
            else:
                found.restored.append(record)
        found.left_out.sort(key=lambda each: each.state.seq)
        return found

    def reverse(self, batch: int, sender: str, now_ms: int) -> NaiveReversal:
        """Reverse the batch, if anything of it is left."""
        found = self.would_reverse(batch)
        back = sorted(found.restored + found.corrected, key=lambda each: each.now.seq)
        if back:
            self.begin_batch()
            self.reversals.append((batch, self.batches))
        for record in back:
            self._take_back(record, batch, sender, now_ms)
        return found

    def _take_back(self, record: NaiveRecord, batch: int, sender: str, now_ms: int) -> None:
        before = self._before(record, batch)
        self.seq += 1
        record.follow(
            NaiveState(
                seq=self.seq,
                batch=self.batches,
                sender=sender,
                status=before.status if before else "resubscribed",
                reason=before.reason if before else "correction",
                source=before.source if before else None,
                occurred_ms=before.occurred_ms if before else now_ms,
                recorded_ms=now_ms,
            )
        )
        # A correction is nobody's act, so there is no latest act: any opt-out still wins.
        if before is None or before.reason == "correction":
            record.latest_act_ms = NEVER
        elif before.status == "unsubscribed":
            record.latest_act_ms = max(before.occurred_ms, before.latest_act_ms or NEVER)
        else:
            record.latest_act_ms = before.occurred_ms
        record.is_sent_again = False

    def _before(self, record: NaiveRecord, batch: int) -> NaiveState | None:
        """Return the last state made by another batch before this one."""
        others = [state for state in record.states if state.batch != batch]
        return others[-1] if others else None
