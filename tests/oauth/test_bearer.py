"""Which access tokens are valid, and whom they speak for: docs/interface.md sections 3.2 and D3."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stoplist import ids
from stoplist.oauth.bearer import find_bearer
from stoplist.oauth.credentials import Changes, set_ceilings, update_credential
from stoplist.oauth.model import ACCESS_TTL_S, API_PER_MINUTE
from tests.builders import ADMINISTRATOR, sql
from tests.oauth.partner import Deployment, InLoop, Service, in_loop, pair_of


@in_loop
async def test_a_token_speaks_for_its_client(service: InLoop) -> None:
    """With the permissions of a new key and the ceiling of section 8."""
    key = await service.new_key()
    pair = await service.new_pair(key)
    bearer = await find_bearer(service.database, service.clock, pair.access_token)
    assert bearer is not None
    assert (bearer.client_id, bearer.api_per_minute) == (key.client_id, API_PER_MINUTE)
    assert bearer.permissions == {"read", "unsubscribe"}


@in_loop
async def test_a_token_dies_at_the_millisecond_of_its_expiry(service: InLoop) -> None:
    """900 seconds after its issue it is invalid, a millisecond before it is not."""
    pair = await service.new_pair(await service.new_key())
    for seconds, is_alive in ((0, True), (ACCESS_TTL_S - 0.001, True), (0.001, False), (1, False)):
        service.clock.advance(seconds)
        assert await service.is_alive(pair.access_token) is is_alive


@in_loop
async def test_time_is_asked_anew_each_time(service: InLoop) -> None:
    """The rule has no memory: a clock that is set back finds the token as it was then."""
    pair = await service.new_pair(await service.new_key())
    service.clock.jump(ACCESS_TTL_S)
    assert not await service.is_alive(pair.access_token)
    service.clock.jump(-0.001)
    assert await service.is_alive(pair.access_token)


@in_loop
async def test_a_token_of_an_old_epoch_is_dead(service: InLoop) -> None:
    """Also where its credential is active and its time has not come."""
    key = await service.new_key()
    old = await service.new_pair(key)
    await service.revoke(key)
    new = await service.new_pair(key)
    assert await service.are_alive(old, new) == [False, True]


@in_loop
async def test_a_token_of_an_inactive_credential_is_dead(service: InLoop) -> None:
    """Even if it had the right epoch: each of the three conditions is looked at by itself."""
    key = await service.new_key()
    pair = await service.new_pair(key)
    inactive = sql("UPDATE clients SET is_active = :is_active WHERE client_id = :client_id")
    for is_active in (0, 1):
        await service.database.write_one(inactive, is_active=is_active, client_id=key.client_id)
        assert await service.is_alive(pair.access_token) is bool(is_active)


@in_loop
async def test_a_successor_is_as_good_as_the_first(service: InLoop) -> None:
    """A refresh gives an access token of the same client."""
    key = await service.new_key()
    pair = pair_of(await service.refresh((await service.new_pair(key)).refresh_token))
    bearer = await find_bearer(service.database, service.clock, pair.access_token)
    assert bearer is not None
    assert bearer.client_id == key.client_id


@in_loop
async def test_what_an_administrator_changes_holds_for_living_tokens(service: InLoop) -> None:
    """Permissions and ceilings belong to the credential, and are read with each request."""
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
async def test_nothing_but_an_access_token_is_one(service: InLoop, what: str) -> None:
    """Another kind of token, an unknown one, and anything that is not one to the letter."""
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
def test_any_text_may_be_offered(deployment: Deployment, text: str) -> None:
    """It is no token, and no fault of the server either."""
    deployment.run(offer(deployment.service(), text))
