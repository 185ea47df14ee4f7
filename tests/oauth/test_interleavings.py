"""Concurrent operations on tokens, in every order of statements: docs/interface.md sections 3.1 and D2.

Two concurrent operations must have the effect of running one after the other, in an order that agrees with their
answers. On PostgreSQL every order of their statements is run; SQLite has a single writer.
"""

import asyncio
import functools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from stoplist import ids
from stoplist.db import Database
from stoplist.db.postgresql import Postgresql
from stoplist.limits.decision import RateDecision
from stoplist.limits.memory import MemoryLimiter
from stoplist.oauth.authentication import PresentedCredentials
from stoplist.oauth.model import TokenPair
from stoplist.oauth.outcome import Outcome
from tests import interleaving
from tests.builders import execute, value
from tests.deployment import in_own_loop
from tests.fakes import FakeClock
from tests.interleaving import Order, Scheduler, Step, Work, open_scheduler
from tests.keys import Key
from tests.oauth.partner import NO_CREDENTIALS, TokenDeployment, answer_of, pair_of, token_deployment

# Hundreds of orders each, which take long on a busy machine.
pytestmark = pytest.mark.slow

ROUNDS = 20
AT_ONCE = 32

COMMITTED = Step("other", "COMMIT")
ALARM = "client.reuse_alarm"
Act = Callable[[TokenDeployment, Key], Awaitable[Any]]
REVOCATIONS: dict[str, Act] = {
    "key.deactivate": TokenDeployment.deactivate,
    "key.revoke_tokens": TokenDeployment.revoke,
    "key.rotate_secret": TokenDeployment.rotate_secret,
}


class TokenScenario:
    """A scheduler, a deployment to inspect the outcome, and the key that is used."""

    def __init__(self, deployment: TokenDeployment, scheduler: Scheduler, key: Key, stranger: Key) -> None:
        self.deployment = deployment
        self.scheduler = scheduler
        self.key = key
        self.stranger = stranger
        self.pair: TokenPair

    async def reset(self) -> None:
        """Create one active key with one pair that was never refreshed."""
        await self.deployment.forget_tokens()
        await execute(
            self.deployment.database,
            "UPDATE clients SET epoch = 1, is_active = 1, secret_hash = CAST(:secret AS bytea) "
            "WHERE client_id = :client_id",
            client_id=self.key.client_id,
            secret=ids.hash_secret(self.key.client_secret),
        )
        self.pair = await self.deployment.new_pair(self.key)

    def refresh(
        self,
        pair: TokenPair | None = None,
        *,
        presented: PresentedCredentials = NO_CREDENTIALS,
        limiter: MemoryLimiter | None = None,
    ) -> Work:
        """Return a participant that presents a refresh token, by default that of the scenario's pair."""
        refresh_token = (pair or self.pair).refresh_token

        async def work(database: Postgresql) -> Outcome:
            return await self._at(database, limiter).refresh(refresh_token, presented)

        return work

    def issue(self) -> Work:
        """Return a participant that presents the secret of the key."""

        async def work(database: Postgresql) -> Outcome:
            return await self._at(database).issue(self.key.presented)

        return work

    def administer(self, act: Act) -> Work:
        """Return a participant that calls `Service.deactivate`, `Service.revoke` or `Service.rotate_secret`."""

        async def work(database: Postgresql) -> Any:
            return await act(self._at(database), self.key)

        return work

    async def living(self, *pairs: TokenPair) -> list[str]:
        """Return the tokens that still work: access tokens first, because refreshing may revoke them."""
        accepted = [pair.access_token for pair in pairs if await self.deployment.is_alive(pair.access_token)]
        refreshed = [await self.deployment.refresh(pair.refresh_token) for pair in pairs]
        return accepted + [pair.refresh_token for pair, outcome in zip(pairs, refreshed, strict=True) if outcome.pair]

    async def assert_alive_together(self, pair: TokenPair) -> None:
        """Assert that both tokens of the pair are valid, or neither."""
        assert len(await self.living(pair)) in (0, 2)

    async def assert_stored(self, *, pairs: int, epoch: int, audit: list[str]) -> None:
        """Assert the number of pairs, the epoch and the audited actions: nothing half done, nothing twice."""
        actions = await value(
            self.deployment.database, "SELECT COALESCE(string_agg(action, ' ' ORDER BY action), '') FROM audit"
        )
        assert len(await self.deployment.stored_pairs(self.key)) == pairs
        assert await self.deployment.epoch(self.key) == epoch
        assert actions.split() == sorted(audit)

    def _at(self, database: Database, limiter: MemoryLimiter | None = None) -> TokenDeployment:
        deployment = TokenDeployment(database, self.deployment.clock)
        deployment.limiter = limiter or self.deployment.limiter
        return deployment


