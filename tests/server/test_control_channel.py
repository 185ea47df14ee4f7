"""The messages between a supervisor and its workers."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from stoplist.server.control_channel import ControlChannel, ControlMessage
from stoplist.web.metrics import MetricFamily
from tests.constants import PATIENCE_S
from tests.server.serving import in_uvloop

pytestmark = pytest.mark.interpreter

METRICS = [MetricFamily("x", "counter", "Xs.", [("x_total", {"route": "/ä\n\"'"}, 1.5), ("x_total", {}, float(2**60))])]
MESSAGES = [
    ControlMessage("started"),
    ControlMessage("failed", text="Nö:\nno"),
    ControlMessage("readiness_probe"),
    ControlMessage("metrics", metrics=METRICS),
]


@asynccontextmanager
async def pair() -> AsyncIterator[tuple[ControlChannel, socket.socket]]:
    """Yield a channel, and the other end as a socket."""
    ours, theirs = socket.socketpair()
    channel = await ControlChannel.over(ours)
    theirs.setblocking(False)
    with theirs:
        try:
            yield channel, theirs
        finally:
            await channel.close()


async def received(channel: ControlChannel) -> list[ControlMessage]:
    """Return all messages until the other side is gone."""
    async with asyncio.timeout(PATIENCE_S):
        return [message async for message in channel.messages()]


@in_uvloop
async def test_messages_arrive_whole_and_in_order() -> None:
    """A real socket pair carries them in both directions, until one side closes."""
    first, second = [await ControlChannel.over(end) for end in socket.socketpair()]
    for message in MESSAGES:
        first.send(message)
        second.send(message)
    await first.close()
    assert await received(second) == MESSAGES
    await second.close()


@in_uvloop
async def test_a_message_may_be_larger_than_any_buffer() -> None:
    """All metrics of a process are one message."""
    many = [MetricFamily(f"m{n}", "counter", "x" * 200, [("s", {"route": f"{n}"}, float(n))]) for n in range(4000)]
    first, second = [await ControlChannel.over(end) for end in socket.socketpair()]
    first.send(ControlMessage("metrics", metrics=many))
    _, messages = await asyncio.gather(first.close(), received(second))
    assert [message.metrics for message in messages] == [many]
    await second.close()


@pytest.mark.parametrize("end", [b"", b'{"about":"met', b'{"about":"metrics","metrics":[]}'])
@in_uvloop
async def test_half_a_message_of_a_killed_process_is_dropped(end: bytes) -> None:
    """It is no error either: the rest of the server goes on."""
    async with pair() as (channel, other):
        await asyncio.get_running_loop().sock_sendall(other, b'{"about":"started"}\n' + end)
        other.close()
        assert await received(channel) == [ControlMessage("started")]


@in_uvloop
async def test_messages_to_a_closed_channel_are_lost() -> None:
    """Sending to a side that is gone raises nothing, now or later."""
    async with pair() as (channel, other):
        other.close()
        for _ in range(3):
            for message in MESSAGES:
                channel.send(message)
            await asyncio.sleep(0)
        assert await received(channel) == []
        channel.send(MESSAGES[0])
