"""Concurrent submissions and followers of one feed, in every order of their statements.

On PostgreSQL every order is run, with separate drivers as in two server processes; SQLite has a single writer. The
outcome is compared with the naive model: two submissions are answered and stored as one after the other, in the order
in which they locked the feed, and a follower misses nothing at any moment.
Source: docs/interface.md section D6.
"""

import asyncio
import functools
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from copy import deepcopy
from typing import Any, NamedTuple, TypeVar

import pytest
from msgspec import UNSET

from stoplist import rfc3339
from stoplist.actor import Actor
from stoplist.db import Database
from stoplist.db.postgresql import Postgresql
from stoplist.organizations.target import Target, TargetGroup
from stoplist.unsubscribes import follow
from stoplist.unsubscribes.act_groups import ActGroups, SubmittedAct
from stoplist.unsubscribes.channel import CHANNELS
from stoplist.unsubscribes.model import Item, Page, Record, Submission
from tests.builders import execute
from tests.interleaving import Order, RunResult, Scheduler, Step, Work, in_every_order, open_scheduler
from tests.unsubscribes.busy_database import BusyDatabase
from tests.unsubscribes.naive import NaiveFeed, NaiveItem, NaiveRecord, NaiveResult, naive_state
from tests.unsubscribes.partner import (
    OptOutDeployment,
    Organization,
    Sent,
    addresses,
    opt_out_deployment,
    records,
    written,
)

# Hundreds of orders each, which take long on a busy machine.
pytestmark = pytest.mark.slow

FORGET = """DO $$ BEGIN
    DELETE FROM unsubscribes; DELETE FROM unsubscribe_versions; DELETE FROM submissions; DELETE FROM feed_days;
    DELETE FROM feeds;
END $$"""

# Steps whose order cannot matter: nobody here changes organizations or groups.
STILL = {"target_by_slug", "group_numbers"}
WRITTEN_UNDER_THE_LOCK = {
    "keep_versions",
    "put_records",
    "touch_records",
    "record_submission",
    "count_changes",
    "set_state",
}
SEEDER, ONE, OTHER = "seeder", "one", "other"
LINK = Actor(kind="link", id="lnk_0123456789abcdef")


class Batch(NamedTuple):
    """Acts on one group (None: all groups); times are relative to now."""

    acts: tuple[NaiveItem, ...]
    group: str | None = "default"

    def at(self, now_ms: int) -> list[NaiveItem]:
        """Return the acts with their absolute times."""
        return [
            NaiveItem(act.address, act.status, None if act.occurred_ms is None else now_ms + act.occurred_ms)
            for act in self.acts
        ]


def out(address: str, occurred_ms: int | None = None) -> NaiveItem:
    return NaiveItem(f"{address}@example.com", occurred_ms=occurred_ms)


def back(address: str, occurred_ms: int) -> NaiveItem:
    return NaiveItem(f"{address}@example.com", "resubscribed", occurred_ms)


def batch(*acts: NaiveItem, group: str | None = "default") -> Batch:
    return Batch(acts, group)


SEED = batch(out("a", -100), back("b", -100), out("c", -100), back("d", -100), out("e", -100))
# For each pair: what is stored before, what one participant submits, what the other submits.
FLIPS = (
    SEED,
    batch(back("a", -50), out("b", -50), back("c", -20), out("x", -50)),
    batch(out("x", -20), back("c", -50), out("b", -20), out("a", -40)),
)
PAIRS = {
    "both are new, in opposite order": (SEED, batch(out("x"), out("y"), out("z")), batch(out("z"), out("y"))),
    "one opts out, the other back, at the same time": (
        SEED,
        batch(out("a", -50), out("b", -50)),
        batch(back("a", -50)),
    ),
    "the same batch twice": (SEED, *2 * [batch(back("a", -50), out("b", -50), out("x", -50))]),
    "one repeats what is stored, the other changes it": (SEED, SEED, batch(back("a", -50), out("b", -50))),
    "one comes too late, the other moves the latest act": (SEED, batch(back("a", -50)), batch(out("a", -20))),
    "both send again what is stored": (SEED, batch(out("a", -50), out("c", -200)), batch(out("a", -20), out("c", -90))),
    "no time is stated": (SEED, batch(out("b"), out("a")), batch(back("b", 0), back("a", 0))),
    "one for a group, the other for all": (SEED, batch(back("a", -50)), batch(out("a", -50), group=None)),
    "one and the same address several times": (
        SEED,
        batch(back("a", -50), out("a", -40), back("a", -30)),
        batch(back("a", -45), out("a", -35), out("x", -50), back("x", -40)),
    ),
}


