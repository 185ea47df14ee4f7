"""Runs flows with prepared answers and a fixed clock."""

from typing import Any, Generic, TypeVar

import msgspec
from stoplist_client.environment import Environment
from stoplist_client.flows.flow import Answer, Flow, NoAnswer, Pause, Send

NOW_S = 1_800_000_000.0  # 2027-01-15 08:00 UTC

T = TypeVar("T")


class FixedEnvironment(Environment):
    """A clock that stands still, and a fixed jitter."""

    def __init__(self, jitter: float = 0.0) -> None:
        self._jitter = jitter

    def now_s(self) -> float:
        return NOW_S

    def jitter(self) -> float:
        return self._jitter


class FlowRun(Generic[T]):
    """Runs a flow at once, and records its requests, its waits and its result."""

    def __init__(self, flow: Flow[T], *outcomes: Answer | str) -> None:
        """Each of `outcomes` answers one request; a text is a failure of that kind."""
        self.sent: list[Send] = []
        self.waited_s: list[float] = []
        self.result: T
        self.error: Exception | None = None
        rest = list(outcomes)
        try:
            effect = next(flow)
            while True:
                if isinstance(effect, Pause):
                    self.waited_s.append(effect.seconds)
                    effect = flow.send(None)
                    continue
                assert isinstance(effect, Send)
                self.sent.append(effect)
                outcome = rest.pop(0)
                effect = flow.throw(NoAnswer(outcome)) if isinstance(outcome, str) else flow.send(outcome)
        except StopIteration as end:
            self.result = end.value
        except Exception as error:
            self.error = error
        assert not rest, "it asked less often than it was expected to"


def answer(status: int = 200, body: Any = None, **headers: str) -> Answer:
    """Return an answer with this body, as JSON unless it is bytes; `retry_after` is the header `retry-after`."""
    content = body if isinstance(body, bytes) else msgspec.json.encode(body)
    return Answer(
        status=status, headers={name.replace("_", "-"): value for name, value in headers.items()}, body=content
    )
