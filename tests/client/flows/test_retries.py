"""Retries of requests. Source: docs/interface.md section 8."""

import random
from functools import partial

import pytest
from stoplist_client.environment import Environment
from stoplist_client.errors import TransportFailed
from stoplist_client.flows.flow import Answer, Flow, Send, send
from stoplist_client.flows.retries import with_retries

from tests.client.flow_runner import FixedEnvironment, FlowRun, answer

REQUEST = Send(method="GET", url="/", headers={})
FINE = answer(200)
LOST = "the connection broke"


def sent_patiently(*, attempts: int = 3, jitter: float = 0.0) -> Flow[Answer]:
    return with_retries(partial(send, REQUEST), environment=FixedEnvironment(jitter), attempts=attempts)


@pytest.mark.parametrize("status", [200, 301, 400, 401, 403, 404, 405])
def test_final_answers_are_not_retried(status: int) -> None:
    """They are 200 and the refusals that are the request's fault."""
    flow_run = FlowRun(sent_patiently(), answer(status))
    assert flow_run.result.status == status
    assert (len(flow_run.sent), flow_run.waited_s) == (1, [])


@pytest.mark.parametrize("failed", [LOST, answer(500), answer(502), answer(503), answer(599), answer(429)])
def test_temporary_failures_are_retried(failed: Answer | str) -> None:
    """No answer, 5xx and 429."""
    flow_run = FlowRun(sent_patiently(), failed, FINE)
    assert flow_run.result is FINE
    assert len(flow_run.waited_s) == 1


def test_waits_grow_exponentially() -> None:
    """The same jitter makes each twice as long as the one before, up to a minute."""
    failures: list[Answer | str] = [LOST, answer(500)] * 4
    flow_run = FlowRun(sent_patiently(attempts=10, jitter=0.5), *failures, LOST, FINE)
    assert flow_run.waited_s == [1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_waits_have_jitter() -> None:
    """Each is half to one and a half times as long, so that workers do not retry at the same time."""
    shortest, longest = (FlowRun(sent_patiently(jitter=jitter), LOST, FINE).waited_s[0] for jitter in (0.0, 0.999))
    assert (shortest, round(longest, 2)) == (0.5, 1.5)


def test_jitter_differs_between_workers_that_seed_alike() -> None:
    """And does not disturb what the application draws."""

    def jitter_of_worker() -> float:
        random.seed(1)
        return Environment().jitter()

    assert jitter_of_worker() != jitter_of_worker()
    assert random.getstate() == random.Random(1).getstate()  # noqa: S311 - what was seeded


@pytest.mark.parametrize("status", [429, 503, 500])
def test_retry_after_is_never_shortened(status: int) -> None:
    """The jitter adds up to a tenth of it, or up to a second."""

    def waited_s(told_s: int, jitter: float) -> float:
        return FlowRun(sent_patiently(jitter=jitter), answer(status, retry_after=str(told_s)), FINE).waited_s[0]

    assert [waited_s(5, 0.0), waited_s(5, 0.5)] == [5.0, 5.5]
    assert [waited_s(40, 0.0), waited_s(40, 0.5)] == [40.0, 42.0]


@pytest.mark.parametrize("told", ["60", "61", "3600", "999999999"])
def test_waits_are_at_most_a_minute(told: str) -> None:
    assert FlowRun(sent_patiently(jitter=0.9), answer(429, retry_after=told), FINE).waited_s == [60.0]


@pytest.mark.parametrize("told", ["soon", "-1", "1.5", "Wed, 21 Oct 2026 07:28:00 GMT", "²", "1" * 5000])
def test_invalid_retry_after_is_ignored(told: str) -> None:
    assert FlowRun(sent_patiently(), answer(503, retry_after=told), FINE).waited_s == [0.5]


def test_all_failures_share_the_attempts() -> None:
    """The last answer is returned."""
    flow_run = FlowRun(sent_patiently(), LOST, answer(429), answer(503))
    assert flow_run.result.status == 503
    assert (len(flow_run.sent), len(flow_run.waited_s)) == (3, 2)


def test_last_failure_without_an_answer_is_raised() -> None:
    """The error has its kind, and holds nothing of the request."""
    flow_run = FlowRun(sent_patiently(), LOST, LOST, "no connection")
    assert isinstance(flow_run.error, TransportFailed)
    assert str(flow_run.error) == "No answer from the service after 3 attempts: no connection"
    assert (flow_run.error.__cause__, flow_run.error.__context__) == (None, None)


def test_one_attempt_means_no_retry() -> None:
    flow_run = FlowRun(sent_patiently(attempts=1), LOST)
    assert isinstance(flow_run.error, TransportFailed)
    assert (len(flow_run.sent), flow_run.waited_s) == (1, [])
