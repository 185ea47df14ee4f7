"""A server that stores an uploaded import is killed before each of its statements, and another takes over.

Source: docs/interface.md section D12.
"""

import subprocess
import sys
from typing import Any

import pytest

from stoplist.lists.imports.model import LEASE_MS
from stoplist.lists.imports.reversal import submissions_of
from stoplist.lists.uploads.rejects import stored_rejects
from stoplist.records.submissions import find_submission
from tests.builders import ADMINISTRATOR, opened
from tests.constants import ROOT
from tests.fakes import FakeClock
from tests.lists.imports.importer import list_of
from tests.lists.uploads.uploader import Uploader, without_times
from tests.unsubscribes.agreement import disagreements
from tests.unsubscribes.partner import OptOutDeployment

ROWS, BAD_EVERY = 600, 100
# A server process of its own, which takes one work over and dies before a statement. Parts have 250 rows.
PROGRAM = """
import asyncio, os, signal, sys
from stoplist.lists.imports.part_reader import PartReader
from stoplist.lists.uploads.worker import ImportWorker
from stoplist.unsubscribes.model import OptOutStores
from tests.builders import opened
from tests.fakes import FakeClock
from tests.lists.uploads.uploader import LIMITS, with_all_rights

PartReader.__init__.__kwdefaults__["rows"] = 250
left = int(sys.argv[3])

def statement():
    global left
    left -= 1
    if not left:
        os.kill(os.getpid(), signal.SIGKILL)

class Dying:
    def __init__(self, inner):
        self.inner = inner
    def __getattr__(self, name):
        found = getattr(self.inner, name)
        if name in ("run", "one", "all", "write_one"):
            def counted(*words, **values):
                statement()
                return found(*words, **values)
            return counted
        return found

class DyingDatabase(Dying):
    async def write(self, unit, **options):
        done = await self.inner.write(lambda transaction: unit(Dying(transaction)), **options)
        statement()
        return done

async def main():
    clock = FakeClock(int(sys.argv[2]))
    async with opened(sys.argv[1]) as database:
        stores = OptOutStores(database=DyingDatabase(database), clock=clock, secret_keys=())
        await ImportWorker(stores, LIMITS, with_all_rights).finish()

asyncio.run(main())
"""


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
    words = [sys.executable, "-c", PROGRAM, url, str(deployment.now_ms), str(statement)]
    status = subprocess.run(words, cwd=ROOT, check=False, env={"PYTHONPATH": str(ROOT)}).returncode  # noqa: ASYNC221
    assert status in (0, -9)
    deployment.clock.advance(LEASE_MS // 1000 + 1)
    work = await uploader.work(upload)
    assert (work.work, work.result.error) == (None, "")
    return status == -9, uploader, upload


@pytest.mark.slow
def test_a_kill_at_any_statement_loses_and_doubles_nothing(database_url: str, run: Any) -> None:
    """Each row is in exactly one submission, each bad row is kept once, and the file is deleted."""

    async def steps() -> None:
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

    run(steps())
