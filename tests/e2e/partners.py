"""Partners at work over TLS: what a follower has seen so far, what a writer sent, how long ago somebody acted."""

import itertools
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.e2e import load
from tests.server.serving import Answer, Connection

Record = dict[str, Any]


class Follower:
    """Reads a feed on from where it stood, page by page, and keeps the newest of each record."""

    def __init__(self, channel: str, limit: int) -> None:
        self.channel, self._limit = channel, limit
        self._cursor: str | None = None
        self._last_seq = 0
        self.records: dict[str, Record] = {}
        self.pages_with_news = 0

    async def read_on(self, line: Connection, access_token: str) -> bool:
        """One page; whether another one waits. No number in it was seen before or comes too late."""
        request = load.follow(access_token, self.channel, limit=self._limit, cursor=self._cursor)
        answer = await load.acquire(line, request)
        assert answer.status == 200, answer.body
        page = answer.json()
        for record in page["items"]:
            assert record["seq"] > self._last_seq, (record, self._last_seq)
            self._last_seq = record["seq"]
            self.records[record["id"]] = record
        self.pages_with_news += bool(page["items"])
        self._cursor = page["next_cursor"]
        has_more: bool = page["has_more"]
        return has_more

    async def read_to_the_end(self, line: Connection, access_token: str) -> None:
        """All pages that there are."""
        while await self.read_on(line, access_token):
            pass


class Acts:
    """Times of acts, each later than all before it, and none in the future."""

    def __init__(self) -> None:
        self._first = datetime.now(UTC) - timedelta(days=1)
        self._milliseconds = itertools.count()

    def next(self) -> str:
        """The time of the next act, as partners write it."""
        at = self._first + timedelta(milliseconds=next(self._milliseconds))
        return at.isoformat(timespec="milliseconds")


async def new_token(line: Connection, request: bytes) -> str:
    """An access token that was just given out."""
    answer = await load.acquire(line, request)
    assert answer.status == 200, answer.body
    token: str = answer.json()["access_token"]
    return token


class Writer:
    """Makes batches in which every item changes a record, one after the other; what is unanswered is repeated."""

    def __init__(self, number: int, size: int, acts: Acts) -> None:
        self._number, self._size, self._acts = number, size, acts
        self._unanswered: list[dict[str, Any]] = []
        self._is_repetition = False
        self._batches = itertools.count()
        self._last: list[str] = []
        self.answered: dict[str, int] = {}
        """By their source, how many items each batch had."""
        self.absent = self.whole = 0
        """How many batches were not there when they were repeated, and how many were."""

    @property
    def is_unanswered(self) -> bool:
        """Whether a batch was sent to which no answer came that settles it."""
        return bool(self._unanswered)

    @property
    def known(self) -> str | None:
        """Somebody who opted out in the last batch that was answered."""
        return None if self._unanswered or not self._last else self._last[0]

    def begin(self) -> None:
        """What is unanswered is repeated from here on."""
        self._is_repetition = self.is_unanswered

    def batch(self) -> list[dict[str, Any]]:
        """People who opt out; those of the batch before come back. The same as before, if that was not answered."""
        if not self._unanswered:
            source = f"{self._number}-{next(self._batches)}"
            back, self._last = self._last, [f"p{source}-{person}@example.org" for person in range(self._size)]
            self._unanswered = [
                {"address": address, "status": status, "occurred_at": self._acts.next(), "source": source}
                for status, people in (("unsubscribed", self._last), ("resubscribed", back))
                for address in people
            ]
        return self._unanswered

    def take(self, answer: Answer) -> None:
        """The batch is stored: all of it by this request or, if it was repeated, perhaps all of it before."""
        assert answer.status == 200, answer.body
        batch, counts = self._unanswered, answer.json()
        new = [counts["created"], counts["updated"], counts["unchanged"]]
        is_whole = self._is_repetition and counts["submission_id"] is None
        assert new == ([0, 0, len(batch)] if is_whole else [self._size, len(batch) - self._size, 0]), counts
        self.whole += is_whole
        self.absent += self._is_repetition and not is_whole
        self.answered[batch[0]["source"]] = len(batch)
        self._unanswered, self._is_repetition = [], False
