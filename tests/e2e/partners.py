"""State of partners over TLS: the records a follower has read, and the batches a writer has sent."""

import itertools
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, NamedTuple, Self

from stoplist.ids import hash_secret
from tests.e2e import load
from tests.e2e.server_process import RunningServer
from tests.keys import Key
from tests.server.serving import RawConnection, WireAnswer
from tests.unsubscribes.naive import naive_hash

Record = dict[str, Any]
# After so many batches a writer returns to its first people, so that a follower of a long run has a bounded number.
GROUPS_OF_PEOPLE = 200


class PairHashes(NamedTuple):
    """A pair of tokens as the database has it. A long run compares hundreds of thousands."""

    access: bytes
    refresh: bytes

    @classmethod
    def of(cls, pair: dict[str, str]) -> Self:
        """Return the hashes of a pair as it was answered."""
        return cls(hash_secret(pair["access_token"]), hash_secret(pair["refresh_token"]))


class Follower:
    """Reads a feed page by page and keeps the newest version of each record.

    Asserts that each `state` is that of the records that it has at that moment.
    """

    def __init__(self, channel: str, limit: int) -> None:
        self.channel, self._limit = channel, limit
        self._cursor: str | None = None
        self._last_seq = self._sum = 0
        self.records: dict[str, Record] = {}
        self._hashes: dict[str, int] = {}
        self.pages_with_news = self.states = 0

    async def read_page(self, line: RawConnection, access_token: str) -> bool:
        """Read the next page and return whether more follow. Every number must be higher than all before."""
        answer = await load.send_once(line, self.request(access_token))
        assert answer.status == 200, answer.body
        return self.take(answer.json())

    def request(self, access_token: str, *, wait_s: int | None = None) -> bytes:
        """Return the request for the next page, which is held for so long if there is none."""
        if wait_s is None or self._cursor is None:
            return load.follow(access_token, self.channel, limit=self._limit, cursor=self._cursor)
        return load.wait_for_change(access_token, self.channel, self._cursor, wait_s=wait_s)

    def take(self, page: dict[str, Any]) -> bool:
        """Take a page and return whether more follow."""
        for record in page["items"]:
            assert record["seq"] > self._last_seq, (record, self._last_seq)
            self._last_seq = record["seq"]
            self._sum -= self._hashes.get(record["id"], 0)
            self._hashes[record["id"]] = _hash_of(record)
            self._sum += self._hashes[record["id"]]
            self.records[record["id"]] = record
        self.pages_with_news += bool(page["items"])
        self._cursor = page["next_cursor"]
        if page["state"] is not None:
            self.states += 1
            assert page["state"] == self.state, "no follower can reproduce this state"
        has_more: bool = page["has_more"]
        return has_more

    @property
    def state(self) -> dict[str, Any]:
        """Return the state of these records, as a page has it."""
        return {"seq": self._last_seq, "records": len(self.records), "digest": f"{self._sum % 2**256:064x}"}

    async def read_all(self, line: RawConnection, access_token: str) -> None:
        """Read all remaining pages."""
        while await self.read_page(line, access_token):
            pass


def _hash_of(record: Record) -> int:
    address = record["address"] or record["address_digest"]  # the digest of an erased person
    return _hash(record["id"], record["group_id"], address, record["status"], record["seq"])


@lru_cache(maxsize=100_000)
def _hash(*fields: str | int | None) -> int:
    """Return the hash that a record adds to a state. Of several followers of a feed the first one computes it."""
    return naive_hash(list(fields))


class Acts:
    """Times of acts, each later than all before, and none in the future."""

    def __init__(self) -> None:
        self._first = datetime.now(UTC) - timedelta(days=1)
        self._milliseconds = itertools.count()

    def next(self) -> str:
        """Return the time of the next act, as partners write it."""
        at = self._first + timedelta(milliseconds=next(self._milliseconds))
        return at.isoformat(timespec="milliseconds")


async def new_token(line: RawConnection, request: bytes) -> str:
    """Request a token and return it."""
    answer = await load.send_once(line, request)
    assert answer.status == 200, answer.body
    token: str = answer.json()["access_token"]
    return token


async def read_feed(server: RunningServer, key: Key) -> Follower:
    """Return a follower that has read the whole e-mail feed, with a new token of the key."""
    follower = Follower("email", 10_000)
    async with load.connection(server) as line:
        await follower.read_all(line, await new_token(line, load.issue(key)))
    return follower


class Writer:
    """Makes consecutive batches in which every item changes a record, and repeats unanswered ones."""

    def __init__(self, number: int, size: int, acts: Acts) -> None:
        self._number, self._size, self._acts = number, size, acts
        self._unanswered: list[dict[str, Any]] = []
        self._is_repetition = False
        self._batches = 0
        self._last: list[str] = []
        self.answered: dict[str, int] = {}
        """The number of items of each answered batch, by source."""
        self.absent = self.whole = 0
        """Return how many repeated batches had not been stored before, and how many had."""

    @property
    def is_unanswered(self) -> bool:
        """Return whether the last batch has no conclusive answer yet."""
        return bool(self._unanswered)

    @property
    def opted_out(self) -> str | None:
        """Return an address opted out in the last batch, if that was answered."""
        return None if self._unanswered or not self._last else self._last[0]

    def repeat_unanswered(self) -> None:
        """Mark the unanswered batch as a repetition."""
        self._is_repetition = self.is_unanswered

    def batch(self) -> list[dict[str, Any]]:
        """Return the next batch (other people opt out, those of the last batch opt in), or the unanswered one again."""
        if not self._unanswered:
            source, group = f"{self._number}-{self._batches}", self._batches % GROUPS_OF_PEOPLE
            self._batches += 1
            people = [f"p{self._number}-{group}-{person}@example.org" for person in range(self._size)]
            back, self._last = self._last, people
            self._unanswered = [
                {"address": address, "status": status, "occurred_at": self._acts.next(), "source": source}
                for status, people in (("unsubscribed", self._last), ("resubscribed", back))
                for address in people
            ]
        return self._unanswered

    def accept_answer(self, answer: WireAnswer) -> None:
        """Check the answer: the batch was stored by this request or, if it is a repetition, possibly before."""
        assert answer.status == 200, answer.body
        batch, counts = self._unanswered, answer.json()
        new = [counts["created"], counts["updated"], counts["unchanged"]]
        is_whole = self._is_repetition and counts["submission_id"] is None
        created = self._size if self._batches <= GROUPS_OF_PEOPLE else 0
        assert new == ([0, 0, len(batch)] if is_whole else [created, len(batch) - created, 0]), counts
        self.whole += is_whole
        self.absent += self._is_repetition and not is_whole
        self.answered[batch[0]["source"]] = len(batch)
        self._unanswered, self._is_repetition = [], False
