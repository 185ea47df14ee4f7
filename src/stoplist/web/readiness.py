"""Readiness: a stopping server reports that it is not ready before it refuses connections.

Source: docs/interface.md sections D1 (DRAIN_S) and D10.
"""

import asyncio
import time
from collections.abc import Callable

PROBED_WITHIN_S = 30.0
_ANNOUNCE_EVERY_S = 5.0


class Readiness:
    """Knows whether this process is stopping, and whether a load balancer has probed it recently.

    `on_probe` is called for a probe, at most every few seconds: the other processes of the same server must learn of
    it, since a balancer reaches one of them by chance.
    """

    def __init__(self, stop: asyncio.Event, *, on_probe: Callable[[], None] = lambda: None) -> None:
        self._stop = stop
        self._on_probe = on_probe
        self._probed_s = -PROBED_WITHIN_S
        self._announced_s = -_ANNOUNCE_EVERY_S

    @property
    def is_leaving(self) -> bool:
        """Return whether the process was told to stop."""
        return self._stop.is_set()

    def note_probe(self) -> None:
        """Note that this process was probed for readiness."""
        self.note_probe_elsewhere()
        if self._probed_s - self._announced_s >= _ANNOUNCE_EVERY_S:
            self._announced_s = self._probed_s
            self._on_probe()

    def note_probe_elsewhere(self) -> None:
        """Note that another process of the same server was probed."""
        self._probed_s = time.monotonic()

    def notice_s(self, drain_s: float) -> float:
        """Return how long to accept connections after the stop: half of `drain_s` if probed recently, else 0."""
        return drain_s / 2 if time.monotonic() - self._probed_s < PROBED_WITHIN_S else 0.0
