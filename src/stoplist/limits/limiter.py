"""What every limiter answers, wherever it counts, and in which log each kind of request is counted.

Source: docs/interface.md section D8.
"""

from abc import ABC, abstractmethod

import msgspec

from stoplist.limits.decision import RateDecision

UNKNOWN_PER_MINUTE = 300

Log = tuple[str, ...]
"""The name of a log: its kind, then the client (the source where no client is known), then what divides it further."""


class Limiter(ABC):
    """Counts accepted requests; each call is one atomic decision, and records the request if it is accepted.

    `limit` is the ceiling of that client now: it may differ from one call to the next. `source` is the source
    address as it is counted (an IPv6 address by its /64).
    """

    is_shared = False
    """Whether there is a store in which all processes count together."""

    async def api(self, client_id: str, *, limit: int) -> RateDecision:
        """A request to the API by this client."""
        return await self.acquire(("api", client_id), None, limit=limit)

    async def token_authenticated(self, client_id: str, source: str, *, limit: int) -> RateDecision:
        """A request to the token endpoint that proved a credential of this client."""
        return await self.acquire(("proved", client_id), ("failed", client_id, source), limit=limit)

    async def token_failed(self, client_id: str, source: str, *, limit: int) -> RateDecision:
        """A request to the token endpoint that names this client and proved nothing."""
        return await self.acquire(("failed", client_id, source), ("proved", client_id), limit=limit)

    async def token_unknown(self, source: str) -> RateDecision:
        """A request to the token endpoint that names no known client: 300 a minute from each source."""
        return await self.acquire(("unknown", source), None, limit=UNKNOWN_PER_MINUTE)

    @abstractmethod
    async def acquire(self, own: Log, other: Log | None, *, limit: int) -> RateDecision:
        """Accept and record in `own` if it and `other` together hold fewer than `limit`.

        Of both names the second part is the same: a store spread over several machines keeps them on one.
        """

    @abstractmethod
    async def sweep(self) -> None:
        """Forget the logs in which nothing is counted any more; to be called now and then."""

    async def reconnect(self) -> None:  # noqa: B027 - there is none to look for
        """Go back to the shared store if it was lost and answers again; to be called every second."""

    async def close(self) -> None:  # noqa: B027
        """Let go of the shared store."""

    def health(self) -> "StoreHealth":
        """How the counting stands."""
        return StoreHealth(is_lost=False, decided_alone=0)


class StoreHealth(msgspec.Struct, frozen=True):
    """Whether there is a shared store that does not answer, and how much was decided without it."""

    is_lost: bool
    decided_alone: int
