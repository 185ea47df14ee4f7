"""Submits opt-outs and resubscriptions, batch by batch. Source: docs/interface.md section D6 (POST)."""

from collections.abc import Callable, Sequence
from email.utils import parsedate_to_datetime
from functools import partial
from typing import Any

import msgspec

from stoplist_client.errors import ApiError, InvalidItem, NotUnderstood, StoplistClientError
from stoplist_client.flows.acts import Encoder
from stoplist_client.flows.answers import BadItem, decode_answer, item_errors, not_understood, refusal
from stoplist_client.flows.batches import Batch, Batches
from stoplist_client.flows.flow import Answer, Flow, Send
from stoplist_client.flows.sending import Session, call
from stoplist_client.flows.target import Target
from stoplist_client.model import ItemError, Submitted
from stoplist_client.redacted import Redacted

# The service accepts times up to five minutes ahead (docs/interface.md section D6). A margin covers the answer's delay.
_CLOCK_FAST_S = 240.0

Progress = Callable[[Submitted], object]


class _BatchResult(Redacted, msgspec.Struct, frozen=True):
    """The body of the answer to a batch."""

    submission_id: str | None
    received: int
    created: int
    updated: int
    unchanged: int
    outranked: int
    item_errors: list[BadItem] = []


_BATCH_RESULT = msgspec.json.Decoder(_BatchResult)


class Submission:
    """Submits the items of one call."""

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
        """`untimed` encodes items without a time, to resend those that `encoder` stamped."""
        self._session, self._path = session, path
        self._encoder, self._untimed = encoder, untimed
        self._batches = Batches(source, encoder, target, max_items=session.batch_items)
        self._prefer = "handling=lenient, return=minimal" if lenient else "return=minimal"
        self._totals = _Totals()
        self._clock_may_be_fast = True

    def flow(self, on_progress: Progress | None) -> Flow[Submitted]:
        """Submit all items, and return the totals. The `submitted` of an error has the totals of earlier batches."""
        try:
            while (batch := (yield from self._batches.next_batch())) is not None:
                yield from self._submit(batch)
                if on_progress is not None:
                    on_progress(self._totals.snapshot())
        except StoplistClientError as error:
            error.submitted = self._totals.snapshot()
            raise
        return self._totals.snapshot()

    def _submit(self, batch: Batch) -> Flow[None]:
        """Submit a batch. Items that this host stamped, and that are refused or outranked, are resent without a time.

        This host's clock may be fast or slow, and no opt-out may be lost because of that. Without a time, the service
        counts the act as of now.
        """
        result = yield from self._submit_strictly(batch)
        self._totals.add(result, _errors(result, batch))
        refused_indexes = {error.item_index for error in result.item_errors}
        resent = self._resend_batch(batch, sorted(refused_indexes) if self._clock_may_be_fast else [])
        if resent.items:
            resent_result = yield from self._post(resent)
            self._totals.count_resent(resent, resent_result, _errors(resent_result, resent))
        if result.outranked:
            resent = self._resend_batch(
                batch, [number for number in range(len(batch.items)) if number not in refused_indexes]
            )
            if resent.items:
                self._totals.recount_outranked(result, resent, (yield from self._post(resent)))

    def _submit_strictly(self, batch: Batch) -> Flow[_BatchResult]:
        """Post a batch; if all refused items have our stamp, and the clock may be fast, post it without stamps."""
        try:
            return (yield from self._post(batch))
        except InvalidItem as error:
            refused = error.item_errors
            if not (self._clock_may_be_fast and refused and all(self._encoder.stamps(one.item) for one in refused)):
                raise
        return (yield from self._post(self._without_stamps(batch)))

    def _resend_batch(self, batch: Batch, numbers: Sequence[int]) -> Batch:
        """Return a batch of those of these items that were stamped, without a time."""
        stamped = [number for number in numbers if self._encoder.stamps(batch.items[number])]
        items = [batch.items[number] for number in stamped]
        return Batch(items, [batch.indexes[number] for number in stamped], self._untimed.encoded(items, 0))

    def _without_stamps(self, batch: Batch) -> Batch:
        untimed = self._untimed.encoded(batch.items, 0)
        pairs = zip(batch.items, batch.encoded, untimed, strict=True)
        return Batch(
            batch.items, batch.indexes, [new if self._encoder.stamps(item) else old for item, old, new in pairs]
        )

    def _post(self, batch: Batch) -> Flow[_BatchResult]:
        request = Send(
            method="POST",
            url=self._path,
            headers={"Content-Type": "application/json", "Prefer": self._prefer},
            content=self._batches.body(batch.encoded),
        )
        answer = yield from call(self._session, request, make_error=partial(self._refusal, batch))
        self._clock_may_be_fast = self._is_clock_fast(answer)
        result = decode_answer(answer, _BATCH_RESULT)
        if result.received != len(batch.items):
            raise not_understood(answer, "The answer has another number of items than the request.")
        return result

    def _refusal(self, batch: Batch, answer: Answer) -> ApiError | NotUnderstood:
        self._clock_may_be_fast = self._is_clock_fast(answer)
        return refusal(answer, items=batch.items, indexes=batch.indexes)

    def _is_clock_fast(self, answer: Answer) -> bool:
        """Return whether times of this host may be in the future for the service. True if the answer has no Date."""
        try:
            service_s = parsedate_to_datetime(answer.headers["date"]).timestamp()
        except (KeyError, ValueError, OverflowError):
            return True
        return self._session.environment.now_s() - service_s > _CLOCK_FAST_S


