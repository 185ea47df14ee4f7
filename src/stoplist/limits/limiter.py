"""The interface of every limiter, and the log in which each kind of request is counted.

Source: docs/interface.md section D8.
"""

from abc import ABC, abstractmethod
from typing import NamedTuple

import msgspec

from stoplist.limits.decision import RateDecision
from stoplist.source import SOURCES_PER_NETWORK, wider_source_key

UNKNOWN_PER_MINUTE = 300
UNKNOWN_LINKS_PER_MINUTE = 60

Log = tuple[str, ...]
"""The name of a log: its kind, then the client (or the source if no client is known), then any subdivision."""


class Wider(NamedTuple):
    """A log that also records a request, and must hold fewer than `limit`: that of the /48 of an IPv6 source."""

    log: Log
    limit: int


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
        network = wider_source_key(source)
        wider = None if network is None else Wider(("failed", client_id, network), SOURCES_PER_NETWORK * limit)
        return await self.acquire(("failed", client_id, source), ("proved", client_id), limit=limit, wider=wider)

    async def token_unknown(self, source: str) -> RateDecision:
        """Decide a request to the token endpoint that names no known client: 300 a minute from each source."""
        return await self._of_stranger("unknown", source, limit=UNKNOWN_PER_MINUTE)

    async def bearer_unknown(self, source: str) -> RateDecision:
        """Decide a request to the API with a token that nobody was given: 300 a minute from each source."""
        return await self._of_stranger("bearer", source, limit=UNKNOWN_PER_MINUTE)

    async def link_unknown(self, source: str) -> RateDecision:
        """Decide a request with an opt-out link that nobody made: 60 a minute from each source."""
        return await self._of_stranger("link", source, limit=UNKNOWN_LINKS_PER_MINUTE)

    async def _of_stranger(self, kind: str, source: str, *, limit: int) -> RateDecision:
        if (network := wider_source_key(source)) is None:
            return await self.acquire((kind, source), None, limit=limit)
        wider = Wider((kind, network), SOURCES_PER_NETWORK * limit)
        return await self.acquire((kind, network, source), None, limit=limit, wider=wider)

    @abstractmethod
    async def acquire(self, own: Log, other: Log | None, *, limit: int, wider: Wider | None = None) -> RateDecision:
        """Accept and record in `own` and `wider` if `own` and `other` together, and `wider`, hold fewer than allowed.

        The second part of all names is the same, so a store spread over several machines keeps the logs on one.
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
