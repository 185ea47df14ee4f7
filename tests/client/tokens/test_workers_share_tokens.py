"""Processes of one host that share the tokens of one key: each refresh token is presented once, by one of them.

TEST_SHARED_TOKENS_S makes the long round last other than a minute.
"""

import os
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.client.partners import Partner
from tests.client.renewing import PATIENCE_S, Process, Rows, processes
from tests.services.managed_program import wait_until

ROUND_S = float(os.environ.get("TEST_SHARED_TOKENS_S", "60"))
# An access token has less than this left as soon as it is there: each call renews it, if nobody else just did.
ALL_THE_TIME_S = 899.999


def kind(number: int) -> str:
    """Every other worker is asynchronous."""
    return ("sync", "async")[number % 2]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_twenty_processes_that_start_together_need_one_token_request(partner: Partner, tmp_path: Path) -> None:
    """And again one when all have been refused."""
    rows = Rows(partner)
    with processes(*[Process(partner, tmp_path, kind(number)) for number in range(20)]) as workers:
        for given in (1, 2, 3):
            for worker in workers:
                worker.call()
            for worker in workers:
                worker.has_made_its_call()
            assert (rows.given, rows.refreshed) == (given, given - 1)
            rows.expire()


@pytest.mark.slow
@pytest.mark.timeout(ROUND_S + 240)
def test_eight_processes_that_renew_all_the_time_raise_no_alarm(partner: Partner, tmp_path: Path) -> None:
    """Each call of each worker renews ahead; now and then all tokens expire or are revoked. None is presented twice."""
    rows = Rows(partner)
    with ExitStack() as stack:
        workers = stack.enter_context(
            processes(*[Process(partner, tmp_path, kind(number), renew_ahead_s=ALL_THE_TIME_S) for number in range(8)])
        )
        for worker in workers:
            worker.go()
        ends_s = time.monotonic() + ROUND_S
        mishaps = 0
        while time.monotonic() < ends_s:
            time.sleep(min(ROUND_S / 20, 3.0))  # not waiting for anything: this long they work undisturbed
            rows.expire() if mishaps % 2 else rows.revoke()
            mishaps += 1
        # However slow the machine is: the round was long enough to tell of.
        wait_until(lambda: rows.refreshed > 10 * mishaps, "ten refreshes for each mishap", seconds=2 * PATIENCE_S)
        calls, refused = zip(*[worker.stop() for worker in workers], strict=True)
    assert rows.alarms == 0
    assert min(calls) > 0
    # Only where what the service had given out just now was ended before it was sent: two mishaps on one call.
    assert sum(refused) < mishaps
    # All but the first session and those after a revocation came by refreshing.
    assert rows.given - rows.refreshed <= 1 + mishaps
    print(f"{sum(calls)} calls, {rows.refreshed} refreshes, {rows.given - rows.refreshed} sessions")  # noqa: T201
