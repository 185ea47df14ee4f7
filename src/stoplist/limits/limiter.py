"""The interface of every limiter, and the log in which each kind of request is counted.

Source: docs/interface.md section D8.
"""

from abc import ABC, abstractmethod

import msgspec

from stoplist.limits.decision import RateDecision

UNKNOWN_PER_MINUTE = 300

Log = tuple[str, ...]
"""The name of a log: its kind, then the client (or the source if no client is known), then any subdivision."""


class Limiter(ABC):
    """Counts accepted requests. Each call is one atomic decision, and records the request if it is accepted.

    `limit` is the client's present limit, which may differ from one call to the next. `source` is the source address as
    it is counted (an IPv6 address by its /64).
    """

    is_shared = False
    """True if all processes count together in a store."""

    async def api(self, client_id: str, *, limit: int) -> RateDecision:
        """Decide a request to the API by this client."""
        return await self.acquire(("api", client_id), None, limit=limit)

    async def token_authenticated(self, client_id: str, source: str, *, limit: int) -> RateDecision:
        """Decide a request to the token endpoint that proved a credential of this client."""
        return await self.acquire(("proved", client_id), ("failed", client_id, source), limit=limit)

    async def token_failed(self, client_id: str, source: str, *, limit: int) -> RateDecision:
        """Decide a request to the token endpoint that names this client and proved nothing."""
        return await self.acquire(("failed", client_id, source), ("proved", client_id), limit=limit)

    async def token_unknown(self, source: str) -> RateDecision:
        """Decide a request to the token endpoint that names no known client: 300 a minute from each source."""
        return await self.acquire(("unknown", source), None, limit=UNKNOWN_PER_MINUTE)

    @abstractmethod
    async def acquire(self, own: Log, other: Log | None, *, limit: int) -> RateDecision:
        """Accept and record in `own` if `own` and `other` together hold fewer than `limit`.

        The second part of both names is the same, so a store spread over several machines keeps both logs on one.
        """

    @abstractmethod
    async def sweep(self) -> None:
        """Delete the logs in which nothing is counted any more; called periodically."""

    async def reconnect(self) -> None:  # noqa: B027 - not every limiter has a store
        """Return to the shared store if it was lost and answers again; called every second."""

    async def close(self) -> None:  # noqa: B027
        """Close the connection to the shared store."""

    def health(self) -> "StoreHealth":
        """Return whether the shared store answers."""
        return StoreHealth(is_lost=False, decided_alone=0)


class StoreHealth(msgspec.Struct, frozen=True):
    """`is_lost`: a shared store is configured but does not answer. `decided_alone`: the decisions made without it."""

    is_lost: bool
    decided_alone: int