class FeedScenario:
    """A scheduler, and an organization with two partners whose feed is used."""

    def __init__(
        self, scheduler: Scheduler, organization: Organization, partners: dict[str, Actor], other_group: str
    ) -> None:
        self.scheduler = scheduler
        self.organization = organization
        self.groups = {None: None, "default": organization.default_group, "other": other_group}
        self._partners = partners

    async def reset(self) -> None:
        """Delete everything, including the feed."""
        await execute(self.organization.deployment.database, FORGET)

    async def given(self, *seeds: Batch) -> NaiveFeed:
        """Store these batches; return the same in the naive model."""
        model = NaiveFeed()
        for seed in seeds:
            await self._submit(self.organization, SEEDER, seed)
            self.submitted(model, SEEDER, seed)
        return model

    def submitted(self, model: NaiveFeed, who: str, submitted: Batch) -> tuple[list[NaiveResult], bool]:
        """Return the model's results of a batch."""
        now_ms = self.organization.deployment.now_ms
        return model.submit(who, submitted.group, submitted.at(now_ms), now_ms)

    def submits(self, who: str, submitted: Batch) -> Work:
        """Return a participant that submits."""

        async def work(database: Postgresql) -> Submission:
            return await self._submit(self._at(database), who, submitted)

        return work

    def follows(self, *, limit: int, group: str | None = None) -> Work:
        """Return a participant that follows from the start, page by page, until there is no more."""

        async def work(database: Postgresql) -> list[Page]:
            return [page async for page in self._at(database).pages(limit=limit, group_id=self.groups[group])]

        return work

    def clicks(self, first: str, *others: str) -> Work:
        """Return a participant where these people click links at the same moment; `first` is new."""
        organization = self.organization
        group = TargetGroup(1, organization.default_group)
        target = Target(organization.organization_id, organization.slug, group, None)

        async def work(database: Postgresql) -> list[SubmittedAct]:
            busy: Any = BusyDatabase(database)
            acts = ActGroups(busy, organization.deployment.clock)

            def click(name: str) -> asyncio.Task[SubmittedAct]:
                item = Item(address=out(name).address)
                return asyncio.create_task(acts.submit(LINK, CHANNELS["email"], target, item))

            clicks = [click(first)]
            await busy.was_asked.wait()
            clicks += map(click, others)
            await asyncio.sleep(0)  # they join the first one
            busy.is_free.set()
            return await asyncio.gather(*clicks)

        return work

    async def clicked(self, model: NaiveFeed, *names: str) -> None:
        """Have these people click in the model, one after the other, in the order in which their clicks were stored."""
        stored = await self.organization.stored()
        order = {
            row["address"]: row["seq"]
            for row in stored["unsubscribe_versions"] + stored["unsubscribes"]
            if row["submission_id"]
            in {one["submission_id"] for one in stored["submissions"] if one["actor_id"] == LINK.id}
        }
        now_ms = self.organization.deployment.now_ms
        for act in sorted(map(out, names), key=lambda act: order.get(act.address, 0)):
            model.submit(LINK.id, "default", [act], now_ms)

    async def assert_stored(self, model: NaiveFeed) -> None:
        """Assert that every present and former state, in order, and all counts match the model."""
        stored = await self.organization.stored()
        latest = {
            row["seq"]: (row["address"], row["group_no"] == 0, row["latest_act_ms"], row["is_confirmed"])
            for row in stored["unsubscribes"]
        }
        assert [latest[seq] for seq in sorted(latest)] == [
            (record.address, record.group is None, record.latest_act_ms, int(record.is_sent_again))
            for record in model.in_order()
        ]
        page = await self.organization.follow()
        assert page.state == naive_state(records(page), max(latest, default=0))  # numbers may have gaps
        rows = sorted(stored["unsubscribes"] + stored["unsubscribe_versions"], key=lambda row: row["seq"])
        found = [(row["address"], row["status"], row["reason"], row["occurred_ms"], row["recorded_ms"]) for row in rows]
        pairs = [*model.superseded(), *((record, record.now) for record in model.records)]
        assert found == [
            (record.address, state.status, state.reason, state.occurred_ms, state.recorded_ms)
            for record, state in sorted(pairs, key=lambda pair: pair[1].seq)
        ]
        assert len({row["seq"] for row in rows}) == len(rows)
        days = stored["feed_days"]
        assert {(row["day"], row["status"], row["reason"]): row["changes"] for row in days} == model.changes()
        standing = {(row["status"], row["reason"]): row["standing"] for row in days if row["standing"]}
        assert standing == model.standing()

    async def _submit(self, organization: Organization, who: str, submitted: Batch) -> Submission:
        items: list[Sent] = []
        for act in submitted.at(organization.deployment.now_ms):
            item = {"address": act.address, "status": act.status}
            if act.occurred_ms is not None:
                item["occurred_at"] = written(act.occurred_ms)
            items.append(item)
        return await organization.submit(
            *items,
            by=self._partners[who],
            group_id=self.groups[submitted.group],
            all_groups=submitted.group is None,
        )

    def _at(self, database: Database) -> Organization:
        return self.organization._replace(deployment=OptOutDeployment(database, self.organization.deployment.clock))


