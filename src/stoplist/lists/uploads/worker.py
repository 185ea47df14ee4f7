"""Does the work on imports that people requested on the pages, in a server process, beside its requests.

A process that dies leaves its lease, which ends; another process then takes the work over, and an import goes on at its
next row. Source: docs/interface.md section D12, On the pages.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import BinaryIO

from stoplist_addresses.lists import ListError, ListFile

from stoplist.actor import ADMINISTER, Actor
from stoplist.errors import Refused, StoreUnavailable
from stoplist.lists.imports.check import ListCheck
from stoplist.lists.imports.earlier import find_unfinished, skip_rows
from stoplist.lists.imports.lifecycle import ImportTaken, stop_import, take_over
from stoplist.lists.imports.list_options import list_options
from stoplist.lists.imports.listing import find_import, imports_into
from stoplist.lists.imports.model import DONE, LEASE_MS, REVERSED, REVERSING, RUNNING, Import, ImportOptions
from stoplist.lists.imports.part_reader import PartReader
from stoplist.lists.imports.reversal import counting_import_reversal, reverse_import
from stoplist.lists.imports.run import ImportRun, run_import
from stoplist.lists.uploads.model import CHECK, COUNT, IMPORT, REVERSE, CheckResult, Upload, UploadLimits, WorkResult
from stoplist.lists.uploads.rejects import StoredRejects
from stoplist.lists.uploads.stored_file import open_stored, stored_file
from stoplist.lists.uploads.upload_end import delete_old_uploads, end_upload
from stoplist.lists.uploads.uploads import slug_of, upload_of
from stoplist.lists.uploads.work import ClaimedWork, claim_next, end_work, renew_work
from stoplist.organizations.target import find_target_of_person
from stoplist.unsubscribes.channel import CHANNELS
from stoplist.unsubscribes.model import OptOutStores

_LOG = logging.getLogger(__name__)
_MOST_AT_ONCE = 2
_RENEW_EVERY_S = 2.0
# After the database was away, another try, by whichever process comes first.
_RETRY_AFTER_MS = 5_000
_SERVER = Actor(kind="system", id="imports", may=frozenset((ADMINISTER,)))

FindActor = Callable[[str, str], Awaitable[Actor]]
"""Returns the actor of that kind and id with the rights that they have now."""

DONE_WORK, REFUSED, FAILED = "done", "refused", "failed"
OnEnded = Callable[[str], None]
"""Called when work has ended here, with DONE_WORK, REFUSED, or FAILED by an error of the program."""


class ImportWorker:
    """Does work on imports in this process, a few at once.

    A piece of work is done with the rights that its requester has when this process takes it up.
    """

    def __init__(
        self,
        stores: OptOutStores,
        limits: UploadLimits,
        find_actor: FindActor,
        *,
        on_ended: OnEnded = lambda outcome: None,
    ) -> None:
        self._stores, self._limits, self._find_actor, self._on_ended = stores, limits, find_actor, on_ended
        self._tasks: set[asyncio.Task[None]] = set()
        self._has_ended = False

    @property
    def running(self) -> int:
        """Return how much work is done now."""
        return len(self._tasks)

    async def take_waiting(self) -> None:
        """Begin queued work within this process's capacity; a chore."""
        while len(self._tasks) < _MOST_AT_ONCE and not self._has_ended:
            claimed = await claim_next(self._stores.database, self._stores.clock)
            if claimed is None:
                return
            run = _WorkRun(self._stores, self._limits, claimed, self._find_actor, self._on_ended)
            task = asyncio.create_task(run.run())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def delete_old_uploads(self) -> None:
        """Delete uploads that were not imported in time, and what is left of those that have ended; a chore."""
        await delete_old_uploads(self._stores)

    async def finish(self) -> None:
        """Wait until running and queued work has ended."""
        await self.take_waiting()
        while self._tasks:
            await asyncio.gather(*self._tasks)
            await self.take_waiting()

    async def end(self) -> None:
        """Stop, and release unfinished work, which another process may take up at once."""
        self._has_ended = True
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class _WorkRun:
    """One piece of work. `done` of `total` is its progress."""

    _actor: Actor

    def __init__(
        self,
        stores: OptOutStores,
        limits: UploadLimits,
        claimed: ClaimedWork,
        find_actor: FindActor,
        on_ended: OnEnded,
    ) -> None:
        self._stores, self._limits, self._claimed, self._find_actor = stores, limits, claimed, find_actor
        self._on_ended = on_ended
        self._work = claimed.work
        self._channel = CHANNELS[claimed.channel]
        self._done, self._total = 0, claimed.work.total

    async def run(self) -> None:
        """Do the work to its end, unless another process takes it over."""
        doing = asyncio.create_task(self._perform())
        renewing = asyncio.create_task(self._keep_lease())
        try:
            await asyncio.wait((doing, renewing), return_when=asyncio.FIRST_COMPLETED)
        finally:
            renewing.cancel()
            doing.cancel()
            await asyncio.gather(doing, renewing, return_exceptions=True)
            if doing.cancelled():
                await self._release(0)

    async def _perform(self) -> None:
        before, log = self._work.result, {"import_id": self._work.import_id, "work": self._work.work}
        outcome = DONE_WORK
        try:
            result = await self._result()
        except (ListError, Refused) as error:
            outcome = REFUSED
            option = error.option if isinstance(error, ListError) else None
            result = WorkResult(
                check=None if self._work.work == CHECK else before.check,
                reversed=before.reversed,
                error=error.text if isinstance(error, Refused) else str(error),
                option=option,
            )
        except StoreUnavailable as error:
            _LOG.warning("Work on an import will be tried again", extra={"fields": log | {"why": error.text}})
            await self._release(_RETRY_AFTER_MS)
            return
        except Exception:
            outcome = FAILED
            _LOG.exception("Work on an import failed", extra={"fields": log})
            result = WorkResult(check=before.check, reversed=before.reversed, error="The server failed: see its log.")
        self._on_ended(outcome)
        with suppress(StoreUnavailable):
            await end_work(self._stores.database, self._work, result)

    async def _result(self) -> WorkResult:
        await self._authorize()
        before, kind = self._work.result, self._work.work
        if kind == CHECK:
            return WorkResult(check=await self._check())
        if kind == IMPORT:
            await self._import()
            return WorkResult(check=before.check)
        found = await find_import(self._actor, self._stores.database, self._work.import_id)
        if kind == COUNT:
            counted = before.reversal
            async for done, of, total in counting_import_reversal(self._actor, self._stores, found):
                self._done, self._total, counted = done, of, total
            return WorkResult(check=before.check, reversal=counted)
        expected = None if found.state in (REVERSING, REVERSED) else before.reversal
        taken_back = None
        async for total in reverse_import(self._actor, self._stores, found.import_id, expected=expected):
            self._done, taken_back = total.changes + total.left_out + total.taken_back, total
        return WorkResult(check=before.check, reversed=taken_back)

    async def _authorize(self) -> None:
        """Raise Refused if the requester has lost the right since; then a running import is stopped."""
        self._actor = await self._find_actor(self._work.actor_kind, self._work.actor_id)
        if self._work.work in (COUNT, REVERSE):
            is_allowed = self._actor.is_administrator
        else:
            is_allowed = self._actor.administers([await self._slug()])
        if is_allowed:
            return
        if self._work.work == IMPORT:
            found = await find_import(_SERVER, self._stores.database, self._work.import_id)
            if found.state == RUNNING:
                await stop_import(self._stores, found)
        raise Refused(
            f"{self._work.actor_id} asked for this, and no longer has the right to it, so the server did not go on. "
            "Somebody who has the right can go on."
        )

    async def _check(self) -> CheckResult:
        upload = await self._upload()
        now_ms = self._stores.clock.now_ms()
        target = await find_target_of_person(
            self._actor, self._stores.database, org_slug=await self._slug(), group_id=upload.options.group_id
        )
        group_no = target.group_no
        options = upload.options.for_import(now_ms)
        async with stored_file(self._stores.database, upload) as file:
            others = [
                each
                for each in await imports_into(self._actor, self._stores.database, self._channel, target)
                if each.import_id != upload.import_id
            ]
            taken_by = await find_unfinished(others, partial(self._open, file))
            opened = await self._open(file, options)
            check = ListCheck(self._actor, self._stores, self._channel, target, group_no)
            reader = PartReader(opened, self._channel)
            while (part := await reader.next_part()) is not None:
                await check.take(part)
                self._note(check.counts.rows, file, upload)
        return CheckResult(
            counts=check.counts,
            is_exact=check.is_exact,
            sha256=check.sha256,
            first_bad=[(row.line, row.text) for row in check.first_bad],
            taken_by=None if taken_by is None else taken_by.import_id,
            taken_rows=0 if taken_by is None else taken_by.row_count,
            stored_by=next(
                (each.import_id for each in others if each.state == DONE and each.sha256 == check.sha256), None
            ),
        )

    async def _import(self) -> None:
        running = await take_over(self._actor, self._stores, self._work.import_id)
        if running.state != DONE:
            run = ImportRun(self._actor, self._stores, running)
            async with self._reader(run) as (reader, file, upload):

                async def note(now: Import) -> None:
                    self._note(now.row_count, file, upload)

                rejects = StoredRejects(running, max_bytes=self._limits.rejects_bytes)
                await run_import(run, reader, rejects=rejects, after_part=note)
        await end_upload(self._stores, self._work.feed_id, self._work.import_id, cancels_work=False)

    @asynccontextmanager
    async def _reader(self, run: ImportRun) -> AsyncIterator[tuple[PartReader, BinaryIO, Upload]]:
        """Yield a reader of the rows that are not stored yet; an import whose file cannot be read is stopped."""
        try:
            upload = await self._upload()
            async with stored_file(self._stores.database, upload) as file:
                opened = await self._open(file, run.current.options)
                if await skip_rows(opened, run.current.row_count) != run.current.sha256 and run.current.row_count:
                    raise Refused("The uploaded file differs from the one that the import began with.")
                yield PartReader(opened, self._channel), file, upload
        except (ListError, Refused):
            with suppress(StoreUnavailable, ImportTaken):
                if run.current.state == RUNNING:
                    await run.stop()
            raise

    async def _open(self, file: BinaryIO, options: ImportOptions) -> ListFile:
        wanted = await list_options(self._stores.database, self._work.feed_id, self._channel, options)
        return await open_stored(file, wanted, max_bytes=self._limits.unpacked_bytes)

    async def _upload(self) -> Upload:
        found = await upload_of(self._stores.database, self._work.feed_id, self._work.import_id)
        if found is None:
            raise Refused("The uploaded file was deleted. Upload it again.")
        return found

    async def _slug(self) -> str:
        return await slug_of(self._stores.database, self._claimed.organization_id)

    def _note(self, rows: int, file: BinaryIO, upload: Upload) -> None:
        """Note the progress; the number of all rows is estimated by how much of the file was read."""
        check, read = self._work.result.check, file.tell()
        self._done = rows
        self._total = check.counts.rows if check else max(rows, round(rows * upload.file_bytes / read) if read else 0)

    async def _keep_lease(self) -> None:
        """Renew the lease while the work is done; return when another process has it, or the work was cancelled."""
        while True:
            await asyncio.sleep(_RENEW_EVERY_S)
            with suppress(StoreUnavailable):
                if not await self._renew(LEASE_MS):
                    return

    async def _release(self, after_ms: int) -> None:
        with suppress(StoreUnavailable):
            await self._renew(after_ms)

    async def _renew(self, for_ms: int) -> bool:
        until_ms = self._stores.clock.now_ms() + for_ms
        return await renew_work(
            self._stores.database, self._work, until_ms=until_ms, done=self._done, total=max(self._done, self._total)
        )
