"""The lifetimes of links and sessions, and how long a failed attempt counts, in milliseconds.

A module of its own, so that the cleanup imports nothing else of this folder. Source: docs/interface.md section D11.
"""

from stoplist.clock import DAY_MS

LINK_MS = DAY_MS
INVITATION_MS = 7 * DAY_MS
IDLE_MS = 43_200_000
SESSION_MS = 604_800_000
ATTEMPT_MS = 900_000


def active_session_bounds(now_ms: int) -> dict[str, int]:
    """Return the earliest times at which an active session was last used and begun, as the statements name them."""
    return {"idle_since_ms": now_ms - IDLE_MS, "old_since_ms": now_ms - SESSION_MS}