ScenarioT = TypeVar("ScenarioT", bound=FeedScenario)


class CheckedFollower:
    """Follows all changes; asserts that no change comes twice or out of order."""

    def __init__(self, organization: Organization, *, group_id: str | None = None) -> None:
        self._organization, self._group_id = organization, group_id
        self._cursor: str | None = None
        self._seen = 0
        self.known: dict[str, Record] = {}

    async def ask(self) -> None:
        """Read until there is no more."""
        async for page in self._organization.pages(self._cursor, group_id=self._group_id):
            self.take(page)

    async def ask_after_commit(self, step: Step) -> None:
        """Do so if this step was a commit."""
        if step.what == "COMMIT":
            await self.ask()

    def take(self, page: Page) -> None:
        for record in records(page):
            assert record.seq > self._seen, "a number came twice, or after a greater one"
            self._seen = record.seq
            self.known[record.id] = record
        self._cursor = page.next_cursor
        if page.state:
            assert page.state == naive_state(self.known.values(), self._seen), "a follower has not this state"

    async def assert_knows_all(self) -> None:
        """Read the rest, and assert that the collected records equal those of a reader who starts now."""
        await self.ask()
        assert sorted(self.known.values(), key=lambda record: record.seq) == await self._organization.feed(
            group_id=self._group_id
        )


def at_every_statement(step: Step) -> bool:
    return step.what not in STILL


def at_reads_locks_and_commits(step: Step) -> bool:
    """Writes behind the lock are invisible to others before the commit."""
    return step.what not in STILL | WRITTEN_UNDER_THE_LOCK


def at_every_write_and_every_read_of_a_follower(step: Step) -> bool:
    return step.what not in STILL and (step.who == "follower" or step.what not in ("feed", "current_records"))


def at_the_opening_and_commits(step: Step) -> bool:
    return step.what in ("feed", "open_feed", "COMMIT")


def at_locks_and_commits_and_every_read_of_a_follower(step: Step) -> bool:
    return step.what not in STILL and (step.who == "follower" or step.what in ("lock_feed", "COMMIT"))


@asynccontextmanager
async def open_feed_scenario(
    database_url: str, *, kind: type[ScenarioT], is_paused: Callable[[Step], bool]
) -> AsyncIterator[ScenarioT]:
    """Yield a scenario of this kind on an empty database."""
    async with (
        opt_out_deployment(database_url) as deployment,
        open_scheduler(database_url, ONE, OTHER, "follower", is_paused=is_paused) as scheduler,
    ):
        organization = await deployment.new_organization()
        partners = {who: await organization.new_partner() for who in (SEEDER, ONE, OTHER)}
        yield kind(scheduler, organization, partners, await organization.new_group("Reminders"))


def scenario_pausing_at(
    is_paused: Callable[[Step], bool],
) -> Callable[[str], AbstractAsyncContextManager[FeedScenario]]:
    return functools.partial(open_feed_scenario, kind=FeedScenario, is_paused=is_paused)


