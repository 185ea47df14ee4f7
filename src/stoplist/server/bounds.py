"""The bounds of a connection, and the phases in which its deadlines apply.

Source: docs/interface.md section D4 (head of a request).
"""

import math

import msgspec

# The progress of the request that is being received. IDLE: the previous one is answered, the next has not begun.
# LINGERING: the last answer is sent, and the client has a moment to read it.
NEW, HEAD, BODY, RECEIVED, IDLE, LINGERING = range(6)


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """The bounds of a connection, in bytes and seconds."""

    head_bytes: int = 64 * 1024
    head_s: float = 60.0
    # Longer than the application's own 60 s for a body, whose refusal has the envelope of the endpoint.
    request_s: float = 65.0
    idle_s: float = 75.0
    unread_s: float = 60.0
    linger_s: float = 5.0
    sweep_s: float = 1.0

    def deadline_s(self, phase: int) -> float:
        """Return how long a connection may stay in the phase. A received request has no deadline: the server is due."""
        return (self.head_s, self.head_s, self.request_s, math.inf, self.idle_s, self.linger_s)[phase]


class UnreadAnswer:
    """Watches how long a client has read nothing of what waits for it."""

    def __init__(self, now_s: float) -> None:
        self._bytes = 0
        self._since_s = now_s

    def waited_s(self, unread_bytes: int, now_s: float) -> float:
        """Note how many bytes wait now, and return for how long their number has not changed; 0 if there are none."""
        if unread_bytes == 0 or unread_bytes != self._bytes:
            self._bytes, self._since_s = unread_bytes, now_s
            return 0.0
        return now_s - self._since_s
