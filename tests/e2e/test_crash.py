"""Confirmed tokens survive a crash. Source: docs/interface.md sections D1 and D2."""

import asyncio
import contextlib
from typing import Any

from tests.constants import HIGH_LIMIT
from tests.e2e import load
from tests.e2e.server_process import Installation, RunningServer
from tests.keys import Key
from tests.server.serving import RawConnection

ENOUGH = 50
ROUNDS = 3

Pair = dict[str, Any]


def test_answered_pairs_work_after_a_kill_and_restart(migrated: Installation) -> None:
    """kill -9 in the middle of many token requests: no answer was given too early, and none is lost."""
    issuing, refreshing = migrated.new_key(per_minute=HIGH_LIMIT), migrated.new_key(per_minute=HIGH_LIMIT)
    with contextlib.ExitStack() as running:
        server = running.enter_context(migrated.serving())
        for _ in range(ROUNDS):
            issued, refreshed = asyncio.run(_pairs_until_killed(server, issuing, refreshing))
            server.kill()
            server = running.enter_context(migrated.serving())
            asyncio.run(_assert_valid(server, issued, refreshed))


async def _pairs_until_killed(server: RunningServer, issuing: Key, refreshing: Key) -> tuple[list[Pair], list[Pair]]:
    """Return the answered pairs of each kind; the server is killed when there are enough of both."""
    issued: list[Pair] = []
    refreshed: list[Pair] = []

    async def request_repeatedly(line: RawConnection, key: Key, *, is_refreshing: bool) -> None:
        request = load.issue(key)
        while True:
            try:
                answer = await load.send_once(line, request)
            except (ConnectionError, asyncio.IncompleteReadError):
                return
            assert answer.status == 200
            pair = answer.json()
            (refreshed if is_refreshing else issued).append(pair)
            if is_refreshing:
                request = load.refresh(pair["refresh_token"])
            if min(len(issued), len(refreshed)) == ENOUGH:
                server.kill_processes()

    async with load.connections([server], 16) as lines:
        await asyncio.gather(
            *(request_repeatedly(line, issuing, is_refreshing=False) for line in lines[::2]),
            *(request_repeatedly(line, refreshing, is_refreshing=True) for line in lines[1::2]),
        )
    return issued, refreshed


async def _assert_valid(server: RunningServer, issued: list[Pair], refreshed: list[Pair]) -> None:
    """Assert that all access tokens are valid, and all refresh tokens not in use when the server died."""
    calls = [load.call(pair["access_token"]) for pair in (*issued, *refreshed)]
    assert await _statuses(server, calls) == {404}
    assert await _statuses(server, [load.refresh(pair["refresh_token"]) for pair in issued]) == {200}


async def _statuses(server: RunningServer, requests: list[bytes]) -> set[int]:
    async def request_all(line: RawConnection, share: list[bytes]) -> list[int]:
        return [(await load.send_once(line, request)).status for request in share]

    async with load.connections([server], 8) as lines:
        shares = [request_all(line, requests[n :: len(lines)]) for n, line in enumerate(lines)]
        return {status for statuses in await asyncio.gather(*shares) for status in statuses}