def _errors(result: _BatchResult, batch: Batch) -> tuple[ItemError, ...]:
    return item_errors(result.item_errors, batch.items, batch.indexes)


class _Totals:
    """The totals of all batches so far. Each item is counted once, even if it was resent."""

    def __init__(self) -> None:
        self._counts = dict.fromkeys(("batches", "received", "created", "updated", "unchanged", "outranked"), 0)
        self._ids: list[str] = []
        self._errors: list[ItemError] = []
        self._first_error = 0  # index of the first error of the last batch

    def snapshot(self) -> Submitted:
        return Submitted(**self._counts, submission_ids=tuple(self._ids), item_errors=tuple(self._errors))

    def add(self, result: _BatchResult, errors: tuple[ItemError, ...]) -> None:
        self._first_error = len(self._errors)
        self._errors += errors
        self._add(
            result,
            batches=1,
            received=result.received,
            created=result.created,
            updated=result.updated,
            unchanged=result.unchanged,
            outranked=result.outranked,
        )

    def count_resent(self, resent: Batch, resent_result: _BatchResult, errors: tuple[ItemError, ...]) -> None:
        """Replace the errors of refused items of the last batch that were resent by their new results."""
        resent_indexes = set(resent.indexes)
        remaining = [error for error in self._errors[self._first_error :] if error.item_index not in resent_indexes]
        self._errors[self._first_error :] = sorted([*remaining, *errors], key=lambda error: error.item_index)
        self._add(
            resent_result,
            created=resent_result.created,
            updated=resent_result.updated,
            unchanged=resent_result.unchanged,
            outranked=resent_result.outranked,
        )

    def recount_outranked(self, result: _BatchResult, resent: Batch, resent_result: _BatchResult) -> None:
        """Correct the counts of outranked items that took effect when they were resent."""
        updated = min(resent_result.created + resent_result.updated, result.outranked)
        # If all were resent, an outranked item that is not updated now is an address that the batch contains twice.
        are_all_resent = len(resent.items) == result.received - len(result.item_errors)
        unchanged = result.outranked - updated - resent_result.outranked if are_all_resent else 0
        self._add(resent_result, updated=updated, unchanged=unchanged, outranked=-updated - unchanged)

    def _add(self, result: _BatchResult, **counts: int) -> None:
        if result.submission_id is not None:
            self._ids.append(result.submission_id)
        for name, count in counts.items():
            self._counts[name] += count
