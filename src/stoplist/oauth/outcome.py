"""A token request and its outcome: the interface between the endpoint and the grants.

A refusal is returned, not raised, because the outcome also says whose limit it counted against.
"""

import msgspec

from stoplist.clock import Clock
from stoplist.db import Database
from stoplist.errors import RateLimited, StoplistError
from stoplist.limits.decision import RateDecision
from stoplist.limits.limiter import Limiter
from stoplist.oauth.authentication import PresentedCredentials
from stoplist.oauth.model import TokenPair


class TokenRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A well-formed request. `source` is the address that limits count by (section D8)."""

    presented: PresentedCredentials
    source: str
    refresh_token: str = ""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """A token pair or an error.

    `client_id` is the known client that the request named; `is_authenticated`: the request proved that client.
    `decision` is that of the rate limits; `raised_alarm`: this request revoked every token of the client.
    """

    pair: TokenPair | None = None
    error: StoplistError | None = None
    client_id: str | None = None
    is_authenticated: bool = False
    decision: RateDecision
    raised_alarm: bool = False


class TokenStores(msgspec.Struct, frozen=True, kw_only=True):
    """The dependencies of every grant. `refresh_chain_days`: the setting of that name; 0 is no end."""

    database: Database
    clock: Clock
    limiter: Limiter
    refresh_chain_days: int = 0


def rate_limited(decision: RateDecision) -> RateLimited:
    """Return the refusal of a request that exceeds the rate limit."""
    return RateLimited(
        f"Too many token requests: the limit is {decision.limit} in 60 seconds. "
        f"Wait {decision.retry_after_s} s, and keep each access token for its 15 minutes.",
        retry_after_s=decision.retry_after_s,
    )
