"""Which limiter the settings mean."""

from stoplist.clock import Clock
from stoplist.limits.limiter import Limiter
from stoplist.limits.memory import MemoryLimiter

IN_PROCESS = "memory:"


async def open_limiter(limits_url: str | None, clock: Clock) -> Limiter:
    """A limiter that counts at the shared store of `limits_url`, or in this process where none is named.

    SettingsError where the address is wrong or the store refuses; one that does not answer is waited for.
    """
    if limits_url is None or limits_url == IN_PROCESS:
        return MemoryLimiter(clock)
    # A start without a store does not spend time on its client.
    from stoplist.limits.shared import SharedLimiter  # noqa: PLC0415
    from stoplist.limits.store import LimitStore  # noqa: PLC0415

    limiter = SharedLimiter(LimitStore.at(limits_url), clock)
    await limiter.open()
    return limiter
