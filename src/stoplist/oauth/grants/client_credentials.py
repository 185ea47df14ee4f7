"""The `client_credentials` grant (RFC 6749 section 4.4): the client's secret for a token pair."""

from stoplist.actor import Actor
from stoplist.errors import InvalidClient, StoreUnavailable
from stoplist.oauth.authentication import find_client, is_authenticated
from stoplist.oauth.model import Client, TokenPair
from stoplist.oauth.outcome import Outcome, TokenRequest, TokenStores, too_many
from stoplist.oauth.tokens import issue_pair

NAME = "client_credentials"


async def answer(actor: Actor, stores: TokenStores, request: TokenRequest) -> Outcome:
    """A new pair for a client that proves itself. Earlier tokens of the client live on."""
    client = await find_client(stores.database, request.presented.client_id)
    if client is None or not is_authenticated(client, request.presented):
        return await refuse_client(stores, client, request.source)
    decision = await stores.limiter.token_authenticated(client.client_id, request.source, limit=client.token_per_minute)
    if not decision.accepted:
        return Outcome(error=too_many(decision), client_id=client.client_id, is_authenticated=True, decision=decision)
    try:
        pair = await _issue(stores, request, client)
    except StoreUnavailable as error:
        return Outcome(error=error, client_id=client.client_id, is_authenticated=True, decision=decision)
    refusal = None if pair else not_authenticated()
    return Outcome(
        pair=pair, error=refusal, client_id=client.client_id, is_authenticated=pair is not None, decision=decision
    )


async def refuse_client(stores: TokenStores, client: Client | None, source: str) -> Outcome:
    """Failed client authentication: counted against the client that was named, if it is known, and this source."""
    if client is None:
        decision = await stores.limiter.token_unknown(source)
    else:
        decision = await stores.limiter.token_failed(client.client_id, source, limit=client.token_per_minute)
    error = not_authenticated() if decision.accepted else too_many(decision)
    return Outcome(error=error, client_id=client.client_id if client else None, decision=decision)


def not_authenticated() -> InvalidClient:
    """One text for every reason, so that a stranger cannot tell a wrong secret from an unknown or inactive client."""
    return InvalidClient(
        "Client authentication failed: send the client_id and client_secret of an active key of this environment, "
        "best as HTTP Basic."
    )


async def _issue(stores: TokenStores, request: TokenRequest, client: Client) -> TokenPair | None:
    """A pair for a client that proved itself; None if it was deactivated, or given another secret, meanwhile."""
    while True:
        if pair := await issue_pair(stores.database, stores.clock, client):
            return pair
        # Revoked since its secret was checked: one that is still good gets a pair that the revocation leaves alone.
        known = await find_client(stores.database, client.client_id)
        if known is None or not is_authenticated(known, request.presented):
            return None
        client = known
