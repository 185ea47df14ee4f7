"""Performs the effects of flows on an event loop. The blocking counterpart is driver.py."""

from collections.abc import AsyncIterator, Awaitable, Callable
from itertools import islice
from typing import Any, TypeVar

import anyio
import anyio.lowlevel
import httpx2
from anyio.lowlevel import RunVar

from stoplist_client.errors import ConfigurationError, StoplistClientError
from stoplist_client.flows.flow import Answer, Effect, Flow, NoAnswer, Pause, Send, Take
from stoplist_client.redacted import Redacted
from stoplist_client.transport import wire

T = TypeVar("T")

_loop: RunVar[object] = RunVar("stoplist_client.transport.async_driver")


class AsyncDriver:
    """Runs flows with asynchronous requests and sleeps. Any number of tasks of one event loop may share a driver."""

    _http: httpx2.AsyncClient | None = None
    _http_loop: object = None

    def __init__(self, options: dict[str, Any], *, total_s: float) -> None:
        self._total_s = total_s
        self._connections = wire.Connections(httpx2.AsyncClient, options)
        self.sleep: Callable[[float], Awaitable[None]] = anyio.sleep

    async def run(self, flow: Flow[T]) -> T:
        """Run a flow, and return its result. The flow is always closed, also if cancelled, and releases its locks."""
        try:
            effect = next(flow)
            while True:
                # The outcome is not assigned to a variable, which a traceback would show.
                try:
                    effect = flow.send(await self._perform(effect))
                except (NoAnswer, StoplistClientError) as failure:
                    effect = flow.throw(failure)  # raises the error again if the flow itself raised it
        except StopIteration as end:
            result: T = end.value
            return result
        except StoplistClientError as error:
            raise wire.without_traceback(error) from None
        finally:
            flow.close()

    async def each(self, next_flow: Callable[[], Flow[Any]]) -> AsyncIterator[Any]:
        """Run one flow after another, and yield their results until one is None."""
        while (result := await self.run(next_flow())) is not None:
            yield result

    async def aclose(self) -> None:
        """Close all connections. No request can be sent afterwards. May be repeated."""
        if self._http is not None:
            self._check_loop(self._http)
        if (http := self._connections.close()) is not None:
            await http.aclose()

    def _check_loop(self, http: httpx2.AsyncClient) -> None:
        """Raise ConfigurationError if the connections were first used in another event loop."""
        if http is not self._http:  # on the first use, or in a forked process
            self._http, self._http_loop = http, _this_loop()
        elif self._http_loop is not _this_loop():
            raise ConfigurationError(
                "This AsyncClient was first used in another event loop, to which its connections belong: use and close "
                "it there, and create another AsyncClient for this loop."
            )

    async def _perform(self, effect: Effect) -> Any:
        match effect:
            case Send():
                return await self._send(effect)
            case Pause():
                return await self.sleep(effect.seconds)
            case Take():
                return await _take(effect)

    async def _send(self, request: Send) -> Answer:
        http = self._connections.get()
        self._check_loop(http)
        body = bytearray()
        try:
            with anyio.fail_after(wire.total_s(request, self._total_s)):
                response = await http.send(
                    http.build_request(**wire.request_arguments(request, http.timeout)), stream=True
                )
                try:
                    async for part in response.aiter_bytes():
                        body += part
                        if len(body) > wire.MAX_ANSWER_BYTES:
                            raise wire.too_large(response)
                finally:
                    await response.aclose()
        except (httpx2.RequestError, TimeoutError) as error:
            failure = wire.to_failure(error)
        else:
            return wire.to_answer(response, body)
        # Outside of the handler, so that the error is not chained to one that holds the request.
        raise failure


def _this_loop() -> object:
    """Return an object that identifies the current event loop."""
    try:
        return _loop.get()
    except LookupError:
        _loop.set(object())
    return _loop.get()


class _RedactedList(Redacted, list[Any]):
    """A list whose elements no traceback shows."""


async def _take(effect: Take) -> list[Any]:
    if not hasattr(effect.source, "__aiter__"):
        await anyio.lowlevel.checkpoint()  # lets other tasks run between slices of a million items
        return list(islice(effect.source, effect.most))
    elements = _RedactedList()
    while len(elements) < effect.most:
        try:
            elements.append(await anext(aiter(effect.source)))
        except StopAsyncIteration:
            break
    return elements
