"""What a token request asked and what became of it: the border between the endpoint and the grants.

A refusal is returned, not raised, since an answer also says whose budget it counted against.
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
    """A request that is well formed. `source` is the address that limits count by (section D8)."""

    presented: PresentedCredentials
    source: str
    refresh_token: str = ""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """A pair or an error. `client_id` is the known client that the request named; `is_proved` that it proved it.

    `decision` is what the limits said; `raised_alarm` that this request revoked every token of the client.
    """

    pair: TokenPair | None = None
    error: StoplistError | None = None
    client_id: str | None = None
    is_authenticated: bool = False
    decision: RateDecision
    raised_alarm: bool = False


class TokenStores(msgspec.Struct, frozen=True, kw_only=True):
    """What every grant works with."""

    database: Database
    clock: Clock
    limiter: Limiter


def too_many(decision: RateDecision) -> RateLimited:
    """The refusal of a request that the limits did not let through."""
    return RateLimited(
        f"Too many token requests: the limit is {decision.limit} in 60 seconds. "
        f"Wait {decision.retry_after_s} s, and keep each access token for its 15 minutes.",
        retry_after_s=decision.retry_after_s,
    )