@in_every_order(scenario_pausing_at(at_every_statement), at_least=17)
async def test_two_submissions_in_every_order_of_their_statements(scenario: FeedScenario, order: Order) -> None:
    """They are answered and stored as one after the other; a follower sees the first, then both."""
    await run_two_submissions(scenario, order, *FLIPS)


@pytest.mark.parametrize("pair", PAIRS)
@in_every_order(scenario_pausing_at(at_reads_locks_and_commits), at_least=8)
async def test_two_submissions_of_every_kind(scenario: FeedScenario, order: Order, pair: str) -> None:
    """The same for other combinations of two submissions."""
    await run_two_submissions(scenario, order, *PAIRS[pair])


async def run_two_submissions(scenario: FeedScenario, order: Order, seed: Batch, one: Batch, other: Batch) -> None:
    """Run one order and check its outcome."""
    model = await scenario.given(seed)
    follower = CheckedFollower(scenario.organization)
    batches = {ONE: one, OTHER: other}

    run_result = await scenario.scheduler.run(
        order, after=follower.ask_after_commit, one=scenario.submits(ONE, one), other=scenario.submits(OTHER, other)
    )
    for who in in_turn(run_result):
        assert answered(run_result.results[who]) == naively(*scenario.submitted(model, who, batches[who]))
    await scenario.assert_stored(model)
    await follower.assert_knows_all()


def in_turn(run_result: RunResult) -> list[str]:
    """Return the participants in the order of their commits.

    A participant with nothing to store comes first if it read before the other's commit.
    """
    committed = [step.who for step in reversed(run_result.steps) if step.what == "COMMIT"]
    stored = list(reversed(dict.fromkeys(committed)))
    if len(stored) == 2:
        return stored
    (busy,) = stored or [ONE]
    (idle,) = {ONE, OTHER} - {busy}
    return [idle, busy] if run_result.is_before(Step(idle, "current_records"), Step(busy, "COMMIT")) else [busy, idle]


def answered(answer: Submission) -> tuple[list[tuple[Any, ...]], bool]:
    """Return the results of the items, and whether something had to be stored."""
    assert isinstance(answer.items, list)
    items = [(item.address, item.result, item.status, item.latest_act_at) for item in answer.items]
    return items, answer.submission_id is not None


def naively(results: list[NaiveResult], is_stored: bool) -> tuple[list[tuple[Any, ...]], bool]:
    """Return the same in the model's form."""
    items = [
        (
            result.address,
            result.result,
            result.status,
            UNSET if result.latest_act_ms is None else rfc3339.format_ms(result.latest_act_ms),
        )
        for result in results
    ]
    return items, is_stored


# One person who is new, and several, of whom some opted out or came back.
CLICKS = {"one": ("x",), "several": ("x", "b", "a", "x")}


@pytest.mark.parametrize("clicks", CLICKS)
@in_every_order(scenario_pausing_at(at_reads_locks_and_commits), at_least=10)
async def test_clicks_against_a_submission(scenario: FeedScenario, order: Order, clicks: str) -> None:
    """They are stored as one after the other; a follower has every state that it is given."""
    seed, sent, names = SEED, batch(out("x", -50), back("a", -50), out("b", -40)), CLICKS[clicks]
    model, follower = await scenario.given(seed), CheckedFollower(scenario.organization)

    run_result = await scenario.scheduler.run(
        order, after=follower.ask_after_commit, one=scenario.submits(ONE, sent), other=scenario.clicks(*names)
    )
    for who in in_turn(run_result):
        if who == ONE:
            scenario.submitted(model, ONE, sent)
        else:
            await scenario.clicked(model, *names)
    await scenario.assert_stored(model)
    await follower.assert_knows_all()


@in_every_order(scenario_pausing_at(at_reads_locks_and_commits), at_least=12)
async def test_clicks_in_two_processes(scenario: FeedScenario, order: Order) -> None:
    """People who click in both at once opt out once."""
    model, follower = await scenario.given(SEED), CheckedFollower(scenario.organization)

    run_result = await scenario.scheduler.run(
        order, after=follower.ask_after_commit, one=scenario.clicks("z", "x", "b"), other=scenario.clicks("y", "b", "x")
    )
    await scenario.clicked(model, "x", "y", "z", "b")
    await scenario.assert_stored(model)
    await follower.assert_knows_all()
    stored = [act for acts in run_result.results.values() for act in acts if act.submission_id is not None]
    assert len(stored) == 4


