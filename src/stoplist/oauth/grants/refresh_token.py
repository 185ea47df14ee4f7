"""The `refresh_token` grant (RFC 6749 section 6), with rotation and reuse detection (RFC 9700 section 4.14).

Source: docs/interface.md sections 3.1 and D2 (Rotation and reuse, Refresh with credentials).
"""

from msgspec.structs import replace

from stoplist.actor import Actor
from stoplist.audit import trail
from stoplist.db import Transaction
from stoplist.db.query import load_queries
from stoplist.errors import InvalidClient, InvalidGrant, StoreUnavailable
from stoplist.notices import outbox
from stoplist.notices.model import KEY_REUSE_ALARM
from stoplist.oauth.authentication import find_client, is_authenticated
from stoplist.oauth.grants.client_credentials import refuse_client
from stoplist.oauth.model import Client
from stoplist.oauth.outcome import Outcome, TokenRequest, TokenStores, rate_limited
from stoplist.oauth.store import organizations_of
from stoplist.oauth.tokens import RefreshToken, Rotation, TokenState, find_refresh_token, is_still_unused, rotate_pair

NAME = "refresh_token"
_REVOKE_IF_EPOCH = load_queries("stoplist.oauth")["revoke_if_epoch"]

_ANEW = "get a new pair with client_credentials."
_TEXTS = {
    # Read as active after it could not be rotated: a clock was set back in between.
    TokenState.ACTIVE: f"The refresh token could not be used: {_ANEW}",
    TokenState.EXPIRED: f"The refresh token has expired (30 days after its issue, or at the end of its chain): {_ANEW}",
    TokenState.REVOKED: f"The refresh token has been revoked: {_ANEW}",
    TokenState.ROTATED: "The refresh token was used already, so every access and refresh token of this client has been "
    f"revoked: {_ANEW} Use each refresh token once, and never again after a lost answer.",
}
_UNKNOWN = f"The refresh token is unknown in this environment: send the latest one exactly as received, or {_ANEW}"
_ANOTHER = f"The refresh token was issued to another client: send your own, or {_ANEW}"


async def answer(actor: Actor, stores: TokenStores, request: TokenRequest) -> Outcome:
    """Return the successors of an active refresh token. A rotated token, presented again, revokes all tokens."""
    named_client = await find_client(stores.database, request.presented.client_id)
    if request.presented.has_credentials and not is_authenticated(named_client, request.presented):
        return await refuse_client(stores, named_client, request.source)
    token = await _find(stores, request)
    if _lacks_secret(request, token):
        return await refuse_client(stores, token, request.source, refusal=_secret_needed())
    counted = await _count(stores, request, named_client, token)
    try:
        return await _answer_counted(actor, stores, request, token, counted)
    except StoreUnavailable as error:
        return replace(counted, error=error)


async def _answer_counted(
    actor: Actor, stores: TokenStores, request: TokenRequest, token: RefreshToken | None, counted: Outcome
) -> Outcome:
    if not counted.decision.accepted:
        raised = await _alarm_despite_limit(actor, stores, request, token)
        return replace(counted, error=rate_limited(counted.decision), raised_alarm=raised)
    if token and request.presented.client_id not in (None, token.client_id):
        raised = await _alarm_if_used(actor, stores, token)
        return replace(counted, error=InvalidGrant(_ANOTHER), raised_alarm=raised)
    if token and token.state is TokenState.ACTIVE:
        pair = await rotate_pair(stores.database, stores.clock, _rotation(stores, request, token))
        if pair:
            return replace(counted, pair=pair)
        # Another request, a revocation, the expiry or a change of the key came first.
        token = await _find(stores, request)
        if _lacks_secret(request, token):
            return replace(counted, error=_secret_needed(), is_authenticated=False)
    raised = await _alarm_if_used(actor, stores, token)
    return replace(counted, error=InvalidGrant(_text(token)), raised_alarm=raised)


