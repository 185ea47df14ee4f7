"""Partners at work over TLS: what a follower has seen so far, and how long ago somebody acted."""

import itertools
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.e2e import load
from tests.web.serving import Connection

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
        answer = await load.ask(line, request)
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
    answer = await load.ask(line, request)
    assert answer.status == 200, answer.body
    token: str = answer.json()["access_token"]
    return token
