"""The only clock and the only chance that the client has, so that tests can set both."""

import random
import time


class Environment:
    """This host's clock, and its dice."""

    def now_s(self) -> float:
        """Seconds since 1970 UTC by this host's clock, which may be wrong."""
        return time.time()

    def jitter(self) -> float:
        """Any number from 0 up to, but not including, 1."""
        return random.random()  # noqa: S311 - it spreads workers over time, and keeps nothing secret
