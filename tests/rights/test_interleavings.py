"""An erasure and concurrent erasures, submissions, reversals and look-ups, in every order of their statements.

On PostgreSQL, with separate drivers as in two server processes; SQLite has a single writer, and a submission that was
decided before an erasure is decided again behind the lock. The outcome is as if one came after the other, and nobody
who is barred is ever answered otherwise. Source: docs/interface.md section D13.
"""

import functools
from collections.abc import Awaitable, Callable
from copy import deepcopy
from typing import Any, cast

import pytest

from stoplist.db import Database
from stoplist.db.postgresql import Postgresql
from stoplist.proof.feed_states import compare_states
from stoplist.records.reversal import reverse
from stoplist.records.reversal_plan import Reversal
from stoplist.rights.erasure import ErasedFeed
from stoplist.unsubscribes.model import Page, Submission
from tests.builders import ADMINISTRATOR, execute
from tests.deployment import in_loop
from tests.interleaving import Order, Scheduler, Step, Work, in_every_order
from tests.rights.eraser import assert_states_are_right, digest_in, erase
from tests.rights.naive_erasure import ErasableFeed
from tests.unsubscribes.partner import OptOutDeployment, records
from tests.unsubscribes.test_interleavings import (
    ONE,
    OTHER,
    SEEDER,
    Batch,
    FeedScenario,
    answered,
    back,
    batch,
    in_turn,
    naively,
    open_feed_scenario,
    out,
)

# Hundreds of orders each, which take long on a busy machine.
pytestmark = pytest.mark.slow

A, B = "a@example.com", "b@example.com"
# Two submissions; the second is the one that is reversed.
FIRST = batch(out("b", -100), back("c", -100))
SECOND = batch(out("a", -80), out("b", -60), out("c", -60))
# What is sent while the first person is erased.
MEANWHILE = {
    "the same opt-out": batch(out("a", -80)),
    "a later opt-out": batch(out("a", -20)),
    "an opt-out for all groups": batch(out("a", -20), group=None),
    "a resubscription": batch(back("a", -20), out("x", -20)),
    "a resubscription that comes late": batch(back("a", -90)),
    "both ways": batch(back("a", -30), out("a", -20), back("b", -10)),
    "only others": batch(out("x", -20), back("b", -20)),
}


def at_reads_locks_and_commits(step: Step) -> bool:
    """Writes behind the lock are invisible to others before the commit."""
    return step.what in (
        "feed",
        "current_records",
        "erased_records",
        "feeds_that_know",
        "look_up",
        "reversible",
        "reversible_erased",
        "lock_feed",
        "COMMIT",
        "ROLLBACK",
    )


class ErasureScenario(FeedScenario):
    """A scenario in which a person is erased."""

    reversible = ""

    async def reset(self) -> None:
        await super().reset()
        for table in ("erasures", "reversals"):
            text = f"DELETE FROM {table} WHERE feed_id > :none"  # noqa: S608
            await execute(self.organization.deployment.database, text, none=0)
        # The first erasure of a deployment is noted in a unit of its own, which would be part of the first order alone.
        noted = "UPDATE deployment SET first_erasure_ms = :at_ms WHERE first_erasure_ms IS NULL"
        await execute(self.organization.deployment.database, noted, at_ms=0)

    async def with_both(self) -> ErasableFeed:
        """Store both submissions."""
        model = ErasableFeed()
        for who, seed in ((OTHER, FIRST), (SEEDER, SECOND)):
            made = await self._submit(self.organization, who, seed)
            self.reversible = made.submission_id or ""
            self.submitted(model, who, seed)
        return model

    def erases(self, address: str = A) -> Work:
        async def work(database: Postgresql) -> list[ErasedFeed]:
            return await erase(self._at(database), address)

        return work

    def reverses(self) -> Work:
        async def work(database: Postgresql) -> Reversal:
            stores = OptOutDeployment(database, self.organization.deployment.clock).stores
            return await reverse(ADMINISTRATOR, stores, self.reversible)

        return work

    def looks_up(self, address: str = A) -> Work:
        async def work(database: Postgresql) -> Page:
            return await self._at(database).look_up(address)

        return work

    async def seen(self) -> list[tuple[Any, ...]]:
        """Return what followers, and then what look-ups, see of the records."""
        feed = [(one.address, one.address_digest or None, one.status) for one in await self.organization.feed()]
        found = records(await self.organization.look_up(A, B))
        return [*feed, *sorted((one.address, one.group_id or "", one.status) for one in found)]

    async def expected(self, model: ErasableFeed) -> list[tuple[Any, ...]]:
        """Return what they should see according to the model."""
        feed: list[tuple[Any, ...]] = []
        for one in model.in_order():
            is_erased = (one.address, one.group) in model.erased
            digest = await digest_in(self.organization, one.address) if is_erased else None
            feed.append((None if is_erased else one.address, digest, one.now.status))
        found = [one for one in model.records if one.address in (A, B)]
        return [*feed, *sorted((one.address, self.groups[one.group] or "", one.now.status) for one in found)]

    async def assert_shown(self, model: ErasableFeed) -> None:
        """Assert that followers and look-ups see what the model says, and that the state of the feed is right."""
        assert await self.seen() == await self.expected(model)
        await assert_states_are_right(self.organization)

    def naively(self, model: ErasableFeed, what: str, sent: Batch = MEANWHILE["both ways"]) -> Any:
        """Do this in the model; return what `outcome` should be."""
        now_ms = self.organization.deployment.now_ms
        if what == "submission":
            return naively(*self.submitted(model, ONE, sent))
        return model.erase(A, now_ms) if what == "erasure" else model.reverse(2, "tester", now_ms).counts


