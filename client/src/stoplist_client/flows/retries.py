"""Retries requests, with waits in between. Source: docs/interface.md section 8."""

import logging
from collections.abc import Callable

from stoplist_client.environment import Environment
from stoplist_client.errors import TransportFailed
from stoplist_client.flows.answers import retry_after_s
from stoplist_client.flows.flow import Answer, Flow, NoAnswer, pause

MAX_WAIT_S = 60.0
_FIRST_WAIT_S = 1.0

_log = logging.getLogger("stoplist_client")


def with_retries(send_once: Callable[[], Flow[Answer]], *, environment: Environment, attempts: int) -> Flow[Answer]:
    """Send a request up to `attempts` times in all, and return the first answer that a retry would not change.

    Retries after a wait if there was no answer, a 429 or a 5xx. If all attempts fail, returns the answer to the last
    one or raises TransportFailed. Only for requests that may be repeated: never for a refresh token.
    """
    for attempt in range(1, attempts):
        try:
            answer = yield from send_once()
        except NoAnswer:
            yield from wait_and_log(_backoff_s(environment, attempt), "no answer")
            continue
        if not is_worth_repeating(answer):
            return answer
        yield from wait_and_log(wait_s(answer, environment, attempt), f"the service answered {answer.status}")
    try:
        return (yield from send_once())
    except NoAnswer as failure:
        kind = str(failure)
    # Outside of the handler, so that the error is not chained to the failure.
    raise TransportFailed(f"No answer from the service after {_count(attempts)}: {kind}")


def wait_and_log(seconds: float, reason: str) -> Flow[None]:
    """Log the reason, then wait this many seconds."""
    _log.info("Waiting %.0f s: %s", seconds, reason, extra={"wait_s": seconds})
    yield from pause(seconds)


def is_worth_repeating(answer: Answer) -> bool:
    """Return whether a retry may be answered differently."""
    return answer.status == 429 or answer.status >= 500


def wait_s(answer: Answer, environment: Environment, attempt: int = 1) -> float:
    """Return the wait after this answer to attempt number `attempt`: its Retry-After plus jitter, 60 s at most.

    The jitter is up to a tenth of Retry-After, or up to a second if that is more. Without Retry-After, the wait grows
    exponentially.
    """
    requested_s = retry_after_s(answer)
    if requested_s is None:
        return _backoff_s(environment, attempt)
    # Without jitter, workers with the same Retry-After would collide, and only the first would get through.
    return min(requested_s + environment.jitter() * max(1.0, requested_s / 10), MAX_WAIT_S)


def _backoff_s(environment: Environment, attempt: int) -> float:
    return min(_FIRST_WAIT_S * 2.0 ** (attempt - 1) * (0.5 + environment.jitter()), MAX_WAIT_S)


def _count(attempts: int) -> str:
    return "1 attempt" if attempts == 1 else f"{attempts} attempts"
