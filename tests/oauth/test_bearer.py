"""Validity of access tokens, and the client that each stands for: docs/interface.md sections 3.2 and D3."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stoplist import ids
from stoplist.oauth.ceilings import set_ceilings
from stoplist.oauth.credentials import Changes, update_credential
from stoplist.oauth.model import ACCESS_TTL_S, API_PER_MINUTE
from tests.builders import ADMINISTRATOR, find_bearer, sql
from tests.deployment import SharedDatabase, in_loop
from tests.oauth.partner import TokenDeployment, pair_of


@in_loop
async def test_a_token_speaks_for_its_client(deployment: TokenDeployment) -> None:
    """It has the permissions of a new key and the limit of section 8."""
    key = await deployment.new_key()
    pair = await deployment.new_pair(key)
    bearer = await find_bearer(deployment.database, deployment.clock, pair.access_token)
    assert bearer is not None
    assert (bearer.client_id, bearer.api_per_minute) == (key.client_id, API_PER_MINUTE)
    assert bearer.permissions == {"read", "unsubscribe"}


@in_loop
async def test_a_token_expires_at_the_exact_millisecond(deployment: TokenDeployment) -> None:
    """900 seconds after its issue it is invalid, one millisecond earlier it is valid."""
    pair = await deployment.new_pair(await deployment.new_key())
    for seconds, is_alive in ((0, True), (ACCESS_TTL_S - 0.001, True), (0.001, False), (1, False)):
        deployment.clock.advance(seconds)
        assert await deployment.is_alive(pair.access_token) is is_alive


@in_loop
async def test_expiry_is_checked_at_each_request(deployment: TokenDeployment) -> None:
    """If the clock is set back, the token is valid again."""
    pair = await deployment.new_pair(await deployment.new_key())
    deployment.clock.jump(ACCESS_TTL_S)
    assert not await deployment.is_alive(pair.access_token)
    deployment.clock.jump(-0.001)
    assert await deployment.is_alive(pair.access_token)


@in_loop
async def test_a_token_of_an_old_epoch_is_invalid(deployment: TokenDeployment) -> None:
    """Its credential may be active and the token not expired."""
    key = await deployment.new_key()
    old = await deployment.new_pair(key)
    await deployment.revoke(key)
    new = await deployment.new_pair(key)
    assert await deployment.are_alive(old, new) == [False, True]


@in_loop
async def test_a_token_of_an_inactive_credential_is_invalid(deployment: TokenDeployment) -> None:
    """The epoch is the right one: each of the three conditions is checked separately."""
    key = await deployment.new_key()
    pair = await deployment.new_pair(key)
    inactive = sql("UPDATE clients SET is_active = :is_active WHERE client_id = :client_id")
    for is_active in (0, 1):
        await deployment.database.write_one(inactive, is_active=is_active, client_id=key.client_id)
        assert await deployment.is_alive(pair.access_token) is bool(is_active)


@in_loop
async def test_a_refreshed_token_is_valid_for_the_same_client(deployment: TokenDeployment) -> None:
    key = await deployment.new_key()
    pair = pair_of(await deployment.refresh((await deployment.new_pair(key)).refresh_token))
    bearer = await find_bearer(deployment.database, deployment.clock, pair.access_token)
    assert bearer is not None
    assert bearer.client_id == key.client_id


@in_loop
async def test_changes_of_a_credential_apply_to_its_tokens(deployment: TokenDeployment) -> None:
    """Permissions and ceilings belong to the credential and are read with each request."""
    key = await deployment.new_key()
    token = (await deployment.new_pair(key)).access_token
    changes = Changes(permissions=frozenset(("resubscribe",)))
    await update_credential(
        ADMINISTRATOR, deployment.database, deployment.clock, client_id=key.client_id, changes=changes
    )
    await set_ceilings(
        ADMINISTRATOR,
        deployment.database,
        deployment.clock,
        client_id=key.client_id,
        token_per_minute=None,
        api_per_minute=7,
    )
    bearer = await find_bearer(deployment.database, deployment.clock, token)
    assert bearer is not None
    assert bearer.permissions == {"resubscribe"}
    assert bearer.api_per_minute == 7


@pytest.mark.parametrize(
    "what", ["refresh token", "client secret", "client id", "unknown", "cut", "longer", "mistyped", "spaced", "empty"]
)
@in_loop
async def test_only_an_exact_access_token_is_valid(deployment: TokenDeployment, what: str) -> None:
    """Another kind of token, an unknown one, or one with any difference is not."""
    key = await deployment.new_key()
    pair = await deployment.new_pair(key)
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
    assert not await deployment.is_alive(offered[what])
    assert await deployment.is_alive(pair.access_token)


async def offer(deployment: TokenDeployment, text: str) -> None:
    assert not await deployment.is_alive(text)


@given(text=st.text() | st.text().map("svc_at_".__add__) | st.text(min_size=56, max_size=56))
@example(text="\ud800" * 56)
@example(text="svc_at_" + "\0" * 49)
@example(text="svc_at_" + "é" * 49)
@example(text="svc_at_" + "\u0661" * 49)
def test_any_text_is_refused_without_a_server_error(shared_database: SharedDatabase, text: str) -> None:
    shared_database.run(offer(TokenDeployment.on(shared_database), text))