class FullLimiter(MemoryLimiter):
    """A limiter with every limit reached."""

    async def token_authenticated(self, client_id: str, source: str, *, limit: int) -> RateDecision:
        return await super().token_authenticated(client_id, source, limit=0)


@asynccontextmanager
async def open_scenario(database_url: str) -> AsyncIterator[TokenScenario]:
    """Yield a scenario on an empty database, for the participants `one` and `other`."""
    async with (
        token_deployment(database_url, FakeClock()) as deployment,
        open_scheduler(database_url, "one", "other") as scheduler,
    ):
        yield TokenScenario(deployment, scheduler, key=await deployment.new_key(), stranger=await deployment.new_key())


in_every_order = functools.partial(interleaving.in_every_order, open_scenario)


@in_every_order(at_least=6)
async def test_a_refresh_against_a_refresh(scenario: TokenScenario, order: Order) -> None:
    """Exactly one gets a pair; the other is a reuse, and no token is valid afterwards."""
    run_result = await scenario.scheduler.run(order, one=scenario.refresh(), other=scenario.refresh())
    loser, winner = sorted(run_result.results.values(), key=lambda outcome: outcome.pair is not None)
    assert (answer_of(loser), loser.raised_alarm) == ("used", True)
    assert not winner.raised_alarm
    await scenario.assert_stored(pairs=2, epoch=2, audit=[ALARM])
    assert await scenario.living(scenario.pair, pair_of(winner)) == []


@pytest.mark.parametrize("action", ["key.revoke_tokens", "key.deactivate"])
@in_every_order(at_least=26)
async def test_a_refresh_against_a_revocation(scenario: TokenScenario, order: Order, action: str) -> None:
    """The refresh gets a pair or is refused; afterwards no token is valid."""
    run_result = await scenario.scheduler.run(
        order, one=scenario.refresh(), other=scenario.administer(REVOCATIONS[action])
    )
    outcome = run_result.results["one"]
    assert answer_of(outcome) in ("pair", "revoked")
    if run_result.is_before(COMMITTED, Step("one", "rotate_pair")):
        assert answer_of(outcome) == "revoked"
    if run_result.finished_first("one"):
        assert answer_of(outcome) == "pair"
    assert not outcome.raised_alarm
    won = [outcome.pair] if outcome.pair else []
    await scenario.assert_stored(pairs=1 + len(won), epoch=2, audit=[action])
    assert await scenario.living(scenario.pair, *won) == []


@pytest.mark.parametrize("action", ["key.deactivate", "key.rotate_secret"])
@in_every_order(at_least=36)
async def test_an_issue_against_the_end_of_its_secret(scenario: TokenScenario, order: Order, action: str) -> None:
    """No token from the old secret is valid once the credential is inactive or has another secret."""
    run_result = await scenario.scheduler.run(
        order, one=scenario.issue(), other=scenario.administer(REVOCATIONS[action])
    )
    outcome = run_result.results["one"]
    assert answer_of(outcome) in ("pair", "InvalidClient")
    if run_result.is_before(COMMITTED, Step("one", "issue_pair")):
        assert answer_of(outcome) == "InvalidClient"
    if run_result.finished_first("one"):
        assert answer_of(outcome) == "pair"
    won = [outcome.pair] if outcome.pair else []
    await scenario.assert_stored(pairs=1 + len(won), epoch=2, audit=[action])
    assert await scenario.living(scenario.pair, *won) == []
    assert answer_of(await scenario.deployment.issue(scenario.key.presented)) == "InvalidClient"
    await scenario.deployment.activate(scenario.key)
    assert await scenario.living(scenario.pair, *won) == []


