"""What a parent and its workers tell each other."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from stoplist.server.control_channel import ControlChannel, ControlMessage
from stoplist.web.metrics import MetricFamily
from tests.server.serving import PATIENCE_S, on_uvloop

METRICS = [MetricFamily("x", "counter", "Xs.", [("x_total", {"route": "/ä\n\"'"}, 1.5), ("x_total", {}, float(2**60))])]
WORDS = [
    ControlMessage("started"),
    ControlMessage("failed", text="Nö:\nno"),
    ControlMessage("asked"),
    ControlMessage("metrics", metrics=METRICS),
]


@asynccontextmanager
async def pair() -> AsyncIterator[tuple[ControlChannel, socket.socket]]:
    """One end as the product holds it, the other as bytes."""
    ours, theirs = socket.socketpair()
    line = await ControlChannel.over(ours)
    theirs.setblocking(False)
    with theirs:
        try:
            yield line, theirs
        finally:
            await line.close()


async def heard(line: ControlChannel) -> list[ControlMessage]:
    """All that is said until the other side is gone."""
    async with asyncio.timeout(PATIENCE_S):
        return [word async for word in line.messages()]


def test_words_arrive_whole_and_in_order() -> None:
    """Over a real socket pair, in both directions; the end of one side is the end of the words."""

    async def main() -> None:
        first, second = [await ControlChannel.over(end) for end in socket.socketpair()]
        for word in WORDS:
            first.send(word)
            second.send(word)
        await first.close()
        assert await heard(second) == WORDS
        await second.close()

    on_uvloop(main())


def test_a_word_may_be_long() -> None:
    """All metrics of a process are one, and there is no buffer of the system that holds them."""
    many = [MetricFamily(f"m{n}", "counter", "x" * 200, [("s", {"route": f"{n}"}, float(n))]) for n in range(4000)]

    async def main() -> None:
        first, second = [await ControlChannel.over(end) for end in socket.socketpair()]
        first.send(ControlMessage("metrics", metrics=many))
        _, messages = await asyncio.gather(first.close(), heard(second))
        assert [word.metrics for word in messages] == [many]
        await second.close()

    on_uvloop(main())


@pytest.mark.parametrize("end", [b"", b'{"about":"met', b'{"about":"metrics","metrics":[]}'])
def test_half_a_word_of_one_that_was_killed_is_no_word(end: bytes) -> None:
    """Nor an error: the rest of the server goes on."""

    async def main() -> None:
        async with pair() as (line, other):
            await asyncio.get_running_loop().sock_sendall(other, b'{"about":"started"}\n' + end)
            other.close()
            assert await heard(line) == [ControlMessage("started")]

    on_uvloop(main())


def test_nobody_need_listen_any_more() -> None:
    """What is said to one that is gone is lost, now and later."""

    async def main() -> None:
        async with pair() as (line, other):
            other.close()
            for _ in range(3):
                for word in WORDS:
                    line.send(word)
                await asyncio.sleep(0)
            assert await heard(line) == []
            line.send(WORDS[0])

    on_uvloop(main())
