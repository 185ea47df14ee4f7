"""Which limiter the settings mean."""

from importlib import import_module

from stoplist.clock import Clock
from stoplist.limits.limiter import Limiter
from stoplist.limits.memory import MemoryLimiter

IN_PROCESS = "memory:"


async def open_limiter(limits_url: str | None, clock: Clock) -> Limiter:
    """A limiter that counts at the shared store of `limits_url`, or in this process where none is named.

    SettingsError where the address is wrong or the store refuses; one that does not answer is waited for.
    """
    if limits_url in (None, IN_PROCESS):
        return MemoryLimiter(clock)
    # Loaded by name, so that a start without a store does not spend time on its client.
    store = import_module("stoplist.limits.store").LimitStore.at(limits_url)
    limiter = import_module("stoplist.limits.shared").SharedLimiter(store, clock)
    await limiter.open()
    return limiter  # type: ignore[no-any-return]
