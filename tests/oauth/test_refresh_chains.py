"""The absolute end of a chain of refreshes, and keys that refresh with their secret alone.

Source: docs/interface.md section D2 (End of a chain, Refresh with credentials).
"""

import pytest

from stoplist.oauth.authentication import PresentedCredentials
from stoplist.oauth.model import ACCESS_TTL_S, REFRESH_TTL_S, TokenPair
from stoplist.oauth.tokens import chain_left_s
from tests.builders import sql
from tests.constants import DAY_MS, DAY_S
from tests.deployment import in_loop
from tests.oauth.partner import TokenDeployment, answer_of, pair_of

_AS_BY_AN_OLDER_PROGRAM = sql("UPDATE token_pairs SET chain_started_ms = NULL")


def lifetimes(pair: TokenPair) -> tuple[int, int]:
    return pair.expires_in, pair.refresh_expires_in


LEFT_S = {
    (0, 0): REFRESH_TTL_S,
    (0, 10**6 * DAY_MS): REFRESH_TTL_S,
    (1, 0): DAY_S,
    (1, DAY_MS - 1000): 1,
    (1, DAY_MS - 999): 0,
    (1, DAY_MS): 0,
    (1, 2 * DAY_MS): -DAY_S,
    (30, -1): REFRESH_TTL_S,
    (90, 59 * DAY_MS): REFRESH_TTL_S,
    (90, 61 * DAY_MS): 29 * DAY_S,
}


@pytest.mark.parametrize(("chain_days", "age_ms"), LEFT_S)
def test_what_is_left_of_a_chain(chain_days: int, age_ms: int) -> None:
    """It is in whole seconds, never more than a refresh token lives; without an end always that."""
    assert chain_left_s(10**12, 10**12 + age_ms, chain_days=chain_days) == LEFT_S[chain_days, age_ms]


@in_loop
async def test_the_last_tokens_of_a_chain_say_what_is_left(deployment: TokenDeployment) -> None:
    """Neither token outlives the chain, which begins with `client_credentials` and ends whatever is refreshed."""
    deployment.refresh_chain_days = 40
    key = await deployment.new_key()
    pair = await deployment.new_pair(key)
    assert lifetimes(pair) == (ACCESS_TTL_S, REFRESH_TTL_S)
    deployment.clock.advance(29 * DAY_S)
    pair = pair_of(await deployment.refresh(pair.refresh_token))
    assert lifetimes(pair) == (ACCESS_TTL_S, 11 * DAY_S)
    deployment.clock.advance(11 * DAY_S - 60.5)
    last = pair_of(await deployment.refresh(pair.refresh_token))
    assert lifetimes(last) == (60, 60)
    deployment.clock.advance(59.999)
    assert await deployment.is_alive(last.access_token)
    deployment.clock.advance(0.001)
    assert not await deployment.is_alive(last.access_token)
    for token in (last.refresh_token, pair.refresh_token):
        outcome = await deployment.refresh(token)
        assert (answer_of(outcome), outcome.raised_alarm) == ("expired", False)
    assert lifetimes(await deployment.new_pair(key)) == (ACCESS_TTL_S, REFRESH_TTL_S)


@in_loop
async def test_a_chain_without_an_end_lasts(deployment: TokenDeployment) -> None:
    """The default: each rotation gives 30 new days."""
    pair = await deployment.new_pair(await deployment.new_key())
    for _ in range(5):
        deployment.clock.advance(29 * DAY_S)
        pair = pair_of(await deployment.refresh(pair.refresh_token))
        assert lifetimes(pair) == (ACCESS_TTL_S, REFRESH_TTL_S)


@in_loop
async def test_a_new_setting_applies_to_existing_chains(deployment: TokenDeployment) -> None:
    """The start of a chain is stored, not its end. Tokens of an older program begin a chain."""
    key = await deployment.new_key()
    pair = await deployment.new_pair(key)
    deployment.clock.advance(20 * DAY_S)
    pair = pair_of(await deployment.refresh(pair.refresh_token))
    deployment.clock.advance(DAY_S)
    deployment.refresh_chain_days = 21
    assert answer_of(await deployment.refresh(pair.refresh_token)) == "expired"
    deployment.refresh_chain_days = 22
    pair = pair_of(await deployment.refresh(pair.refresh_token))
    assert lifetimes(pair) == (ACCESS_TTL_S, DAY_S)
    deployment.refresh_chain_days = 0
    old = await deployment.new_pair(key)
    await deployment.database.write_one(_AS_BY_AN_OLDER_PROGRAM)
    deployment.clock.advance(DAY_S)
    deployment.refresh_chain_days = 2
    assert lifetimes(pair_of(await deployment.refresh(old.refresh_token))) == (ACCESS_TTL_S, DAY_S)


@in_loop
async def test_a_key_can_refresh_with_its_secret_alone(deployment: TokenDeployment) -> None:
    """Applies to tokens issued before. Without the secret the token is not consumed, and no alarm is raised."""
    key, other = await deployment.new_key(), await deployment.new_key()
    pair = await deployment.new_pair(key)
    used = await deployment.new_pair(key)
    successor = pair_of(await deployment.refresh(used.refresh_token))
    await deployment.need_secret(key)
    deployment.forget_requests()
    for shown in (PresentedCredentials(), key.id_alone, other.id_alone):
        for token in (pair.refresh_token, used.refresh_token):
            outcome = await deployment.refresh(token, shown)
            assert (answer_of(outcome), outcome.client_id) == ("InvalidClient", key.client_id)
            assert (outcome.is_authenticated, outcome.raised_alarm) == (False, False)
    assert await deployment.is_alive(successor.access_token)
    assert answer_of(await deployment.refresh(pair.refresh_token, other.presented)) == "another"
    renewed = pair_of(await deployment.refresh(pair.refresh_token, key.presented))
    assert await deployment.is_alive(renewed.access_token)
    reuse = await deployment.refresh(used.refresh_token, key.presented)
    assert (answer_of(reuse), reuse.raised_alarm) == ("used", True)
    assert await deployment.counted(key.client_id) == (2, 6, 0)


@in_loop
async def test_a_refresh_without_the_secret_is_limited(deployment: TokenDeployment) -> None:
    """It proved nothing, so it counts in the failed log of the token's client and the source."""
    key = await deployment.new_key(per_minute=2)
    pair = await deployment.new_pair(key)
    await deployment.need_secret(key)
    assert answer_of(await deployment.refresh(pair.refresh_token)) == "InvalidClient"
    assert answer_of(await deployment.refresh(pair.refresh_token)) == "RateLimited"
    await deployment.need_secret(key, is_needed=False)
    deployment.clock.advance(60)
    assert answer_of(await deployment.refresh(pair.refresh_token)) == "pair"
