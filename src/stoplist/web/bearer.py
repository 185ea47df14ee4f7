"""`/api/v1/**`: every request needs a valid bearer token and must be within the rate limit.

Refusals come in this order: HTTPS, token, rate limit, route; an unknown path also needs a token first.
Source: docs/interface.md sections 5 and D3 (RFC 6750).
"""

from stoplist.clock import Clock
from stoplist.db import Database
from stoplist.errors import InvalidToken, RateLimited
from stoplist.limits.headers import rate_limit_headers
from stoplist.limits.limiter import Limiter
from stoplist.oauth.bearer import TokenRefusal, find_bearer
from stoplist.oauth.model import Bearer
from stoplist.source import source_key
from stoplist.web.concurrency_limit import PerSourceConcurrency
from stoplist.web.request_context import API_PATH, AsgiApp, Headers, Receive, Scope, Send, request_context_of

_MISSING = "Send an access token from /oauth/token, as Authorization: Bearer, in one header."
_INVALID = "The access token is unknown, expired or revoked: get a new one from /oauth/token."


class BearerGate:
    """The ASGI application around the routes of the API."""

    def __init__(
        self, routes: AsgiApp, *, database: Database, clock: Clock, limiter: Limiter, concurrency: PerSourceConcurrency
    ) -> None:
        self._routes = routes
        self._database, self._clock, self._limiter, self._concurrency = database, clock, limiter, concurrency

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        context = request_context_of(scope)
        context.route = f"{API_PATH}/*"
        with self._concurrency.acquire(context.source_ip):
            bearer = await _check(scope["headers"], self._database, self._clock)
        if bearer is TokenRefusal.UNKNOWN:
            await self._limit_unknown(context.source_ip)
        bearer = _valid(bearer)
        context.client_id, context.is_authenticated = bearer.client_id, True
        decision = await self._limiter.api(bearer.client_id, limit=bearer.api_per_minute)
        context.headers = rate_limit_headers("api", decision)
        if not decision.accepted:
            raise RateLimited(
                f"Too many requests: the limit is {decision.limit} in 60 seconds for all programs with this key. "
                f"Wait {decision.retry_after_s} s.",
                retry_after_s=decision.retry_after_s,
            )
        scope["stoplist.bearer"] = bearer
        await self._routes(scope, receive, send)

    async def _limit_unknown(self, source_ip: str) -> None:
        """Raise RateLimited if this source has sent too many tokens that nobody was given.

        Expired and revoked tokens are never counted: section 3.2 promises 401 for them.
        """
        decision = await self._limiter.bearer_unknown(source_key(source_ip))
        if not decision.accepted:
            raise RateLimited(
                f"Too many unknown access tokens from this address: the limit is {decision.limit} in 60 seconds. "
                f"Wait {decision.retry_after_s} s, and get a token from /oauth/token.",
                retry_after_s=decision.retry_after_s,
            )


async def require_bearer(headers: Headers, database: Database, clock: Clock) -> Bearer:
    """Return the holder of the request's access token at this moment; InvalidToken if there is none."""
    return _valid(await _check(headers, database, clock))


def bearer_token(headers: Headers) -> str | None:
    """Return the token of `Authorization: Bearer` (scheme in any case), or None unless there is one such header."""
    values = [value for name, value in headers if name == b"authorization"]
    if len(values) != 1:
        return None
    scheme, _, token = values[0].partition(b" ")
    return token.strip(b" ").decode("latin-1") if scheme.lower() == b"bearer" else None


async def _check(headers: Headers, database: Database, clock: Clock) -> Bearer | TokenRefusal:
    token = bearer_token(headers)
    if token is None:
        raise InvalidToken(_MISSING)
    return await find_bearer(database, clock, token)


def _valid(found: Bearer | TokenRefusal) -> Bearer:
    if isinstance(found, TokenRefusal):
        raise InvalidToken(_INVALID)
    return found
