"""Performs what flows ask for, on an event loop. Its like for threads is driver.py."""

from collections.abc import AsyncIterator, Awaitable, Callable
from itertools import islice
from typing import Any, TypeVar

import anyio
import anyio.lowlevel
import httpx2

from stoplist_client import transport
from stoplist_client.errors import StoplistClientError
from stoplist_client.flow import Answer, Effect, Flow, NoAnswer, Pause, Send, Take

T = TypeVar("T")


class AsyncDriver:
    """The network and the passing of time. Any number of tasks of one event loop may share it."""

    def __init__(self, options: dict[str, Any]) -> None:
        self._connections = transport.Connections(httpx2.AsyncClient, options)
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
            raise transport.bare(error) from None
        finally:
            flow.close()

    async def each(self, further: Callable[[], Flow[Any]]) -> AsyncIterator[Any]:
        """What flow after flow returns, until one returns None."""
        while (result := await self.run(further())) is not None:
            yield result

    async def aclose(self) -> None:
        """All connections are closed, and no request is sent any more. May be repeated."""
        if (http := self._connections.given_up()) is not None:
            await http.aclose()

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
        body = bytearray()
        try:
            response = await http.send(http.build_request(**transport.arguments(request)), stream=True)
            try:
                async for part in response.aiter_bytes():
                    body += part
                    if len(body) > transport.MOST_ANSWER_BYTES:
                        raise transport.too_large(response)
            finally:
                await response.aclose()
        except httpx2.RequestError as error:
            failure = transport.failure(error)
        else:
            return transport.answered(response, body)
        # Outside of the handler: what is thrown must not hold on to the request.
        raise failure


async def _taken(effect: Take) -> list[Any]:
    if not hasattr(effect.source, "__anext__"):
        await anyio.lowlevel.checkpoint()  # a million items must not keep others from their turn
        return list(islice(effect.source, effect.most))
    taken: list[Any] = []
    while len(taken) < effect.most:
        try:
            taken.append(await anext(effect.source))
        except StopAsyncIteration:
            break
    return taken
