"""Whether requests may be sent here: a server that is told to stop says no before it closes its door.

Source: docs/interface.md sections D1 (DRAIN_S) and D10.
"""

import asyncio
import time
from collections.abc import Callable

PROBED_WITHIN_S = 30.0
_TELL_EVERY_S = 5.0


class Readiness:
    """Whether this process is leaving, and whether anybody goes by its word.

    `tell` is called now and then when somebody has asked: the other processes of the same server must know of it too,
    since whoever shares out the requests asks one of them by chance.
    """

    def __init__(self, stop: asyncio.Event, *, tell: Callable[[], None] = lambda: None) -> None:
        self._stop = stop
        self._tell = tell
        self._asked_s = -PROBED_WITHIN_S
        self._told_s = -_TELL_EVERY_S

    @property
    def is_leaving(self) -> bool:
        """Whether it was told to stop."""
        return self._stop.is_set()

    def asked(self) -> None:
        """Somebody asked here whether it is ready."""
        self.note_probe_elsewhere()
        if self._asked_s - self._told_s >= _TELL_EVERY_S:
            self._told_s = self._asked_s
            self._tell()

    def note_probe_elsewhere(self) -> None:
        """Somebody asked another process of the same server."""
        self._asked_s = time.monotonic()

    def notice_s(self, drain_s: float) -> float:
        """How long to accept connections after the stop: half of `drain_s` where somebody asks, else not at all."""
        return drain_s / 2 if time.monotonic() - self._asked_s < PROBED_WITHIN_S else 0.0
