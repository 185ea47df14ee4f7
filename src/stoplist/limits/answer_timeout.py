"""A timeout for the limit store in which delays of this process do not count.

On a busy machine an answer may have arrived long before the loop reads it. A plain timeout would then give up a healthy
store, and the process would count alone.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

_TICKS = 10


@asynccontextmanager
async def answer_timeout(timeout_s: float) -> AsyncIterator[None]:
    """Raise TimeoutError if the block takes more than `timeout_s` seconds; the lag of the loop is not counted.

    The time is counted in ten ticks of the loop. A tick that is late counts for no more than one on time, so a loop
    that runs late gives the store as much more time.
    Source: docs/interface.md section D8.
    """
    loop = asyncio.get_running_loop()
    tick_s = timeout_s / _TICKS
    ticks_left = _TICKS
    timer: asyncio.TimerHandle

    def tick() -> None:
        nonlocal ticks_left, timer
        ticks_left -= 1
        if ticks_left:
            timer = loop.call_later(tick_s, tick)
        else:
            timeout.reschedule(loop.time())

    timer = loop.call_later(tick_s, tick)
    async with asyncio.timeout(None) as timeout:
        try:
            yield
        finally:
            timer.cancel()