def outcome(result: Any) -> Any:
    """Return what an operation answered, in the form of the model."""
    if isinstance(result, Submission):
        return answered(result)
    if isinstance(result, Reversal):
        return result.restored, result.corrected, result.superseded, result.confirmed
    return sum(one.records for one in result)


open_scenario = functools.partial(open_feed_scenario, kind=ErasureScenario, is_paused=at_reads_locks_and_commits)


@pytest.mark.parametrize("other", [A, B])
@in_every_order(open_scenario, at_least=6)
async def test_two_erasures(scenario: ErasureScenario, order: Order, other: str) -> None:
    """Two people are both erased. The second erasure of the same person finds nothing, and leaves no trace."""
    model = await scenario.with_both()
    before = len(await scenario.organization.rows("submissions", "1"))
    run_result = await scenario.scheduler.run(order, one=scenario.erases(), other=scenario.erases(other))
    for who in in_turn(run_result):
        count = model.erase({ONE: A, OTHER: other}[who], scenario.organization.deployment.now_ms)
        assert outcome(run_result.results[who]) == count
    erasures = len(await scenario.organization.rows("submissions", "1")) - before
    assert erasures == len({A, other})
    await scenario.assert_shown(model)


@pytest.mark.parametrize("meanwhile", MEANWHILE)
@in_every_order(open_scenario, at_least=7)
async def test_an_erasure_against_a_submission(scenario: ErasureScenario, order: Order, meanwhile: str) -> None:
    """They are answered and stored as one after the other."""
    sent = MEANWHILE[meanwhile]
    model = await scenario.with_both()
    run_result = await scenario.scheduler.run(order, one=scenario.submits(ONE, sent), other=scenario.erases())
    for who in in_turn(run_result):
        what = "submission" if who == ONE else "erasure"
        assert outcome(run_result.results[who]) == scenario.naively(model, what, sent)
    await scenario.assert_shown(model)


@in_every_order(open_scenario, at_least=10)
async def test_an_erasure_against_a_reversal(scenario: ErasureScenario, order: Order) -> None:
    """The erased record is taken back like the others, whichever came first, and stays erased."""
    model = await scenario.with_both()
    run_result = await scenario.scheduler.run(order, one=scenario.reverses(), other=scenario.erases())
    for who in in_turn(run_result):
        what = "reversal" if who == ONE else "erasure"
        assert outcome(run_result.results[who]) == scenario.naively(model, what)
    await scenario.assert_shown(model)


@in_every_order(open_scenario, at_least=2)
async def test_an_erasure_against_a_look_up(scenario: ErasureScenario, order: Order) -> None:
    """The person is never answered as if there were no record, or without their address."""
    await scenario.with_both()
    run_result = await scenario.scheduler.run(order, one=scenario.looks_up(), other=scenario.erases())
    assert [(one.address, one.status) for one in records(run_result.results[ONE])] == [(A, "unsubscribed")]


class Interruption:
    """Does something else before a database's call of this number; only one operation may be under way."""

    def __init__(self, patch: pytest.MonkeyPatch, database: Database, at: int, work: Work) -> None:
        self._database, self._left, self._work = database, at, work
        self.result: Any = None
        self.is_done = False
        for name in ("one", "one_large", "all", "rows", "write"):
            patch.setattr(database, name, self._interrupted(getattr(database, name)))

    def _interrupted(self, call: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def interrupted(*arguments: Any, **options: Any) -> Any:
            if self._left == 0:
                self._left = -1
                self.result = await self._work(self._database)  # type: ignore[arg-type]
                self.is_done = True
            elif self._left > 0:
                self._left -= 1
            return await call(*arguments, **options)

        return interrupted


@pytest.mark.parametrize(
    ("under_way", "meanwhile"),
    [
        ("submission", "erasure"),
        ("erasure", "submission"),
        ("reversal", "erasure"),
        ("erasure", "reversal"),
        ("erasure", "erasure"),
    ],
)
@in_loop
async def test_another_operation_before_any_call(deployment: OptOutDeployment, under_way: str, meanwhile: str) -> None:
    """The orders that a single writer allows: each outcome is one that a serial order gives. On both databases."""
    at = 0
    while True:
        organization = await deployment.new_organization()
        partners = {who: await organization.new_partner() for who in (SEEDER, ONE, OTHER)}
        scenario = ErasureScenario(
            cast(Scheduler, None), organization, partners, await organization.new_group("Reminders")
        )
        before = await scenario.with_both()
        works = {
            "submission": scenario.submits(ONE, MEANWHILE["both ways"]),
            "erasure": scenario.erases(),
            "reversal": scenario.reverses(),
        }
        with pytest.MonkeyPatch.context() as patch:
            interruption = Interruption(patch, deployment.database, at, works[meanwhile])
            result = await works[under_way](deployment.database)  # type: ignore[arg-type]
        if not interruption.is_done:
            break
        found = (outcome(result), outcome(interruption.result), await scenario.seen())
        serial = []
        for is_first in (True, False):
            model = deepcopy(before)
            if is_first:
                mine, others = scenario.naively(model, under_way), scenario.naively(model, meanwhile)
            else:
                others, mine = scenario.naively(model, meanwhile), scenario.naively(model, under_way)
            serial.append((mine, others, await scenario.expected(model)))
        assert found in serial, at
        at += 1
    assert at > 3
    assert (await compare_states(deployment.database)).differing == []
