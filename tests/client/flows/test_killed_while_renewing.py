"""kill -9 of workers that renew: those that are left go on, and no refresh token is ever presented a second time."""

import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.client.partners import Partner
from tests.client.renewing import Process, Rows, processes
from tests.client.tokens.test_workers_share_tokens import ALL_THE_TIME_S, kind
from tests.services.fault_kinds import Hold, is_refresh
from tests.services.faults import Faults, faults

KILLS = 30


@pytest.fixture
def between(partner: Partner) -> Iterator[Faults]:
    """What holds the answer to a refresh back."""
    server = partner.service.server
    with faults(server.base_url, server.ca.parent) as between:
        yield between


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_killed_between_sending_a_refresh_and_storing_its_answer(
    partner: Partner, tmp_path: Path, between: Faults
) -> None:
    """The server has rotated the token, and the answer is on its way: whoever comes next starts a new session."""
    rows = Rows(partner)

    def new(number: int) -> Process:
        return Process(partner, tmp_path, kind(number), base_url=between.base_url)

    with processes(*[new(number) for number in range(2)]) as workers:
        for number in range(KILLS):
            victim, survivor = new(number), workers[number % 2]
            workers.append(victim)
            survivor.call()
            survivor.has_made_its_call()
            rows.expire()
            held = Hold()
            between.next(held, when=is_refresh)
            victim.go()
            held.wait()
            victim.kill()
            held.release()
            assert between.planned == 0
        survivor.call()
        survivor.has_made_its_call()
    assert rows.refreshed == KILLS
    assert rows.given == 1 + 2 * KILLS  # after each kill a new session, and nothing else
    assert rows.alarms == 0


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_killed_at_any_moment(partner: Partner, tmp_path: Path) -> None:
    """Of four that renew all the time one after the other is killed and replaced; the others notice nothing."""
    rows, rng = Rows(partner), random.Random()  # noqa: S311 - any moments will do

    def new(number: int) -> Process:
        return Process(partner, tmp_path, kind(number), renew_ahead_s=ALL_THE_TIME_S)

    with processes(*map(new, range(4))) as workers:
        for worker in workers:
            worker.go()
        for number in range(KILLS):
            victim = workers.pop(0)
            victim.has_called()
            time.sleep(rng.random() * 0.1)
            victim.kill()
            workers.append(new(number))
            workers[-1].go()
        for worker in workers:
            worker.has_called()
        assert all(answered > 0 == refused for answered, refused in [worker.stop() for worker in workers])
    assert rows.refreshed > KILLS
    assert rows.alarms == 0
