"""Performs what flows ask for, on an event loop. Its like for threads is driver.py."""

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
    """The network and the passing of time. Any number of tasks of one event loop may share it."""

    _own: httpx2.AsyncClient | None = None
    _own_loop: object = None

    def __init__(self, options: dict[str, Any]) -> None:
        self._connections = wire.Connections(httpx2.AsyncClient, options)
        self.sleep: Callable[[float], Awaitable[None]] = anyio.sleep

    async def run(self, flow: Flow[T]) -> T:
        """What the flow returns. Whatever ends it early, also a cancellation, it is closed, and so lets go of all."""
        try:
            effect = next(flow)
            while True:
                # The outcome gets no name here: tracebacks show what has one.
                try:
                    effect = flow.send(await self._perform(effect))
                except (NoAnswer, StoplistClientError) as failure:
                    effect = flow.throw(failure)  # or, if it was the flow's own last word, raises it again
        except StopIteration as end:
            result: T = end.value
            return result
        except StoplistClientError as error:
            raise wire.bare(error) from None
        finally:
            flow.close()

    async def each(self, further: Callable[[], Flow[Any]]) -> AsyncIterator[Any]:
        """What flow after flow returns, until one returns None."""
        while (result := await self.run(further())) is not None:
            yield result

    async def aclose(self) -> None:
        """All connections are closed, and no request is sent any more. May be repeated."""
        if self._own is not None:
            self._check_loop(self._own)
        if (http := self._connections.given_up()) is not None:
            await http.aclose()

    def _check_loop(self, http: httpx2.AsyncClient) -> None:
        """Connections are of the event loop in which they were first used; ConfigurationError in any other."""
        if http is not self._own:  # at first, or in a process that was forked off
            self._own, self._own_loop = http, _this_loop()
        elif self._own_loop is not _this_loop():
            raise ConfigurationError(
                "This AsyncClient was used in another event loop, which its connections are of: use and close it in "
                "that one, and make another AsyncClient for each further loop."
            )

    async def _perform(self, effect: Effect) -> Any:
        match effect:
            case Send():
                return await self._sent(effect)
            case Pause():
                return await self.sleep(effect.seconds)
            case Take():
                return await _taken(effect)

    async def _sent(self, request: Send) -> Answer:
        http = self._connections.own()
        self._check_loop(http)
        body = bytearray()
        try:
            response = await http.send(http.build_request(**wire.arguments(request)), stream=True)
            try:
                async for part in response.aiter_bytes():
                    body += part
                    if len(body) > wire.MOST_ANSWER_BYTES:
                        raise wire.too_large(response)
            finally:
                await response.aclose()
        except httpx2.RequestError as error:
            failure = wire.failure(error)
        else:
            return wire.answered(response, body)
        # Outside of the handler: what is thrown must not hold on to the request.
        raise failure


def _this_loop() -> object:
    """The same object each time in one event loop, and in no other."""
    try:
        return _loop.get()
    except LookupError:
        _loop.set(object())
    return _loop.get()


class _Taken(Redacted, list[Any]):
    """Elements that no traceback shows, if the next one cannot be read."""


async def _taken(effect: Take) -> list[Any]:
    if not hasattr(effect.source, "__aiter__"):
        await anyio.lowlevel.checkpoint()  # a million items must not keep others from their turn
        return list(islice(effect.source, effect.most))
    taken = _Taken()
    while len(taken) < effect.most:
        try:
            taken.append(await anext(aiter(effect.source)))
        except StopAsyncIteration:
            break
    return taken
