"""Submit opt-outs and resubscriptions, batch by batch. Source: docs/interface.md section D6 (POST)."""

from collections.abc import Callable, Sequence
from email.utils import parsedate_to_datetime
from functools import partial
from typing import Any

import msgspec

from stoplist_client.errors import ApiError, InvalidItem, NotUnderstood, StoplistClientError
from stoplist_client.flows.acts import Encoder
from stoplist_client.flows.answers import BadItem, item_errors, not_understood, refusal, understood
from stoplist_client.flows.batches import Batch, Batches
from stoplist_client.flows.flow import Answer, Flow, Send
from stoplist_client.flows.sending import Session, call
from stoplist_client.flows.target import Target
from stoplist_client.model import ItemError, Submitted
from stoplist_client.redacted import Redacted

# The service takes opt-outs from five minutes ahead (docs/interface.md section D6); its answer was a moment later.
_FAST_S = 240.0

Progress = Callable[[Submitted], object]


class _Stored(Redacted, msgspec.Struct, frozen=True):
    """The answer to a batch."""

    submission_id: str | None
    received: int
    created: int
    updated: int
    unchanged: int
    outranked: int
    item_errors: list[BadItem] = []


_STORED = msgspec.json.Decoder(_Stored)


class Submission:
    """All items of one call on their way."""

    def __init__(
        self,
        session: Session,
        path: str,
        source: Any,
        *,
        target: Target,
        encoder: Encoder,
        untimed: Encoder,
        lenient: bool,
    ) -> None:
        """`untimed` encodes once more, without a time, what `encoder` stamped."""
        self._session, self._path = session, path
        self._encoder, self._untimed = encoder, untimed
        self._batches = Batches(source, encoder, target, most_items=session.batch_items)
        self._prefer = "handling=lenient, return=minimal" if lenient else "return=minimal"
        self._sums = _Sums()
        self._may_be_fast = True

    def flow(self, on_progress: Progress | None) -> Flow[Submitted]:
        """What became of all items. An error has in `submitted` what became of those before it."""
        try:
            while (batch := (yield from self._batches.further())) is not None:
                yield from self._submit(batch)
                if on_progress is not None:
                    on_progress(self._sums.now())
        except StoplistClientError as error:
            error.submitted = self._sums.now()
            raise
        return self._sums.now()

    def _submit(self, batch: Batch) -> Flow[None]:
        """This host's clock may be fast or slow, and no opt-out must be lost to that: what it stamped, and the service
        refuses or finds outranked, is sent once more without a time, and so is an act of now.
        """
        stored = yield from self._accepted(batch)
        self._sums.add(stored, _errors(stored, batch))
        bad = {bad.item_index for bad in stored.item_errors}
        refused = self._stamped(batch, sorted(bad) if self._may_be_fast else [])
        if refused.items:
            stored_again = yield from self._stored(refused)
            self._sums.accept(refused, stored_again, _errors(stored_again, refused))
        if stored.outranked:
            again = self._stamped(batch, [number for number in range(len(batch.items)) if number not in bad])
            if again.items:
                self._sums.correct(stored, again, (yield from self._stored(again)))

    def _accepted(self, batch: Batch) -> Flow[_Stored]:
        """The answer to a batch; if its only fault may be our stamp, that to the batch without it."""
        try:
            return (yield from self._stored(batch))
        except InvalidItem as error:
            bad = error.item_errors
            if not (self._may_be_fast and bad and all(self._encoder.stamps(one.item) for one in bad)):
                raise
        return (yield from self._stored(self._without_stamps(batch)))

    def _stamped(self, batch: Batch, numbers: Sequence[int]) -> Batch:
        """Of these items of the batch those that were stamped, now without a time."""
        chosen = [number for number in numbers if self._encoder.stamps(batch.items[number])]
        items = [batch.items[number] for number in chosen]
        return Batch(items, [batch.indexes[number] for number in chosen], self._untimed.encoded(items, 0))

    def _without_stamps(self, batch: Batch) -> Batch:
        untimed = self._untimed.encoded(batch.items, 0)
        pairs = zip(batch.items, batch.encoded, untimed, strict=True)
        return Batch(
            batch.items, batch.indexes, [new if self._encoder.stamps(item) else old for item, old, new in pairs]
        )

    def _stored(self, batch: Batch) -> Flow[_Stored]:
        request = Send(
            method="POST",
            url=self._path,
            headers={"Content-Type": "application/json", "Prefer": self._prefer},
            content=self._batches.body(batch.encoded),
        )
        answer = yield from call(self._session, request, refused=partial(self._refusal, batch))
        self._may_be_fast = self._is_fast(answer)
        stored = understood(answer, _STORED)
        if stored.received != len(batch.items):
            raise not_understood(answer, "The answer does not count the items that were sent.")
        return stored

    def _refusal(self, batch: Batch, answer: Answer) -> ApiError | NotUnderstood:
        self._may_be_fast = self._is_fast(answer)
        return refusal(answer, items=batch.items, indexes=batch.indexes)

    def _is_fast(self, answer: Answer) -> bool:
        """Whether what this host stamps may lie in the future there; it may where the answer does not tell."""
        try:
            there = parsedate_to_datetime(answer.headers["date"]).timestamp()
        except (KeyError, ValueError, OverflowError):
            return True
        return self._session.environment.now_s() - there > _FAST_S


def _errors(stored: _Stored, batch: Batch) -> tuple[ItemError, ...]:
    return item_errors(stored.item_errors, batch.items, batch.indexes)


class _Sums:
    """What became of the items so far, each counted once."""

    def __init__(self) -> None:
        self._counts = dict.fromkeys(("batches", "received", "created", "updated", "unchanged", "outranked"), 0)
        self._ids: list[str] = []
        self._errors: list[ItemError] = []
        self._first_error = 0  # of the last batch

    def now(self) -> Submitted:
        return Submitted(**self._counts, submission_ids=tuple(self._ids), item_errors=tuple(self._errors))

    def add(self, stored: _Stored, errors: tuple[ItemError, ...]) -> None:
        self._first_error = len(self._errors)
        self._errors += errors
        self._add(
            stored,
            batches=1,
            received=stored.received,
            created=stored.created,
            updated=stored.updated,
            unchanged=stored.unchanged,
            outranked=stored.outranked,
        )

    def accept(self, again: Batch, stored_again: _Stored, errors: tuple[ItemError, ...]) -> None:
        """Count what became of the refused that were sent `again` in place of their errors; the batch was the last."""
        were_sent = set(again.indexes)
        stay = [error for error in self._errors[self._first_error :] if error.item_index not in were_sent]
        self._errors[self._first_error :] = sorted([*stay, *errors], key=lambda error: error.item_index)
        self._add(
            stored_again,
            created=stored_again.created,
            updated=stored_again.updated,
            unchanged=stored_again.unchanged,
            outranked=stored_again.outranked,
        )

    def correct(self, stored: _Stored, again: Batch, stored_again: _Stored) -> None:
        """Count anew those of the outranked that took effect when they were sent `again`."""
        updated = min(stored_again.created + stored_again.updated, stored.outranked)
        # Where all were sent again, what was outranked and is not updated now is an address that the batch has twice.
        was_all = len(again.items) == stored.received - len(stored.item_errors)
        unchanged = stored.outranked - updated - stored_again.outranked if was_all else 0
        self._add(stored_again, updated=updated, unchanged=unchanged, outranked=-updated - unchanged)

    def _add(self, stored: _Stored, **counts: int) -> None:
        if stored.submission_id is not None:
            self._ids.append(stored.submission_id)
        for name, count in counts.items():
            self._counts[name] += count
