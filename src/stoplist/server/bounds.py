"""The bounds of a connection, and the phases in which its deadlines apply.

Source: docs/interface.md section D4 (head of a request).
"""

import math

import msgspec

# The progress of the request that is being received. IDLE: the previous one is answered, the next has not begun.
# LINGERING: the last answer is sent, and the client has a moment to read it. SHAKING_HANDS: TLS is not established.
NEW, HEAD, BODY, RECEIVED, IDLE, LINGERING, SHAKING_HANDS = range(7)


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """The bounds of a connection in bytes and seconds, of the number of connections, and of incomplete requests."""

    connections: int = 10_000
    connections_per_source: int = 1_000
    # Of all incomplete heads together, and again of all incomplete bodies.
    incomplete_bytes: int = 32 * 1024 * 1024

    head_bytes: int = 64 * 1024
    head_s: float = 60.0
    request_s: float = 60.0
    idle_s: float = 75.0
    unread_s: float = 60.0
    # When all unread answers together take more, clients that read nothing for `stalled_s` lose theirs.
    unread_bytes: int = 64 * 1024 * 1024
    stalled_s: float = 5.0
    linger_s: float = 5.0
    handshake_s: float = 10.0
    sweep_s: float = 1.0

    def deadline_s(self, phase: int) -> float:
        """Return how long a connection may stay in the phase. A received request has no deadline: the server is due."""
        of_phases = (
            *(self.head_s, self.head_s, self.request_s, math.inf),
            *(self.idle_s, self.linger_s, self.handshake_s),
        )
        return of_phases[phase]


class UnreadAnswer:
    """Watches how long a client has read nothing of what waits for it."""

    def __init__(self, now_s: float) -> None:
        self.size_bytes = 0
        """Bytes that waited when they were last noted."""
        self.since_s = now_s
        """The time since which this number has not changed."""

    def waited_s(self, unread_bytes: int, now_s: float) -> float:
        """Note how many bytes wait now, and return for how long their number has not changed; 0 if there are none."""
        if unread_bytes == 0 or unread_bytes != self.size_bytes:
            self.size_bytes, self.since_s = unread_bytes, now_s
            return 0.0
        return now_s - self.since_s
