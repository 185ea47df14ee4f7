"""The `client_credentials` grant (RFC 6749 section 4.4): the client's secret for a token pair."""

from stoplist.actor import Actor
from stoplist.errors import InvalidClient, StoreUnavailable
from stoplist.oauth.authentication import find_client, is_authenticated
from stoplist.oauth.model import Client, TokenPair
from stoplist.oauth.outcome import Outcome, TokenRequest, TokenStores, rate_limited
from stoplist.oauth.tokens import RefreshToken, issue_pair

NAME = "client_credentials"


async def answer(actor: Actor, stores: TokenStores, request: TokenRequest) -> Outcome:
    """Return a new pair for an authenticated client. Earlier tokens of the client stay valid."""
    client = await find_client(stores.database, request.presented.client_id)
    if client is None or not is_authenticated(client, request.presented):
        return await refuse_client(stores, client, request.source)
    decision = await stores.limiter.token_authenticated(client.client_id, request.source, limit=client.token_per_minute)
    if not decision.accepted:
        return Outcome(
            error=rate_limited(decision), client_id=client.client_id, is_authenticated=True, decision=decision
        )
    try:
        pair = await _issue(stores, request, client)
    except StoreUnavailable as error:
        return Outcome(error=error, client_id=client.client_id, is_authenticated=True, decision=decision)
    refusal = None if pair else authentication_failed()
    return Outcome(
        pair=pair, error=refusal, client_id=client.client_id, is_authenticated=pair is not None, decision=decision
    )


async def refuse_client(
    stores: TokenStores, client: Client | RefreshToken | None, source: str, *, refusal: InvalidClient | None = None
) -> Outcome:
    """Refuse a failed client authentication, counted against the named client, if it is known, and this source."""
    if client is None:
        decision = await stores.limiter.token_unknown(source)
    else:
        decision = await stores.limiter.token_failed(client.client_id, source, limit=client.token_per_minute)
    error = refusal or authentication_failed() if decision.accepted else rate_limited(decision)
    return Outcome(error=error, client_id=client.client_id if client else None, decision=decision)


def authentication_failed() -> InvalidClient:
    """Return the same error for every reason, so that a stranger cannot tell a wrong secret from an unknown client."""
    return InvalidClient(
        "Client authentication failed: send the client_id and client_secret of an active key of this environment, "
        "best as HTTP Basic."
    )


async def _issue(stores: TokenStores, request: TokenRequest, client: Client) -> TokenPair | None:
    """Return a pair for an authenticated client; None if it was deactivated, or got a new secret, meanwhile."""
    while True:
        if pair := await issue_pair(stores.database, stores.clock, client, chain_days=stores.refresh_chain_days):
            return pair
        # Revoked since its secret was checked. If the secret is still valid, a pair issued now is not revoked.
        current = await find_client(stores.database, client.client_id)
        if current is None or not is_authenticated(current, request.presented):
            return None
        client = current
