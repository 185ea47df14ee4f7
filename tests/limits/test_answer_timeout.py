"""The timeout of the limit store: the store's own delay counts, the lag of this process does not."""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from stoplist.limits.answer_timeout import answer_timeout


class JumpingSelector(selectors.DefaultSelector):
    """Instead of waiting for a timer, moves the loop's clock to it."""

    now_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.now_s += timeout or 0.0
        return super().select(0)

    def skip(self, seconds: float) -> None:
        """Let time pass in which the process does not run."""
        self.now_s += seconds


def run(main: Callable[[JumpingSelector], Coroutine[Any, Any, None]]) -> None:
    """Run the coroutine on a loop whose clock moves only if it waits, or if the test moves it."""
    selector = JumpingSelector()
    loop = asyncio.SelectorEventLoop(selector)
    loop.time = lambda: selector.now_s  # type: ignore[method-assign]
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(main(selector))


def test_an_answer_that_never_comes_times_out_on_time() -> None:
    async def main(clock: JumpingSelector) -> None:
        with pytest.raises(TimeoutError):
            async with answer_timeout(0.25):
                await asyncio.get_running_loop().create_future()
        assert clock.now_s == pytest.approx(0.25, abs=0.001)

    run(main)


def test_a_stalled_loop_leaves_the_store_its_time() -> None:
    async def main(clock: JumpingSelector) -> None:
        loop = asyncio.get_running_loop()
        async with answer_timeout(0.25):
            for _ in range(5):
                clock.skip(1.0)
                await asyncio.sleep(0.01)
        began_s = clock.now_s
        loop.call_later(0.1, clock.skip, 1.0)
        with pytest.raises(TimeoutError):
            async with answer_timeout(0.25):
                await loop.create_future()
        assert clock.now_s - began_s == pytest.approx(1.25, abs=0.03)

    run(main)


def test_a_block_that_ends_leaves_no_timer() -> None:
    async def main(clock: JumpingSelector) -> None:
        async with answer_timeout(0.25):
            await asyncio.sleep(0.1)
        await asyncio.sleep(1.0)
        assert clock.now_s == pytest.approx(1.1, abs=0.001)

    run(main)
