"""How long links and sessions are good, and for how long a failed attempt counts: milliseconds.

By itself, since whoever only deletes what is over needs nothing else of this folder.
Source: docs/interface.md section D11.
"""

LINK_MS = 86_400_000
IDLE_MS = 43_200_000
SESSION_MS = 604_800_000
ATTEMPT_MS = 900_000


def living(now_ms: int) -> dict[str, int]:
    """The moments after which a session that lives was last used, and begun: as our statements name them."""
    return {"idle_since_ms": now_ms - IDLE_MS, "old_since_ms": now_ms - SESSION_MS}
