"""A batch is stored whole or not at all, and for good once it is answered, whenever the server dies.

Source: docs/interface.md sections D1 and D6.
"""

import asyncio
import contextlib
import itertools
import signal
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

import pytest

from stoplist.db import Database
from stoplist.oauth.model import PERMISSIONS
from tests.builders import opened, sql, value
from tests.e2e import load
from tests.e2e.partners import Acts, Follower, new_token
from tests.e2e.running import Key, Place, Server
from tests.web.serving import Answer, Connection

pytestmark = pytest.mark.slow

MANY = 1_000_000
ROUNDS = 20
# How many people opt out in each batch of a writer: some are stored together with others, some alone.
SIZES = (1, 3, 9, 50, 400, 1_000)
# How much was sent or answered when the server is killed: another number in each round.
FIRST_KILL, NEXT_KILL, KILLS = 4, 11, 31

DAY_MS = 86_400_000

_RECORDS = "SELECT seq, status, reason, source, recorded_ms, submission_id FROM unsubscribes"
_VERSIONS = "SELECT seq, status, reason, source, recorded_ms, submission_id FROM unsubscribe_versions"
_SUBMISSIONS = "SELECT submission_id, received, created + updated AS changes, first_seq, last_seq FROM submissions"
_CHANGED_ON = "SELECT day, status, reason, changes FROM feed_days WHERE changes > 0"
_STANDING = "SELECT status, reason, CAST(SUM(standing) AS BIGINT) AS standing FROM feed_days GROUP BY status, reason"


class Change(NamedTuple):
    """A record as it is or was."""

    seq: int
    status: str
    reason: str
    source: str
    recorded_ms: int
    submission_id: str


def test_every_batch_is_whole_or_absent_after_each_of_many_kills(migrated: Place) -> None:
    """kill -9 in the middle of batches: what was answered is there, and what was not is there as a whole or not at all.

    After each start every writer repeats what it got no answer to, as partners do.
    """
    key = migrated.new_key(per_minute=MANY, may=frozenset(PERMISSIONS))
    acts = Acts()
    writers = [_Writer(number, size, acts) for number, size in enumerate(SIZES)]
    follower = Follower("email", 1_000)
    for nth in range(ROUNDS):
        with migrated.serving() as server:
            kill_at = FIRST_KILL + nth * NEXT_KILL % KILLS
            asyncio.run(_work_until_killed(server, key, writers, follower, kill_at))
            assert server.ended() == -signal.SIGKILL
    with migrated.serving() as server:
        asyncio.run(_finish(server, key, writers, follower))
    assert sum(writer.absent for writer in writers) > 0, "batches were under way"
    asyncio.run(_check_stored(migrated, writers))


async def _work_until_killed(
    server: Server, key: Key, writers: "list[_Writer]", follower: Follower, kill_at: int
) -> None:
    """Everybody writes until the server is gone, which is killed when so much was sent or answered."""
    seen = itertools.count(1)

    def see() -> None:
        if next(seen) == kill_at:
            server.process.kill()

    async with load.connections([server], len(writers) + 1) as lines:
        token = await new_token(lines[0], load.issue(key))
        await asyncio.gather(
            _until_gone(_follow(follower, lines[-1], token)),
            *(_until_gone(writer.work(line, token, see)) for writer, line in zip(writers, lines, strict=False)),
        )


async def _until_gone(work: Coroutine[Any, Any, None]) -> None:
    with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
        await work


async def _follow(follower: Follower, line: Connection, access_token: str) -> None:
    while True:
        await follower.read_on(line, access_token)


async def _finish(server: Server, key: Key, writers: "list[_Writer]", follower: Follower) -> None:
    """Nothing is left unanswered; who followed through all of it has what the feed holds, and nothing else."""
    feed = Follower("email", 10_000)
    async with load.connection(server) as line:
        token = await new_token(line, load.issue(key))
        for writer in writers:
            await writer.finish(line, token)
        for one in (follower, feed):
            await one.read_to_the_end(line, token)
    assert follower.records == feed.records


class _Writer:
    """Sends batches in which every item changes a record, one after the other; it goes on where it stopped."""

    def __init__(self, number: int, size: int, acts: Acts) -> None:
        self._number, self._size, self._acts = number, size, acts
        self._unanswered: list[dict[str, Any]] | None = None
        self._is_repetition = False
        self._batches = itertools.count()
        self._last: list[str] = []
        self.answered: dict[str, int] = {}
        """By their source, how many items each batch had."""
        self.absent = 0
        """How many batches were not there when they were repeated."""

    async def work(self, line: Connection, access_token: str, see: Callable[[], None]) -> None:
        """Batch after batch, until the server is gone; `see` is told of each that was sent or answered."""
        self._is_repetition = self._unanswered is not None
        while True:
            batch = self._unanswered = self._unanswered or self._batch()
            await line.send(load.submit(access_token, "email", batch))
            see()
            self._take(await line.answer(), batch)
            see()

    async def finish(self, line: Connection, access_token: str) -> None:
        """Repeat what was not answered."""
        self._is_repetition = True
        if self._unanswered is not None:
            self._take(await load.ask(line, load.submit(access_token, "email", self._unanswered)), self._unanswered)

    def _batch(self) -> list[dict[str, Any]]:
        """People who opt out; those of the batch before come back."""
        nth = next(self._batches)
        source = f"{self._number}-{nth}"
        back, self._last = self._last, [f"p{source}-{person}@example.org" for person in range(self._size)]
        return [
            {"address": address, "status": status, "occurred_at": self._acts.next(), "source": source}
            for status, people in (("unsubscribed", self._last), ("resubscribed", back))
            for address in people
        ]

    def _take(self, answer: Answer, batch: list[dict[str, Any]]) -> None:
        assert answer.status == 200, answer.body
        counts = answer.json()
        new = [counts["created"], counts["updated"], counts["unchanged"]]
        is_whole = self._is_repetition and counts["submission_id"] is None
        assert new == ([0, 0, len(batch)] if is_whole else [self._size, len(batch) - self._size, 0]), counts
        self.absent += self._is_repetition and not is_whole
        self.answered[batch[0]["source"]] = len(batch)
        self._unanswered, self._is_repetition = None, False


async def _check_stored(place: Place, writers: list[_Writer]) -> None:
    """Each batch as a whole, the changes numbered without a gap, and counts that agree with them."""
    async with opened(place.database_url) as database:
        records = [Change(*row) for row in await _rows(database, _RECORDS)]
        changes = records + [Change(*row) for row in await _rows(database, _VERSIONS)]
        submissions = await _rows(database, _SUBMISSIONS)
        changed_on = await _rows(database, _CHANGED_ON)
        standing = await _rows(database, _STANDING)
        head_seq = await value(database, "SELECT head_seq FROM feeds")
    assert sorted(change.seq for change in changes) == list(range(1, head_seq + 1))
    answered = {source: size for writer in writers for source, size in writer.answered.items()}
    assert Counter(change.source for change in changes) == answered
    seqs: dict[str, list[int]] = {}
    for change in changes:
        seqs.setdefault(change.submission_id, []).append(change.seq)
    assert len(seqs) == len(answered)
    assert sorted(submissions) == sorted((id_, len(of), len(of), min(of), max(of)) for id_, of in seqs.items())
    assert {(day, status, reason): count for day, status, reason, count in changed_on} == Counter(
        (change.recorded_ms // DAY_MS, change.status, change.reason) for change in changes
    )
    assert {(status, reason): count for status, reason, count in standing} == Counter(
        (record.status, record.reason) for record in records
    )


async def _rows(database: Database, text: str) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in await database.all(sql(text))]
