"""The clock and the random numbers of the client, in one place so that tests can replace both."""

import random
import time

# Not the module's own numbers: an application that seeds these alike in all workers would have all of them wait alike.
_RANDOM = random.SystemRandom()


class Environment:
    """The clock of this host, and random numbers."""

    def now_s(self) -> float:
        """Return the seconds since 1970 UTC by this host's clock, which may be wrong."""
        return time.time()

    def jitter(self) -> float:
        """Return a random number from 0 up to, but not including, 1."""
        return _RANDOM.random()
