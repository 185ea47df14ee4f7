"""A server that stores an uploaded import is killed before each of its statements, and another takes over.

Source: docs/interface.md section D12.
"""

import asyncio
import itertools
import multiprocessing
import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from stoplist.lists.imports.model import LEASE_MS
from stoplist.lists.imports.part_reader import PartReader
from stoplist.lists.imports.reversal import submissions_of
from stoplist.lists.uploads.rejects import stored_rejects
from stoplist.lists.uploads.worker import ImportWorker
from stoplist.records.submissions import find_submission
from stoplist.unsubscribes.model import OptOutStores
from tests.builders import ADMINISTRATOR, opened
from tests.deployment import in_own_loop
from tests.fakes import FakeClock
from tests.lists.imports.importer import list_of
from tests.lists.uploads.uploader import LIMITS, Uploader, with_all_rights, without_times
from tests.unsubscribes.agreement import disagreements
from tests.unsubscribes.partner import OptOutDeployment

ROWS, BAD_EVERY = 600, 100
# Servers of their own, each forked from a process that has imported what they need.
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload([__name__])


class Dying:
    """A database or a transaction whose process is killed before a statement of this number."""

    def __init__(self, inner: Any, left: Iterator[int]) -> None:
        self._inner, self._left = inner, left

    def count(self) -> None:
        if next(self._left) == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if name not in ("run", "one", "all", "write_one"):
            return found

        def counted(*words: Any, **values: Any) -> Any:
            self.count()
            return found(*words, **values)

        return counted


class DyingDatabase(Dying):
    async def write(self, unit: Any, **options: Any) -> Any:
        done = await self._inner.write(lambda transaction: unit(Dying(transaction, self._left)), **options)
        self.count()
        return done


def work_until_killed(url: str, now_ms: int, statement: int) -> None:
    """Take the work of another server over, in parts of 250 rows, and die before that statement."""
    PartReader.__init__.__kwdefaults__["rows"] = 250  # type: ignore[index]

    async def work() -> None:
        async with opened(url) as database:
            dying: Any = DyingDatabase(database, itertools.count(statement - 1, -1))
            stores = OptOutStores(database=dying, clock=FakeClock(now_ms), secret_keys=())
            await ImportWorker(stores, LIMITS, with_all_rights).finish()

    asyncio.run(work())


def content_of(deployment: OptOutDeployment) -> bytes:
    return list_of(
        (f"person-{number}@example.org" if number % BAD_EVERY else "nobody", deployment.now_ms - ROWS + number)
        for number in range(ROWS)
    )


async def killed_at(deployment: OptOutDeployment, url: str, statement: int) -> tuple[bool, Uploader, Any]:
    """Import a file with a server that dies before that statement, and another; return whether the first one died."""
    uploader = Uploader(await deployment.new_organization())
    upload = await uploader.upload(content_of(deployment))
    await uploader.check(upload)
    await uploader.start(upload)
    server = PROCESSES.Process(target=work_until_killed, args=(url, deployment.now_ms, statement))
    server.start()
    server.join()
    assert server.exitcode in (0, -signal.SIGKILL)
    deployment.clock.advance(LEASE_MS // 1000 + 1)
    work = await uploader.work(upload)
    assert (work.work, work.result.error) == (None, "")
    return server.exitcode != 0, uploader, upload


@pytest.mark.slow
@in_own_loop
async def test_a_kill_at_any_statement_loses_and_doubles_nothing(database_url: str) -> None:
    """Each row is in exactly one submission, each bad row is kept once, and the file is deleted."""
    async with opened(database_url) as database:
        deployment = OptOutDeployment(database, FakeClock())
        calm = await Uploader(await deployment.new_organization()).take(content_of(deployment))
        has_died, statement = True, 0
        while has_died:
            statement += 1
            has_died, uploader, upload = await killed_at(deployment, database_url, statement)
            found = await uploader.imported(upload)
            assert without_times(found)["counts"] == without_times(calm)["counts"], statement
            assert (found.state, found.row_count) == ("done", ROWS), statement
            rejects = stored_rejects(database, found.feed_id, found.import_id)
            lines = [row.line async for rows in rejects for row in rows]
            assert lines == list(range(2, ROWS + 2, BAD_EVERY)), statement
            parts = [
                await find_submission(ADMINISTRATOR, database, each)
                for each in await submissions_of(deployment.stores, found)
            ]
            assert sum(each.received for each in parts) == ROWS, statement
            assert sum(each.created for each in parts) == calm.counts.created, statement
            assert (await uploader.now(upload)).state == "ended", statement
        assert statement > ROWS // 250 * 8
        assert not await disagreements(database)
