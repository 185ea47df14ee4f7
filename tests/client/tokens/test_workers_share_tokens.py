"""Processes of one host that share the tokens of one key: each refresh token is presented once."""

from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from tests.client.partners import Partner
from tests.client.renewal_workers import TokenRows, WorkerProcess, running_workers
from tests.services.managed_program import wait_until

MISHAPS, REFRESHES_BEFORE_EACH = 20, 20
# Longer than the life of an access token: each call renews it, unless another worker has just done so.
ALL_THE_TIME_S = 899.999


def kind(number: int) -> str:
    """Return the kind of a worker; every second one is asynchronous."""
    return ("sync", "async")[number % 2]


@pytest.mark.slow
def test_twenty_new_processes_make_one_token_request(partner: Partner, tmp_path: Path) -> None:
    """They make another one after all tokens were refused."""
    token_rows = TokenRows(partner)
    with running_workers(*[WorkerProcess(partner, tmp_path, kind(number)) for number in range(20)]) as workers:
        for issued in (1, 2, 3):
            for worker in workers:
                worker.call()
            for worker in workers:
                worker.wait_for_call()
            assert (token_rows.issued, token_rows.refreshed) == (issued, issued - 1)
            token_rows.expire()


@pytest.mark.slow
def test_eight_renewing_processes_raise_no_alarm(partner: Partner, tmp_path: Path) -> None:
    """Each call renews ahead; tokens expire or are revoked now and then. None is presented twice."""
    token_rows = TokenRows(partner)
    with ExitStack() as stack:
        workers = stack.enter_context(
            running_workers(
                *[WorkerProcess(partner, tmp_path, kind(number), renew_ahead_s=ALL_THE_TIME_S) for number in range(8)]
            )
        )
        for worker in workers:
            worker.start_calling()
        for mishap in range(MISHAPS):
            enough = token_rows.refreshed + REFRESHES_BEFORE_EACH
            wait_until(partial(token_rows.have_refreshed, enough), "them to work undisturbed")
            token_rows.expire() if mishap % 2 else token_rows.revoke()
        calls, refused = zip(*[worker.stop() for worker in workers], strict=True)
    assert token_rows.reuse_alarms == 0
    assert min(calls) > 0
    # Only if new tokens were ended before they were sent: two faults in one call.
    assert sum(refused) < MISHAPS
    # All tokens except those of the first session and after revocations came from a refresh.
    assert token_rows.issued - token_rows.refreshed <= 1 + MISHAPS
    print(f"{sum(calls)} calls, {token_rows.refreshed} refreshes, {token_rows.issued - token_rows.refreshed} sessions")  # noqa: T201
