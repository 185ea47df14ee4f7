"""When a request is sent again, and after how long. Source: docs/interface.md section 8."""

import logging
from collections.abc import Callable

from stoplist_client.environment import Environment
from stoplist_client.errors import TransportFailed
from stoplist_client.flows.answers import retry_after_s
from stoplist_client.flows.flow import Answer, Flow, NoAnswer, pause

LONGEST_WAIT_S = 60.0
_FIRST_WAIT_S = 1.0

_log = logging.getLogger("stoplist_client")


def patiently(send_once: Callable[[], Flow[Answer]], *, environment: Environment, attempts: int) -> Flow[Answer]:
    """The first answer that sending again would not change, or else that of the last attempt; TransportFailed if none.

    Sent again, after a wait, is what got no answer, 429 or 5xx; `attempts` counts all of them together, the first
    included. Only for requests that may be repeated: never for a refresh token.
    """
    for attempt in range(1, attempts):
        try:
            answer = yield from send_once()
        except NoAnswer:
            yield from waited(_backoff_s(environment, attempt), "no answer")
            continue
        if not is_worth_repeating(answer):
            return answer
        yield from waited(wait_s(answer, environment, attempt), f"the service answered {answer.status}")
    try:
        return (yield from send_once())
    except NoAnswer as failure:
        kind = str(failure)
    # Outside of the handler, so that nothing hangs on to what failed.
    raise TransportFailed(f"No answer from the service, {_times(attempts)} tried: {kind}")


def waited(seconds: float, why: str) -> Flow[None]:
    """So many seconds are over; the log says at their beginning what for."""
    _log.info("Waiting %.0f s: %s", seconds, why, extra={"wait_s": seconds})
    yield from pause(seconds)


def is_worth_repeating(answer: Answer) -> bool:
    """Whether the same request may be answered differently in a while."""
    return answer.status == 429 or answer.status >= 500


def wait_s(answer: Answer, environment: Environment, attempt: int = 1) -> float:
    """How long to wait after this answer to attempt number `attempt`: as long as it says and a random bit more.

    That bit is up to a tenth of it, or a second if that is more. Never over 60 s in all. Where it says nothing,
    exponentially longer each time.
    """
    told_s = retry_after_s(answer)
    if told_s is None:
        return _backoff_s(environment, attempt)
    # Of many workers that were told the same second only the first would get through.
    return min(told_s + environment.jitter() * max(1.0, told_s / 10), LONGEST_WAIT_S)


def _backoff_s(environment: Environment, attempt: int) -> float:
    return min(_FIRST_WAIT_S * 2.0 ** (attempt - 1) * (0.5 + environment.jitter()), LONGEST_WAIT_S)


def _times(attempts: int) -> str:
    return "once" if attempts == 1 else f"{attempts} times"
