"""Choose the limiter that the settings ask for."""

from stoplist.clock import Clock
from stoplist.limits.limiter import Limiter
from stoplist.limits.memory import MemoryLimiter

IN_PROCESS = "memory:"


async def open_limiter(limits_url: str | None, clock: Clock) -> Limiter:
    """Return a limiter that counts at the shared store of `limits_url`, or in this process if there is none.

    Raise SettingsError if the address is wrong or the store refuses. A store that does not answer is retried later.
    """
    if limits_url is None or limits_url == IN_PROCESS:
        return MemoryLimiter(clock)
    # A start without a store does not spend time on importing its client.
    from stoplist.limits.shared import SharedLimiter  # noqa: PLC0415
    from stoplist.limits.store import LimitStore  # noqa: PLC0415

    limiter = SharedLimiter(LimitStore.at(limits_url), clock)
    await limiter.open()
    return limiter