@in_every_order(scenario_pausing_at(at_the_opening_and_commits), at_least=104)
async def test_two_submissions_that_open_a_feed(scenario: FeedScenario, order: Order) -> None:
    """Both are stored in one feed, with the generation of the one that opened it."""
    one, other = batch(out("a"), out("b")), batch(out("b"), out("c"))
    model = NaiveFeed()
    run_result = await scenario.scheduler.run(
        order, one=scenario.submits(ONE, one), other=scenario.submits(OTHER, other)
    )
    for who in in_turn(run_result):
        scenario.submitted(model, who, {ONE: one, OTHER: other}[who])
    assert len((await scenario.organization.stored())["feeds"]) == 1
    await scenario.assert_stored(model)


@in_every_order(scenario_pausing_at(at_every_write_and_every_read_of_a_follower), at_least=5)
async def test_a_submission_against_a_follower(scenario: FeedScenario, order: Order) -> None:
    """Each page is the feed at the moment of its statement; later changes are on the next page."""
    seed, changes = SEED, batch(back("a", -50), out("b", -50), out("c", -50), out("x", -50))
    before = await scenario.given(seed)
    after = deepcopy(before)
    scenario.submitted(after, ONE, changes)
    run_result = await scenario.scheduler.run(
        order, one=scenario.submits(ONE, changes), follower=scenario.follows(limit=4)
    )
    follower = CheckedFollower(scenario.organization)
    seen = 0
    for page, read in zip(run_result.results["follower"], reads_of(run_result), strict=True):
        feed = after if committed_before(run_result, read) else before
        assert addresses(page) == of(feed.in_order(), after=seen)[:4]
        follower.take(page)
        seen = max((record.seq for record in records(page)), default=seen)
    await follower.assert_knows_all()


def reads_of(run_result: RunResult) -> list[int]:
    """Return the steps at which the follower read a page."""
    return [at for at, step in enumerate(run_result.steps) if step == Step("follower", "records_after")]


def committed_before(run_result: RunResult, at: int) -> bool:
    return Step(ONE, "COMMIT") in run_result.steps[:at]


def of(found: list[NaiveRecord], *, after: int) -> list[str]:
    """Return the addresses of the records after this number."""
    return [record.address for record in found if record.now.seq > after]


@pytest.mark.parametrize("limit", [2, 1_000])
@in_every_order(scenario_pausing_at(at_locks_and_commits_and_every_read_of_a_follower), at_least=11)
async def test_a_submission_against_a_follower_of_a_group(
    scenario: FeedScenario, order: Order, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pages that scan the feed in several slices lose no record that moves out of one meanwhile."""
    monkeypatch.setattr(follow, "_EXAMINED_AT_ONCE", 2)
    monkeypatch.setattr(follow, "MAX_EXAMINED", 4)
    await scenario.given(SEED, batch(out("a", -100), group="other"), batch(out("g", -90), group=None))
    changes = batch(back("a", -50), out("b", -50), out("x", -50))
    run_result = await scenario.scheduler.run(
        order, one=scenario.submits(ONE, changes), follower=scenario.follows(limit=limit, group="default")
    )
    follower = CheckedFollower(scenario.organization, group_id=scenario.groups["default"])
    for page in run_result.results["follower"]:
        follower.take(page)
    await follower.assert_knows_all()
    assert {record.group_id for record in follower.known.values()} == {None, scenario.groups["default"]}


@in_every_order(scenario_pausing_at(at_locks_and_commits_and_every_read_of_a_follower), at_least=40)
async def test_two_submissions_against_a_follower(scenario: FeedScenario, order: Order) -> None:
    """Numbers are assigned in commit order: a follower that has seen one has seen every smaller one."""
    seed, one, other = FLIPS
    await scenario.given(seed)
    run_result = await scenario.scheduler.run(
        order, one=scenario.submits(ONE, one), other=scenario.submits(OTHER, other), follower=scenario.follows(limit=5)
    )
    follower = CheckedFollower(scenario.organization)
    for page in run_result.results["follower"]:
        follower.take(page)
    await follower.assert_knows_all()
