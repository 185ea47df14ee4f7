"""A refresh token presented many times at once. Source: docs/interface.md section D2 (Rotation and reuse)."""

import asyncio

import pytest

from tests.builders import opened, value
from tests.constants import HIGH_LIMIT
from tests.e2e import load
from tests.e2e.conftest import RunningDeployment
from tests.keys import Key
from tests.server.serving import RawConnection

CONCURRENT = 32


@pytest.mark.parametrize("rounds", [10, pytest.param(200, marks=pytest.mark.slow)])
def test_one_of_simultaneous_refreshes_wins_then_all_tokens_die(deployment: RunningDeployment, rounds: int) -> None:
    """32 requests over TLS, on PostgreSQL through two processes: one 200, then every token invalid, in each round.

    The alarm is raised once per round, however many lose.
    """
    key = deployment.installation.new_key(per_minute=HIGH_LIMIT)
    asyncio.run(_rounds(deployment, key, rounds))


async def _rounds(deployment: RunningDeployment, key: Key, rounds: int) -> None:
    async with load.connections(deployment.servers, CONCURRENT) as lines:
        for _ in range(rounds):
            await _round(lines, key)
    async with opened(deployment.installation.database_url) as database:
        alarms = await value(
            database,
            "SELECT COUNT(*) AS n FROM audit WHERE action = 'client.reuse_alarm' AND target = :client_id",
            client_id=key.client_id,
        )
        epoch = await value(database, "SELECT epoch FROM clients WHERE client_id = :id", id=key.client_id)
    assert (alarms, epoch) == (rounds, rounds + 1)


async def _round(lines: list[RawConnection], key: Key) -> None:
    first = (await load.send_once(lines[0], load.issue(key))).json()
    answers = await asyncio.gather(*(load.send_once(line, load.refresh(first["refresh_token"])) for line in lines))
    assert sorted(answer.status for answer in answers) == [200] + [400] * (CONCURRENT - 1)
    (second,) = (answer.json() for answer in answers if answer.status == 200)
    after = [
        *(load.call(pair["access_token"]) for pair in (first, second)),
        *(load.refresh(pair["refresh_token"]) for pair in (first, second)),
    ]
    answers = await asyncio.gather(
        *(load.send_once(line, request) for line, request in zip(lines, after, strict=False))
    )
    assert [answer.status for answer in answers] == [401, 401, 400, 400]