@in_every_order(at_least=26)
async def test_an_issue_against_a_revocation(scenario: TokenScenario, order: Order) -> None:
    """The secret stays valid, so the issue always gets a pair: one from before the revocation, or a valid one."""
    run_result = await scenario.scheduler.run(
        order, one=scenario.issue(), other=scenario.administer(TokenDeployment.revoke)
    )
    pair = pair_of(run_result.results["one"])
    await scenario.assert_stored(pairs=2, epoch=2, audit=["key.revoke_tokens"])
    if run_result.is_before(COMMITTED, Step("one", "issue_pair")):
        assert await scenario.deployment.is_alive(pair.access_token)
    if run_result.finished_first("one"):
        assert not await scenario.deployment.is_alive(pair.access_token)
    await scenario.assert_alive_together(pair)
    assert await scenario.living(scenario.pair) == []


@in_every_order(at_least=32)
async def test_an_issue_against_a_reuse(scenario: TokenScenario, order: Order) -> None:
    """The alarm is raised; the issue gets a pair that the alarm revokes, or a valid one."""
    used = scenario.pair
    successor = pair_of(await scenario.deployment.refresh(used.refresh_token))
    run_result = await scenario.scheduler.run(order, one=scenario.issue(), other=scenario.refresh(used))
    pair, reuse = pair_of(run_result.results["one"]), run_result.results["other"]
    assert (answer_of(reuse), reuse.raised_alarm) == ("used", True)
    await scenario.assert_stored(pairs=3, epoch=2, audit=[ALARM])
    if run_result.is_before(COMMITTED, Step("one", "issue_pair")):
        assert await scenario.deployment.is_alive(pair.access_token)
    if run_result.finished_first("one"):
        assert not await scenario.deployment.is_alive(pair.access_token)
    await scenario.assert_alive_together(pair)
    assert await scenario.living(used, successor) == []


@in_every_order(at_least=14)
async def test_a_reuse_against_a_reuse(scenario: TokenScenario, order: Order) -> None:
    """The alarm is raised once."""
    used = scenario.pair
    successor = pair_of(await scenario.deployment.refresh(used.refresh_token))
    run_result = await scenario.scheduler.run(order, one=scenario.refresh(used), other=scenario.refresh(used))
    assert sorted(outcome.raised_alarm for outcome in run_result.results.values()) == [False, True]
    assert {answer_of(outcome) for outcome in run_result.results.values()} <= {"used", "revoked"}
    await scenario.assert_stored(pairs=2, epoch=2, audit=[ALARM])
    assert await scenario.living(used, successor) == []


@in_every_order(at_least=12)
async def test_a_reuse_against_a_revocation(scenario: TokenScenario, order: Order) -> None:
    """The first of the two revokes everything; a reuse that comes second raises no alarm."""
    used = scenario.pair
    successor = pair_of(await scenario.deployment.refresh(used.refresh_token))
    run_result = await scenario.scheduler.run(
        order, one=scenario.refresh(used), other=scenario.administer(TokenDeployment.revoke)
    )
    reuse = run_result.results["one"]
    if run_result.is_before(COMMITTED, Step("one", "find_refresh_token")):
        assert (answer_of(reuse), reuse.raised_alarm) == ("revoked", False)
    if run_result.finished_first("one"):
        assert (answer_of(reuse), reuse.raised_alarm) == ("used", True)
    assert answer_of(reuse) in ("used", "revoked")
    alarm = [ALARM] if reuse.raised_alarm else []
    await scenario.assert_stored(pairs=2, epoch=2 + len(alarm), audit=["key.revoke_tokens", *alarm])
    assert await scenario.living(used, successor) == []


@in_every_order(at_least=32)
async def test_a_reuse_against_a_refresh_of_the_successor(scenario: TokenScenario, order: Order) -> None:
    """The thief with the old token and the owner with the new one: neither has a valid token afterwards."""
    used = scenario.pair
    successor = pair_of(await scenario.deployment.refresh(used.refresh_token))
    run_result = await scenario.scheduler.run(order, one=scenario.refresh(used), other=scenario.refresh(successor))
    reuse, outcome = run_result.results["one"], run_result.results["other"]
    assert (answer_of(reuse), reuse.raised_alarm) == ("used", True)
    assert answer_of(outcome) in ("pair", "revoked")
    assert not outcome.raised_alarm
    won = [outcome.pair] if outcome.pair else []
    await scenario.assert_stored(pairs=2 + len(won), epoch=2, audit=[ALARM])
    assert await scenario.living(used, successor, *won) == []


