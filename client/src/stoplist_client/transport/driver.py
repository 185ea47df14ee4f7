"""Performs the effects of flows in the calling thread. The asynchronous counterpart is async_driver.py."""

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
    """Runs flows with blocking requests and sleeps. Any number of threads may share a driver."""

    def __init__(self, options: dict[str, Any]) -> None:
        self._connections = wire.Connections(httpx2.Client, options)
        self.sleep: Callable[[float], None] = time.sleep

    def run(self, flow: Flow[T]) -> T:
        """Run a flow, and return its result. The flow is always closed, and so releases the locks that it holds."""
        try:
            effect = next(flow)
            while True:
                # The outcome is not assigned to a variable, which a traceback would show.
                try:
                    effect = flow.send(self._perform(effect))
                except (NoAnswer, StoplistClientError) as failure:
                    effect = flow.throw(failure)  # raises the error again if the flow itself raised it
        except StopIteration as end:
            result: T = end.value
            return result
        except StoplistClientError as error:
            raise wire.without_traceback(error) from None
        finally:
            flow.close()

    def each(self, next_flow: Callable[[], Flow[Any]]) -> Iterator[Any]:
        """Run one flow after another, and yield their results until one is None."""
        while (result := self.run(next_flow())) is not None:
            yield result

    def close(self) -> None:
        """Close all connections. No request can be sent afterwards. May be repeated."""
        if (http := self._connections.detach()) is not None:
            http.close()

    def _perform(self, effect: Effect) -> Any:
        match effect:
            case Send():
                return self._send(effect)
            case Pause():
                return self.sleep(effect.seconds)
            case Take():
                return list(islice(effect.source, effect.most))

    def _send(self, request: Send) -> Answer:
        http = self._connections.get()
        body = bytearray()
        try:
            response = http.send(http.build_request(**wire.request_arguments(request)), stream=True)
            try:
                for part in response.iter_bytes():
                    body += part
                    if len(body) > wire.MAX_ANSWER_BYTES:
                        raise wire.too_large(response)
            finally:
                response.close()
        except httpx2.RequestError as error:
            failure = wire.to_failure(error)
        else:
            return wire.to_answer(response, body)
        # Outside of the handler, so that the error is not chained to one that holds the request.
        raise failure
