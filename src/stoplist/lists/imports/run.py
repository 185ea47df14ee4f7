"""Stores the rows of an import, part by part: each part is a submission, and advances the import.

Both happen in one transaction, which takes effect only while the import stands where this process left it and this
process holds its lease. So every row is taken exactly once, even if a process is killed at any point. Source:
docs/interface.md section D12.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Protocol

import msgspec
from stoplist_addresses.lists import ListError

from stoplist.actor import Actor
from stoplist.db import Transaction
from stoplist.db.query import json_text, load_queries
from stoplist.errors import Refused, StoreUnavailable
from stoplist.lists.imports.lifecycle import ImportTaken, finish_import, stop_import
from stoplist.lists.imports.listing import find_import
from stoplist.lists.imports.model import LEASE_MS, Import
from stoplist.lists.imports.part_reader import PartOfFile, PartReader, Pause, RejectedRow, add_counts
from stoplist.organizations.target import Target
from stoplist.slicing import yield_to_loop
from stoplist.unsubscribes.channel import CHANNELS
from stoplist.unsubscribes.decision import BatchDecision
from stoplist.unsubscribes.feed import Feed, find_feed
from stoplist.unsubscribes.model import OptOutStores
from stoplist.unsubscribes.record_reader import RecordReader
from stoplist.unsubscribes.storing import decide_batch, store_batch
from stoplist.unsubscribes.validated_batch import ValidatedBatch

_QUERIES = load_queries(__package__)
_ADD_PART = _QUERIES["add_import_part"]
_ADVANCE = _QUERIES["advance_import"]

# Retry for about a minute while the database is unavailable. What became of the last part is then read.
_RETRY_PAUSES_S = (0.5, 1, 2, 4, 8, 8, 8, 8, 8, 8)


class Rejects(Protocol):
    """A writer of the rows that are left out."""

    async def append(self, rows: list[RejectedRow]) -> int:
        """Take the rows of the next part; return the length of everything taken, in bytes."""
        ...

    async def store(self, transaction: Transaction, before: Import) -> None:
        """Write the rows in the transaction of their part, which begins where `before` ends, or do nothing."""
        ...


async def run_import(
    run: "ImportRun",
    reader: PartReader,
    *,
    rejects: Rejects | None = None,
    is_stopping: Callable[[], bool] = lambda: False,
    after_part: Callable[[Import], Awaitable[None]] | None = None,
) -> Import:
    """Store the rest of the file; return the import, done or stopped.

    The next part is read while one is stored. `is_stopping` is asked after each part, which is also when `after_part`
    is called. Raise ListError where the file breaks, StoreUnavailable if the database stays unavailable, and Refused if
    rejected rows cannot be written: the import is stopped then. Raise ImportTaken if another process took it over.
    """
    upcoming = asyncio.create_task(reader.next_part())
    try:
        while (part := await upcoming) is not None:
            upcoming = asyncio.create_task(reader.next_part())
            await run.store(part, rejects)
            if after_part is not None:
                await after_part(run.current)
            if is_stopping():
                return await run.stop()
        return await run.finish()
    except (ListError, StoreUnavailable, Refused):
        with suppress(StoreUnavailable, ImportTaken):
            await run.stop()
        raise
    finally:
        upcoming.cancel()
        with suppress(asyncio.CancelledError, ListError):
            await upcoming


class ImportRun:
    """A process that works on an import. `current` is the import as the last stored part left it."""

    def __init__(self, actor: Actor, stores: OptOutStores, begun: Import, *, pause: Pause = yield_to_loop) -> None:
        self.current = begun
        self.stored_s = 0.0
        """The time that the last part took to store."""
        self._actor, self._stores, self._pause = actor, stores, pause
        self._channel = CHANNELS[begun.channel]
        self._target = Target(begun.organization_id, begun.org_slug, group=None, default_group=None)

    async def store(self, part: PartOfFile, rejects: Rejects | None = None) -> None:
        """Store the next rows of the file durably.

        Retry for about a minute while the database is unavailable. Raise StoreUnavailable after that, and ImportTaken
        if another process took the import over, or discarded it: then nothing of the part is stored.
        """
        after_row = self.current.row_count + part.counts.rows
        rejects_bytes = self.current.rejects_bytes if rejects is None else await rejects.append(part.rejected)
        for pause_s in (*_RETRY_PAUSES_S, None):
            try:
                began_s = asyncio.get_running_loop().time()
                await self._store_once(part, rejects, rejects_bytes)
                self.stored_s = asyncio.get_running_loop().time() - began_s
            except StoreUnavailable:
                if pause_s is None:
                    raise
                await asyncio.sleep(pause_s)
                if await self._was_stored(after_row):
                    return
            else:
                return

    async def stop(self) -> Import:
        """Stop the import, and return it."""
        self.current = await stop_import(self._stores, self.current)
        return self.current

    async def finish(self) -> Import:
        """Mark the import as done, and return it."""
        self.current = await finish_import(self._actor, self._stores, self.current)
        return self.current

    async def _was_stored(self, after_row: int) -> bool:
        """Return whether the part was committed although the answer was lost. Raise ImportTaken as `store` does."""
        try:
            found = await find_import(self._actor, self._stores.database, self.current.import_id)
        except StoreUnavailable:
            return False
        if found.lease_id != self.current.lease_id:
            raise ImportTaken(found.import_id)
        if found.row_count == after_row:
            self.current = found
            return True
        return False

    async def _store_once(self, part: PartOfFile, rejects: Rejects | None, rejects_bytes: int) -> None:
        database, current = self._stores.database, self.current
        # The feed's `writes` is read before the records, so that the lock reveals any later write.
        feed = await find_feed(database, self._target, self._channel)
        batch = self._batch(part)
        decision = await self._decide(batch, feed)
        after = msgspec.structs.replace(
            current,
            row_count=current.row_count + part.counts.rows,
            sha256=part.sha256,
            rejects_bytes=rejects_bytes,
            lease_until_ms=batch.now_ms + LEASE_MS,
        )

        async def advance(transaction: Transaction, submission_id: str | None, decision: BatchDecision) -> None:
            nonlocal after
            decided = decision.counts | {"erased": decision.unknown_digests}
            after = msgspec.structs.replace(after, counts=add_counts(current.counts, part.counts, decided))
            await _advance(transaction, after, from_row=current.row_count, submission_id=submission_id)
            if rejects is not None:
                await rejects.store(transaction, current)

        submission_id = None
        if decision.has_writes and feed is not None:
            decision, submission_id = await store_batch(
                database,
                batch,
                decision,
                clock=self._stores.clock,
                seen=feed,
                pause=self._pause,
                before_commit=advance,
            )
        if submission_id is None:
            await database.write(lambda transaction: advance(transaction, None, decision), queue_key=current.feed_id)
        self.current = after

    def _batch(self, part: PartOfFile) -> ValidatedBatch:
        current = self.current
        return ValidatedBatch(
            self._actor,
            current.feed_id,
            current.group_no,
            current.group_id,
            part.acts,
            part.counts.rows,
            self._stores.clock.now_ms(),
            current.import_id,
        )

    async def _decide(self, batch: ValidatedBatch, feed: Feed | None) -> BatchDecision:
        reader = RecordReader(self._stores.database, feed, batch.group_no)
        try:
            if batch.acts:
                reader.start(batch.acts)
            return await decide_batch(batch, await reader.records(), self._pause)
        finally:
            await reader.end()


async def _advance(transaction: Transaction, after: Import, *, from_row: int, submission_id: str | None) -> None:
    """Move the progress of an import to `after`. Raise ImportTaken unless it stands at `from_row` under our lease."""
    changed = await transaction.run(
        _ADVANCE,
        feed_id=after.feed_id,
        import_id=after.import_id,
        row_count=after.row_count,
        file_hash=after.sha256,
        rejects_bytes=after.rejects_bytes,
        counts=json_text(msgspec.to_builtins(after.counts)),
        lease_until_ms=after.lease_until_ms,
        from_row=from_row,
        lease_id=after.lease_id,
    )
    if not changed:
        raise ImportTaken(after.import_id)
    if submission_id is not None:
        await transaction.run(
            _ADD_PART,
            feed_id=after.feed_id,
            import_id=after.import_id,
            first_row=from_row,
            submission_id=submission_id,
        )
