"""A batch is stored completely or not at all, and permanently once answered, whenever the server dies.

Source: docs/interface.md sections D1 and D6.
"""

import asyncio
import contextlib
import itertools
import signal
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from tests.builders import on_database
from tests.constants import HIGH_LIMIT
from tests.e2e import load
from tests.e2e.invariants import check_records
from tests.e2e.partners import Acts, Follower, Writer, new_token
from tests.e2e.server_process import Installation, RunningServer
from tests.keys import EVERY_PERMISSION, Key
from tests.server.serving import RawConnection

pytestmark = pytest.mark.slow

ROUNDS = 20
# For every second round: a server starts in half the time.
ONE_PROCESS = {"WORKERS": "1"}
# People who opt out per batch of a writer: small batches are stored in groups, big ones alone.
SIZES = (1, 3, 9, 50, 400, 1_000)
# The number of messages sent or answered before the kill: another one in each round.
FIRST_KILL, NEXT_KILL, KILLS = 4, 11, 31


def test_every_batch_is_whole_or_absent_after_each_kill(migrated: Installation) -> None:
    """kill -9 in the middle of batches: what was answered is there, and what was not is there as a whole or not at all.

    After each start every writer repeats what it got no answer to, as partners do. On PostgreSQL by turns two workers
    die, and a server of one process.
    """
    key = migrated.new_key(per_minute=HIGH_LIMIT, may=EVERY_PERMISSION)
    acts = Acts()
    writers = [Writer(number, size, acts) for number, size in enumerate(SIZES)]
    follower = Follower("email", 1_000)
    for nth in range(ROUNDS):
        with migrated.serving(**ONE_PROCESS if nth % 2 else {}) as server:
            kill_at = FIRST_KILL + nth * NEXT_KILL % KILLS
            asyncio.run(_work_until_killed(server, key, writers, follower, kill_at))
            assert server.wait_for_exit() == -signal.SIGKILL
    with migrated.serving() as server:
        asyncio.run(_finish(server, key, writers, follower))
    assert sum(writer.absent for writer in writers) > 0, "batches were under way"
    on_database(migrated.database_url, check_records, writers, organization="acme")


async def _work_until_killed(
    server: RunningServer, key: Key, writers: list[Writer], follower: Follower, kill_at: int
) -> None:
    """Run all writers and the follower until the server is killed, after so many messages were sent or answered."""
    seen = itertools.count(1)

    def count() -> None:
        if next(seen) == kill_at:
            server.kill_processes()

    async with load.connections([server], len(writers) + 1) as lines:
        token = await new_token(lines[0], load.issue(key))
        await asyncio.gather(
            _run_until_gone(_follow(follower, lines[-1], token)),
            *(
                _run_until_gone(_write(writer, line, token, count))
                for writer, line in zip(writers, lines, strict=False)
            ),
        )


async def _run_until_gone(work: Coroutine[Any, Any, None]) -> None:
    with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
        await work


async def _write(writer: Writer, line: RawConnection, access_token: str, count: Callable[[], None]) -> None:
    """Send batch after batch; `count` is called for each sent or answered one."""
    writer.repeat_unanswered()
    while True:
        await line.send(load.submit(access_token, "email", writer.batch()))
        count()
        writer.accept_answer(await line.answer())
        count()


async def _follow(follower: Follower, line: RawConnection, access_token: str) -> None:
    while True:
        await follower.read_page(line, access_token)


async def _finish(server: RunningServer, key: Key, writers: list[Writer], follower: Follower) -> None:
    """Settle every unanswered batch; the follower then has exactly the records of the feed."""
    feed = Follower("email", 10_000)
    async with load.connection(server) as line:
        token = await new_token(line, load.issue(key))
        for writer in writers:
            writer.repeat_unanswered()
            if writer.is_unanswered:
                writer.accept_answer(await load.send_once(line, load.submit(token, "email", writer.batch())))
        for one in (follower, feed):
            await one.read_all(line, token)
    assert follower.records == feed.records
