"""Runs flows by hand, with answers that are given beforehand, in a world that stands still."""

from typing import Any, Generic, TypeVar

import msgspec
from stoplist_client.environment import Environment
from stoplist_client.flows.flow import Answer, Flow, NoAnswer, Pause, Send

NOW_S = 1_800_000_000.0  # 2027-01-15 08:00 UTC

T = TypeVar("T")


class FixedEnvironment(Environment):
    """A clock that stands, and chance as it is set."""

    def __init__(self, jitter: float = 0.0) -> None:
        self._jitter = jitter

    def now_s(self) -> float:
        return NOW_S

    def jitter(self) -> float:
        return self._jitter


class Ran(Generic[T]):
    """A flow that is run when it is made: what it sent, how long it waited each time, and what came of it."""

    def __init__(self, flow: Flow[T], *outcomes: Answer | str) -> None:
        """`outcomes` answer one request each; a text is a failure of that kind."""
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
    """An answer with this body, as JSON if it is not bytes; the header `retry_after` stands for `retry-after`."""
    content = body if isinstance(body, bytes) else msgspec.json.encode(body)
    return Answer(
        status=status, headers={name.replace("_", "-"): value for name, value in headers.items()}, body=content
    )
