"""Performs the effects of flows in the calling thread. The asynchronous counterpart is async_driver.py."""

import time
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, TypeVar

import httpx2

from stoplist_client.errors import StoplistClientError
from stoplist_client.flows.flow import Answer, Effect, Flow, NoAnswer, Pause, Send, Take
from stoplist_client.transport import wire
from stoplist_client.transport.deadline import limit_new_stream, limited_to

T = TypeVar("T")


class Driver:
    """Runs flows with blocking requests and sleeps. Any number of threads may share a driver."""

    def __init__(self, options: dict[str, Any], *, total_s: float) -> None:
        self._total_s = total_s
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
        """Let no more requests be sent, and close all connections. May be repeated.

        Requests of other threads end before their connections are closed, those that the service holds within a second.
        """
        if (http := self._connections.close()) is not None:
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
        http = self._connections.acquire()
        try:
            return self._send_with(http, request)
        finally:
            if (unused := self._connections.release()) is not None:
                unused.close()

    def _send_with(self, http: httpx2.Client, request: Send) -> Answer:
        body = bytearray()
        arguments = wire.request_arguments(request, http.timeout)
        arguments["extensions"]["trace"] = limit_new_stream
        is_held = request.read_timeout_s is not None
        try:
            with limited_to(
                wire.total_s(request, self._total_s), is_ended=lambda: is_held and self._connections.is_closed
            ):
                response = http.send(http.build_request(**arguments), stream=True)
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