async def _find(stores: TokenStores, request: TokenRequest) -> RefreshToken | None:
    return await find_refresh_token(
        stores.database, request.refresh_token, stores.clock.now_ms(), chain_days=stores.refresh_chain_days
    )


def _rotation(stores: TokenStores, request: TokenRequest, token: RefreshToken) -> Rotation:
    return Rotation(
        refresh_token=request.refresh_token,
        found=token,
        has_secret=request.presented.has_credentials,
        chain_days=stores.refresh_chain_days,
    )


def _lacks_secret(request: TokenRequest, token: RefreshToken | None) -> bool:
    """Return whether the token's key refreshes with its secret alone, and none was sent; one that was sent is right."""
    return token is not None and token.needs_secret and not request.presented.has_credentials


def _secret_needed() -> InvalidClient:
    return InvalidClient(
        "This key refreshes with its secret alone: send client_id and client_secret, best as HTTP Basic."
    )


async def _count(
    stores: TokenStores, request: TokenRequest, named_client: Client | None, token: RefreshToken | None
) -> Outcome:
    """Count the request against the proved client, else against a known client, else against the source."""
    limiter, source = stores.limiter, request.source
    if request.presented.has_credentials and named_client:
        decision = await limiter.token_authenticated(
            named_client.client_id, source, limit=named_client.token_per_minute
        )
        return Outcome(client_id=named_client.client_id, is_authenticated=True, decision=decision)
    if token and token.is_live:
        decision = await limiter.token_authenticated(token.client_id, source, limit=token.token_per_minute)
        return Outcome(client_id=token.client_id, is_authenticated=True, decision=decision)
    counted_client = named_client or token
    if counted_client:
        decision = await limiter.token_failed(counted_client.client_id, source, limit=counted_client.token_per_minute)
        return Outcome(client_id=counted_client.client_id, decision=decision)
    return Outcome(decision=await limiter.token_unknown(source))


async def _alarm_despite_limit(
    actor: Actor, stores: TokenStores, request: TokenRequest, token: RefreshToken | None
) -> bool:
    """Raise the alarm even though the limit refuses the request: a limit must not hide a theft."""
    if (
        token
        and token.state is TokenState.ACTIVE
        and await _is_rotated_meanwhile(stores, _rotation(stores, request, token))
    ):
        token = await _find(stores, request)
    return await _alarm_if_used(actor, stores, token)


async def _is_rotated_meanwhile(stores: TokenStores, rotation: Rotation) -> bool:
    """Return whether a rotation that was running when the token was read has succeeded since. Changes nothing."""

    async def attempt(transaction: Transaction) -> None:
        if await is_still_unused(transaction, rotation, stores.clock.now_ms()):
            raise _StillUnused

    try:
        await stores.database.write(attempt)
    except _StillUnused:
        return False
    return True


async def _alarm_if_used(actor: Actor, stores: TokenStores, token: RefreshToken | None) -> bool:
    """Revoke every token of the client, once, if the token was rotated under the current epoch.

    Return whether this call did it: of several concurrent calls only one increments the epoch that it saw.
    """
    if token is None or token.state is not TokenState.ROTATED:
        return False
    client_id, epoch = token.client_id, token.epoch

    async def revoke(transaction: Transaction) -> bool:
        if await transaction.one(_REVOKE_IF_EPOCH, client_id=client_id, epoch=epoch) is None:
            return False
        presenter, now_ms = replace(actor, id=client_id), stores.clock.now_ms()
        organizations = await organizations_of(transaction, client_id)
        await trail.record(
            transaction, presenter, "client.reuse_alarm", client_id, at_ms=now_ms, organizations=organizations
        )
        await outbox.add(
            transaction, KEY_REUSE_ALARM, client_id, at_ms=now_ms, organizations=organizations, client_id=client_id
        )
        return True

    return await stores.database.write(revoke)


def _text(token: RefreshToken | None) -> str:
    return _TEXTS[token.state] if token else _UNKNOWN


class _StillUnused(Exception):
    """Rolls back an attempt that must not change anything."""
