"""A follower of a feed misses nothing, whatever is written meanwhile. Source: docs/interface.md section D6."""

import asyncio
import itertools
from typing import Any

import pytest

from tests.constants import HIGH_LIMIT
from tests.e2e import load
from tests.e2e.conftest import RunningDeployment
from tests.e2e.partners import Acts, Follower, new_token
from tests.e2e.server_process import RunningServer
from tests.keys import EVERY_PERMISSION, Key
from tests.server.serving import RawConnection

WRITERS = 8
BATCHES = 15
# People who opt out per batch: small batches are stored in groups, big ones alone.
SIZES = (1, 700, 3, 40, 1_500)
# One in so many batches goes to another feed.
OTHER_FEED_EVERY = 4
MAX_PAGE = 10_000
PAGES = (MAX_PAGE, 1_000, 60)
SHARED = 200
SHARED_PER_BATCH = 10


@pytest.mark.slow
def test_followers_see_every_record_once_and_in_order(deployment: RunningDeployment) -> None:
    """8 writers and 3 followers over TLS, on PostgreSQL through two processes, so that no line within one orders them.

    Every follower asks the servers by turns, and ends with exactly the records that the feed holds.
    """
    key = deployment.installation.new_key(per_minute=HIGH_LIMIT, may=EVERY_PERMISSION)
    asyncio.run(_followed(deployment, key))


async def _followed(deployment: RunningDeployment, key: Key) -> None:
    acts, is_written = Acts(), asyncio.Event()
    writers = [_FeedWriter(number, acts) for number in range(WRITERS)]
    followers = [Follower("email", limit) for limit in PAGES]
    async with load.connections(deployment.servers, WRITERS) as lines:
        token = await new_token(lines[0], load.issue(key))
        async with asyncio.TaskGroup() as group:
            for follower in followers:
                group.create_task(_follow(follower, deployment.servers, token, is_written))
            await asyncio.gather(
                *(writer.write(line, token, followers) for writer, line in zip(writers, lines, strict=True))
            )
            pages_meanwhile = [follower.pages_with_news for follower in followers]
            is_written.set()
        assert min(pages_meanwhile) > WRITERS, "they read while it was written"
        for channel in ("email", "sms"):
            feed = Follower(channel, MAX_PAGE)
            await feed.read_all(lines[0], token)
            sent = set().union(*(writer.sent[channel] for writer in writers))
            assert sorted(record["address"] for record in feed.records.values()) == sorted(sent)
            for follower in followers:
                assert follower.channel != channel or follower.records == feed.records


async def _follow(
    follower: Follower, servers: list[RunningServer], access_token: str, is_written: asyncio.Event
) -> None:
    """Read page after page, until a page requested after the last batch is the last one."""
    async with load.connections(servers, len(servers)) as lines:
        for line in itertools.cycle(lines):
            is_last = is_written.is_set()
            if not await follower.read_page(line, access_token) and is_last:
                return


class _FeedWriter:
    """Sends its batches one after the other: some addresses of its own, and some that others change as well."""

    def __init__(self, number: int, acts: Acts) -> None:
        self._number, self._acts = number, acts
        self._people = itertools.count()
        self.sent: dict[str, set[str]] = {"email": set(), "sms": set()}

    async def write(self, line: RawConnection, access_token: str, followers: list[Follower]) -> None:
        """Send all batches; the first writer waits until the followers have read something between two batches."""
        for turn in range(BATCHES):
            at = self._number + turn
            channel = "email" if at % OTHER_FEED_EVERY else "sms"
            size = SIZES[at % len(SIZES)]
            items = [self._own(channel) for _ in range(size)]
            items += [self._shared(channel, at * size + number) for number in range(min(size, SHARED_PER_BATCH))]
            seen = [follower.pages_with_news for follower in followers]
            answer = await load.send_once(line, load.submit(access_token, channel, items))
            assert answer.status == 200, answer.body
            self.sent[channel].update(item["address"] for item in items)
            if self._number == 0 and channel == "email":
                # The followers count what they read.
                while any(one.pages_with_news == had for one, had in zip(followers, seen, strict=True)):  # noqa: ASYNC110
                    await asyncio.sleep(0.01)

    def _own(self, channel: str) -> dict[str, Any]:
        return self._item(channel, self._number * 1_000_000 + next(self._people), "unsubscribed")

    def _shared(self, channel: str, number: int) -> dict[str, Any]:
        return self._item(
            channel, WRITERS * 1_000_000 + number % SHARED, ("unsubscribed", "resubscribed")[number % 7 % 2]
        )

    def _item(self, channel: str, person: int, status: str) -> dict[str, Any]:
        address = f"p{person}@example.org" if channel == "email" else f"+49151{person:08}"
        return {"address": address, "status": status, "occurred_at": self._acts.next()}
