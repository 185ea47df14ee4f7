"""When a request is sent again. Source: docs/interface.md section 8."""

from functools import partial

import pytest
from stoplist_client.errors import TransportFailed
from stoplist_client.flows.flow import Answer, Flow, Send, send
from stoplist_client.flows.retries import with_retries

from tests.client.driving import FixedEnvironment, Ran, answer

REQUEST = Send(method="GET", url="/", headers={})
FINE = answer(200)
LOST = "the connection broke"


def sent_patiently(*, attempts: int = 3, jitter: float = 0.0) -> Flow[Answer]:
    return with_retries(partial(send, REQUEST), environment=FixedEnvironment(jitter), attempts=attempts)


@pytest.mark.parametrize("status", [200, 301, 400, 401, 403, 404, 405])
def test_an_answer_that_time_does_not_change_is_final(status: int) -> None:
    """Neither 200 nor a refusal that is the request's own fault is asked for again."""
    ran = Ran(sent_patiently(), answer(status))
    assert ran.result.status == status
    assert (len(ran.sent), ran.waited_s) == (1, [])


@pytest.mark.parametrize("failed", [LOST, answer(500), answer(502), answer(503), answer(599), answer(429)])
def test_what_may_pass_is_tried_again(failed: Answer | str) -> None:
    """No answer, 5xx and 429 are followed by another try."""
    ran = Ran(sent_patiently(), failed, FINE)
    assert ran.result is FINE
    assert len(ran.waited_s) == 1


def test_the_pauses_grow_exponentially() -> None:
    """Each pause is twice as long as the one before, with the same luck, and none is over a minute."""
    failures: list[Answer | str] = [LOST, answer(500)] * 4
    ran = Ran(sent_patiently(attempts=10, jitter=0.5), *failures, LOST, FINE)
    assert ran.waited_s == [1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_the_pauses_are_scattered_by_chance() -> None:
    """Two workers that failed together come back at different times, from half as long to half as long again."""
    shortest, longest = (Ran(sent_patiently(jitter=jitter), LOST, FINE).waited_s[0] for jitter in (0.0, 0.999))
    assert (shortest, round(longest, 2)) == (0.5, 1.5)


@pytest.mark.parametrize("status", [429, 503, 500])
def test_retry_after_is_waited_out(status: int) -> None:
    """A wait that the service names is never cut short; chance adds a tenth of it at most, or a second."""

    def waited_s(told_s: int, jitter: float) -> float:
        return Ran(sent_patiently(jitter=jitter), answer(status, retry_after=str(told_s)), FINE).waited_s[0]

    assert [waited_s(5, 0.0), waited_s(5, 0.5)] == [5.0, 5.5]
    assert [waited_s(40, 0.0), waited_s(40, 0.5)] == [40.0, 42.0]


@pytest.mark.parametrize("told", ["60", "61", "3600", "999999999"])
def test_nobody_waits_longer_than_a_minute(told: str) -> None:
    """Whatever the answer says, and whatever chance adds: 60 s at most."""
    assert Ran(sent_patiently(jitter=0.9), answer(429, retry_after=told), FINE).waited_s == [60.0]


@pytest.mark.parametrize("told", ["soon", "-1", "1.5", "Wed, 21 Oct 2026 07:28:00 GMT", "²", "1" * 5000])
def test_a_retry_after_that_is_no_number_counts_as_none(told: str) -> None:
    """What proxies may send there does not break the client: it backs off as if nothing was said."""
    assert Ran(sent_patiently(), answer(503, retry_after=told), FINE).waited_s == [0.5]


def test_all_kinds_of_failures_share_the_attempts() -> None:
    """Three tries in all, whatever goes wrong with each; then the last answer is given."""
    ran = Ran(sent_patiently(), LOST, answer(429), answer(503))
    assert ran.result.status == 503
    assert (len(ran.sent), len(ran.waited_s)) == (3, 2)


def test_after_the_last_attempt_the_failure_is_told() -> None:
    """Where none of the tries got an answer the error says so, with the kind of the last failure, and holds nothing."""
    ran = Ran(sent_patiently(), LOST, LOST, "no connection")
    assert isinstance(ran.error, TransportFailed)
    assert str(ran.error) == "No answer from the service after 3 attempts: no connection"
    assert (ran.error.__cause__, ran.error.__context__) == (None, None)


def test_one_attempt_means_no_second() -> None:
    """With `attempts=1` nothing is repeated, and nobody waits."""
    ran = Ran(sent_patiently(attempts=1), LOST)
    assert isinstance(ran.error, TransportFailed)
    assert (len(ran.sent), ran.waited_s) == (1, [])
