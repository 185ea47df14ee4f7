"""What every limiter answers, wherever it counts: the seam that a store shared by several processes fits.

Source: docs/interface.md section D8.
"""

from typing import Protocol

from stoplist.limits.decision import Decision

UNKNOWN_PER_MINUTE = 300


class Limiter(Protocol):
    """Counts accepted requests; each call is one atomic decision, and records the request if it is accepted.

    `limit` is the ceiling of that client now: it may differ from one call to the next. `source` is the source
    address as it is counted (an IPv6 address by its /64).
    """

    async def api(self, client_id: str, *, limit: int) -> Decision:
        """A request to the API by this client."""

    async def token_proved(self, client_id: str, source: str, *, limit: int) -> Decision:
        """A request to the token endpoint that proved a credential of this client."""

    async def token_failed(self, client_id: str, source: str, *, limit: int) -> Decision:
        """A request to the token endpoint that names this client and proved nothing."""

    async def token_unknown(self, source: str) -> Decision:
        """A request to the token endpoint that names no known client: 300 a minute from each source."""
