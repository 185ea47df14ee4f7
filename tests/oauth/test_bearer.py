"""Which access tokens are valid, and which client each stands for: docs/interface.md sections 3.2 and D3."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stoplist import ids
from stoplist.oauth.bearer import find_bearer
from stoplist.oauth.ceilings import set_ceilings
from stoplist.oauth.credentials import Changes, update_credential
from stoplist.oauth.model import ACCESS_TTL_S, API_PER_MINUTE
from tests.builders import ADMINISTRATOR, sql
from tests.oauth.partner import Deployment, InLoop, Service, in_loop, pair_of


@in_loop
async def test_a_token_speaks_for_its_client(service: InLoop) -> None:
    """With the permissions of a new key and the limit of section 8."""
    key = await service.new_key()
    pair = await service.new_pair(key)
    bearer = await find_bearer(service.database, service.clock, pair.access_token)
    assert bearer is not None
    assert (bearer.client_id, bearer.api_per_minute) == (key.client_id, API_PER_MINUTE)
    assert bearer.permissions == {"read", "unsubscribe"}


@in_loop
async def test_a_token_expires_at_the_exact_millisecond(service: InLoop) -> None:
    """900 seconds after its issue it is invalid, one millisecond earlier it is valid."""
    pair = await service.new_pair(await service.new_key())
    for seconds, is_alive in ((0, True), (ACCESS_TTL_S - 0.001, True), (0.001, False), (1, False)):
        service.clock.advance(seconds)
        assert await service.is_alive(pair.access_token) is is_alive


@in_loop
async def test_expiry_is_checked_at_each_request(service: InLoop) -> None:
    """If the clock is set back, the token is valid again."""
    pair = await service.new_pair(await service.new_key())
    service.clock.jump(ACCESS_TTL_S)
    assert not await service.is_alive(pair.access_token)
    service.clock.jump(-0.001)
    assert await service.is_alive(pair.access_token)


@in_loop
async def test_a_token_of_an_old_epoch_is_invalid(service: InLoop) -> None:
    """Even if its credential is active and it has not expired."""
    key = await service.new_key()
    old = await service.new_pair(key)
    await service.revoke(key)
    new = await service.new_pair(key)
    assert await service.are_alive(old, new) == [False, True]


@in_loop
async def test_a_token_of_an_inactive_credential_is_invalid(service: InLoop) -> None:
    """Even with the right epoch: each of the three conditions is checked separately."""
    key = await service.new_key()
    pair = await service.new_pair(key)
    inactive = sql("UPDATE clients SET is_active = :is_active WHERE client_id = :client_id")
    for is_active in (0, 1):
        await service.database.write_one(inactive, is_active=is_active, client_id=key.client_id)
        assert await service.is_alive(pair.access_token) is bool(is_active)


@in_loop
async def test_a_refreshed_token_is_valid_for_the_same_client(service: InLoop) -> None:
    key = await service.new_key()
    pair = pair_of(await service.refresh((await service.new_pair(key)).refresh_token))
    bearer = await find_bearer(service.database, service.clock, pair.access_token)
    assert bearer is not None
    assert bearer.client_id == key.client_id


@in_loop
async def test_changes_of_a_credential_apply_to_its_tokens(service: InLoop) -> None:
    """Permissions and ceilings belong to the credential and are read with each request."""
    key = await service.new_key()
    token = (await service.new_pair(key)).access_token
    changes = Changes(permissions=frozenset(("resubscribe",)))
    await update_credential(ADMINISTRATOR, service.database, service.clock, client_id=key.client_id, changes=changes)
    await set_ceilings(
        ADMINISTRATOR,
        service.database,
        service.clock,
        client_id=key.client_id,
        token_per_minute=None,
        api_per_minute=7,
    )
    bearer = await find_bearer(service.database, service.clock, token)
    assert bearer is not None
    assert bearer.permissions == {"resubscribe"}
    assert bearer.api_per_minute == 7


@pytest.mark.parametrize(
    "what", ["refresh token", "client secret", "client id", "unknown", "cut", "longer", "mistyped", "spaced", "empty"]
)
@in_loop
async def test_only_an_exact_access_token_is_valid(service: InLoop, what: str) -> None:
    """Not another kind of token, an unknown one, or one with any difference."""
    key = await service.new_key()
    pair = await service.new_pair(key)
    offered = {
        "refresh token": pair.refresh_token,
        "client secret": key.client_secret,
        "client id": key.client_id,
        "unknown": ids.new_secret(ids.ACCESS_TOKEN),
        "cut": pair.access_token[:-1],
        "longer": pair.access_token + "0",
        "mistyped": pair.access_token[:-1] + ("0" if pair.access_token[-1] != "0" else "1"),
        "spaced": pair.access_token + " ",
        "empty": "",
    }
    assert not await service.is_alive(offered[what])
    assert await service.is_alive(pair.access_token)


async def offer(service: Service, text: str) -> None:
    assert not await service.is_alive(text)


@given(text=st.text() | st.text().map("svc_at_".__add__) | st.text(min_size=56, max_size=56))
@example(text="\ud800" * 56)
@example(text="svc_at_" + "\0" * 49)
@example(text="svc_at_" + "é" * 49)
@example(text="svc_at_" + "\u0661" * 49)
def test_any_text_is_refused_without_a_server_error(deployment: Deployment, text: str) -> None:
    deployment.run(offer(deployment.service(), text))
