"""Performs what flows ask for, in the thread that asks. Its like for event loops is async_driver.py."""

import time
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, TypeVar

import httpx2

from stoplist_client.errors import StoplistClientError
from stoplist_client.flows.flow import Answer, Effect, Flow, NoAnswer, Pause, Send, Take
from stoplist_client.transport import wire

T = TypeVar("T")


class Driver:
    """The network and the passing of time. Any number of threads may share it."""

    def __init__(self, options: dict[str, Any]) -> None:
        self._connections = wire.Connections(httpx2.Client, options)
        self.sleep: Callable[[float], None] = time.sleep

    def run(self, flow: Flow[T]) -> T:
        """What the flow returns. Whatever ends it early, it is closed, and so lets go of what it holds."""
        try:
            effect = next(flow)
            while True:
                # The outcome gets no name here: tracebacks show what has one.
                try:
                    effect = flow.send(self._perform(effect))
                except (NoAnswer, StoplistClientError) as failure:
                    effect = flow.throw(failure)  # or, if it was the flow's own last word, raises it again
        except StopIteration as end:
            result: T = end.value
            return result
        except StoplistClientError as error:
            raise wire.bare(error) from None
        finally:
            flow.close()

    def each(self, further: Callable[[], Flow[Any]]) -> Iterator[Any]:
        """What flow after flow returns, until one returns None."""
        while (result := self.run(further())) is not None:
            yield result

    def close(self) -> None:
        """All connections are closed, and no request is sent any more. May be repeated."""
        if (http := self._connections.given_up()) is not None:
            http.close()

    def _perform(self, effect: Effect) -> Any:
        match effect:
            case Send():
                return self._sent(effect)
            case Pause():
                return self.sleep(effect.seconds)
            case Take():
                return list(islice(effect.source, effect.most))

    def _sent(self, request: Send) -> Answer:
        http = self._connections.own()
        body = bytearray()
        try:
            response = http.send(http.build_request(**wire.arguments(request)), stream=True)
            try:
                for part in response.iter_bytes():
                    body += part
                    if len(body) > wire.MOST_ANSWER_BYTES:
                        raise wire.too_large(response)
            finally:
                response.close()
        except httpx2.RequestError as error:
            failure = wire.failure(error)
        else:
            return wire.answered(response, body)
        # Outside of the handler: what is thrown must not hold on to the request.
        raise failure