@in_every_order(at_least=14, is_reduced=False)
async def test_a_refresh_that_the_limit_refuses_against_a_refresh(scenario: TokenScenario, order: Order) -> None:
    """The refused one is 429 and consumes nothing; it raises the alarm unless it came first."""
    refused_work = scenario.refresh(limiter=FullLimiter(scenario.deployment.clock))
    run_result = await scenario.scheduler.run(order, one=refused_work, other=scenario.refresh())
    refused, winner = run_result.results["one"], run_result.results["other"]
    assert answer_of(refused) == "RateLimited"
    pair = pair_of(winner)
    # The refused one's last query about the token, before it gave up or raised the alarm.
    last_look = Step("one", "rotate_pair" if Step("one", "rotate_pair") in run_result.steps else "find_refresh_token")
    assert refused.raised_alarm == run_result.is_before(Step("other", "rotate_pair"), last_look)
    alarm = [ALARM] if refused.raised_alarm else []
    await scenario.assert_stored(pairs=2, epoch=1 + len(alarm), audit=alarm)
    if alarm:
        assert await scenario.living(scenario.pair, pair) == []
    else:
        assert await scenario.living(pair) == [pair.access_token, pair.refresh_token]


@in_every_order(at_least=3)
async def test_a_refresh_by_another_client_against_a_refresh(scenario: TokenScenario, order: Order) -> None:
    """Another client's presentation never consumes the token; it raises the alarm if the token was used."""
    foreign = PresentedCredentials(client_id=scenario.stranger.client_id)
    run_result = await scenario.scheduler.run(order, one=scenario.refresh(presented=foreign), other=scenario.refresh())
    refused, pair = run_result.results["one"], pair_of(run_result.results["other"])
    assert answer_of(refused) == "another"
    if run_result.is_before(COMMITTED, Step("one", "find_refresh_token")):
        assert refused.raised_alarm
    if run_result.finished_first("one"):
        assert not refused.raised_alarm
    alarm = [ALARM] if refused.raised_alarm else []
    await scenario.assert_stored(pairs=2, epoch=1 + len(alarm), audit=alarm)
    if alarm:
        assert await scenario.living(scenario.pair, pair) == []
    else:
        assert await scenario.living(pair) == [pair.access_token, pair.refresh_token]


@in_every_order(at_least=8)
async def test_a_refresh_against_an_issue(scenario: TokenScenario, order: Order) -> None:
    """The two do not affect each other: both pairs are valid."""
    run_result = await scenario.scheduler.run(order, one=scenario.refresh(), other=scenario.issue())
    pairs = [pair_of(outcome) for outcome in run_result.results.values()]
    await scenario.assert_stored(pairs=3, epoch=1, audit=[])
    assert len(await scenario.living(*pairs)) == 4


@in_own_loop
async def test_concurrent_refreshes_yield_one_pair_and_one_alarm(database_url: str) -> None:
    """32 presentations of one token within one process, in 20 rounds; no token is valid afterwards."""
    async with token_deployment(database_url, FakeClock()) as deployment:
        for _ in range(ROUNDS):
            await all_at_once(deployment, await deployment.new_key())


async def all_at_once(deployment: TokenDeployment, key: Key) -> None:
    """Run one round: all present the same token."""
    pair = await deployment.new_pair(key)
    outcomes = await asyncio.gather(*(deployment.refresh(pair.refresh_token) for _ in range(AT_ONCE)))
    answers = sorted(answer_of(outcome) for outcome in outcomes)
    assert answers.count("pair") == 1
    assert set(answers) <= {"pair", "used", "revoked"}
    assert sum(outcome.raised_alarm for outcome in outcomes) == 1
    assert len(await deployment.alarms(key)) == 1
    assert await deployment.epoch(key) == 2
    winner = next(pair_of(outcome) for outcome in outcomes if outcome.pair)
    assert len(await deployment.stored_pairs(key)) == 2
    assert await deployment.are_alive(pair, winner) == [False, False]
    assert answer_of(await deployment.refresh(winner.refresh_token)) == "revoked"
    assert await deployment.is_alive((await deployment.new_pair(key)).access_token)
