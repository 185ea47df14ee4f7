"""SIGKILL of renewing workers: the others go on, and no refresh token is presented twice."""

import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.client.partners import Partner
from tests.client.renewal_workers import TokenRows, WorkerProcess, running_workers
from tests.client.tokens.test_workers_share_tokens import ALL_THE_TIME_S, kind
from tests.services.fault_kinds import Hold, is_refresh
from tests.services.faults import Faults

# Of those at a chosen moment one is like another.
CHOSEN_KILLS, RANDOM_KILLS = 6, 20


@pytest.fixture
def between(partner: Partner) -> Iterator[Faults]:
    """A proxy that can hold the answer to a refresh."""
    server = partner.service.server
    with Faults(server.base_url, server.ca.parent) as between:
        yield between


@pytest.mark.slow
def test_killed_between_refresh_and_storing_its_answer(partner: Partner, tmp_path: Path, between: Faults) -> None:
    """The server has rotated the token: the next worker starts a new session."""
    token_rows = TokenRows(partner)

    def new(number: int) -> WorkerProcess:
        return WorkerProcess(partner, tmp_path, kind(number), base_url=between.base_url)

    with running_workers(*[new(number) for number in range(2)]) as workers:
        for number in range(CHOSEN_KILLS):
            victim, survivor = new(number), workers[number % 2]
            workers.append(victim)
            survivor.call()
            survivor.wait_for_call()
            token_rows.expire()
            held = Hold()
            between.next(held, when=is_refresh)
            victim.start_calling()
            held.wait()
            victim.kill()
            held.release()
            assert between.planned == 0
        survivor.call()
        survivor.wait_for_call()
    assert token_rows.refreshed == CHOSEN_KILLS
    assert token_rows.issued == 1 + 2 * CHOSEN_KILLS  # after each kill a new session, and nothing else
    assert token_rows.reuse_alarms == 0


@pytest.mark.slow
def test_killed_at_any_time(partner: Partner, tmp_path: Path) -> None:
    """Four renewing workers are killed and replaced in turn; the others notice nothing."""
    token_rows, rng = TokenRows(partner), random.Random()  # noqa: S311 - any moments will do

    def new(number: int) -> WorkerProcess:
        return WorkerProcess(partner, tmp_path, kind(number), renew_ahead_s=ALL_THE_TIME_S)

    with running_workers(*map(new, range(4))) as workers:
        for worker in workers:
            worker.start_calling()
        for number in range(RANDOM_KILLS):
            victim = workers.pop(0)
            victim.wait_for_first_call()
            time.sleep(rng.random() * 0.1)
            victim.kill()
            workers.append(new(number))
            workers[-1].start_calling()
        for worker in workers:
            worker.wait_for_first_call()
        assert all(answered > 0 == refused for answered, refused in [worker.stop() for worker in workers])
    assert token_rows.refreshed > RANDOM_KILLS
    assert token_rows.reuse_alarms == 0
