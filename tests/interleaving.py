"""Run operations on PostgreSQL against one another, statement by statement, in every order that may matter.

Each participant has its own driver, as a server process has, and pauses before each statement, and before COMMIT or
ROLLBACK, until the scheduler resumes it. A statement that waits in the server for another participant's lock stays
there until that lock is released. The server reports such waits, so nothing here depends on time.

Two orders that differ only in neighbouring steps of two participants that commute have the same outcome, and one of
them is run (a partial-order reduction). All transactions are READ COMMITTED: BEGIN takes no snapshot, and a SELECT
without a lock neither waits nor is waited for, and sees nothing before its COMMIT.
"""

import asyncio
import contextlib
import functools
import inspect
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from enum import IntEnum
from typing import Any, NamedTuple, Protocol, TypeVar

from stoplist.db import Row, Transaction, Unit
from stoplist.db.postgresql import Postgresql
from stoplist.db.query import Query
from tests.builders import sql

T = TypeVar("T")
Work = Callable[[Postgresql], Awaitable[Any]]

_PID = sql("SELECT pg_backend_pid() AS pid")
_IS_BLOCKED = sql(
    "SELECT bool_or(pg_blocking_pids(pid) && CAST(:others AS integer[])) AS is_blocked "
    "FROM unnest(CAST(:pids AS integer[])) pid"
)
_UNUSED_QUEUE_KEY = -1
# Neither a lock, nor a function of the server that may have an effect.
_READS_ALONE = re.compile(
    r"SELECT\b(?!.*\b(?:FOR\s+(?:NO\s+KEY\s+|KEY\s+)?(?:UPDATE|SHARE)|pg_\w+|nextval)\b)", re.DOTALL
)

# Most statements are answered sooner, which saves asking the server what they wait for. No result depends on this.
_FIRST_WAIT_S = 0.002


class Step(NamedTuple):
    """A step of a participant: COMMIT, ROLLBACK, or a statement by its name."""

    who: str
    what: str


class Effect(IntEnum):
    """The effect of a step on the other participants, or theirs on it."""

    READ = 1  # sees what they have committed
    CHANGE = 2  # locks rows, or changes what they see after its COMMIT
    END = 3  # COMMIT, ROLLBACK


class _Effects:
    """The effect of each step with the statements after it before which nobody pauses, as far as they were seen."""

    def __init__(self) -> None:
        self._seen: dict[Step, Effect] = {}
        self._commuted: set[Step] = set()
        self.is_outdated = False
        """True once a step that was assumed to commute has done more than was seen of it before."""
        self.are_ignored = False

    def note(self, step: Step, effect: Effect) -> None:
        if effect > self._seen.get(step, 0):
            self._seen[step] = effect
            self.is_outdated |= step in self._commuted

    def commute(self, one: Step, other: Step) -> bool:
        """Return whether the order of these neighbouring steps of two participants cannot matter."""
        effects = self._seen[one], self._seen[other]
        if self.are_ignored or Effect.READ not in effects or Effect.END in effects:
            return False
        self._commuted |= {one, other}
        return True


class RunResult(NamedTuple):
    """One order, run to its end: the result of each participant, and all steps in order."""

    results: dict[str, Any]
    steps: list[Step]

    def finished_first(self, who: str) -> bool:
        """Return whether this participant had finished before any other began."""
        others = [step.who != who for step in self.steps]
        return others == sorted(others)

    def is_before(self, one: Step, other: Step) -> bool:
        """Return whether `one` was done before `other`, for the first time each; `other` may be missing."""
        if one not in self.steps:
            return False
        return other not in self.steps or self.steps.index(one) < self.steps.index(other)


class Order:
    """Chooses the next participant: first as `prefix` says, then the first that is ready. Remembers every choice."""

    def __init__(self, prefix: Sequence[int] = ()) -> None:
        self._prefix = prefix
        self._chosen: list[int] = []
        self._choices: list[int] = []

    def choose(self, ready: Sequence[T]) -> T:
        """Return the next of those that are ready."""
        depth = len(self._chosen)
        self._chosen.append(self._prefix[depth] if depth < len(self._prefix) else 0)
        self._choices.append(len(ready))
        return ready[self._chosen[-1]]

    def branches(self) -> Iterator[Sequence[int]]:
        """Yield the prefixes of the orders that differ from this one after its own prefix."""
        for depth in range(len(self._prefix), len(self._chosen)):
            for other in range(1, self._choices[depth]):
                yield [*self._chosen[:depth], other]


def every_order() -> Iterator[Order]:
    """Yield each order once. The branches of an order are known only after it was run."""
    prefixes: list[Sequence[int]] = [()]
    while prefixes:
        order = Order(prefixes.pop())
        yield order
        prefixes += order.branches()


class RedundantOrder(Exception):
    """An order whose remaining steps would all be those of an order that is run elsewhere."""


async def _nothing(_step: Step) -> None:
    pass


class Scheduler:
    """The participants' connections, and an observer's connection, which never pauses."""

    def __init__(self, observer: Postgresql, participants: Mapping[str, "_Participant"], effects: _Effects) -> None:
        self.observer = observer
        self._participants = participants
        self.effects = effects
        self.last_steps: list[Step] = []

    async def run(
        self, order: Order, *, after: Callable[[Step], Awaitable[None]] = _nothing, **work: Work
    ) -> RunResult:
        """Run each participant's work on its own database, in this order, until all have finished.

        `after` is called after each step, once everything that can continue without another step has continued. Raise
        RedundantOrder where another order has the same outcome.
        """
        participants = [self._participants[who] for who in work]
        steps: list[Step] = []
        self.last_steps = steps
        try:
            for participant in participants:
                participant.start(work[participant.name])
                await self._wait_until_settled(participant)
            were_ready: list[_Participant] = []
            while ready := [participant for participant in participants if participant.is_paused]:
                # Of two neighbouring steps that commute, the first participant's comes first.
                waited = [one for one in were_ready if one.name != steps[-1].who]
                earlier = participants[: participants.index(self._participants[steps[-1].who])] if steps else []
                candidates = [
                    one
                    for one in ready
                    if one not in waited or one not in earlier or not self.effects.commute(steps[-1], one.next_step)
                ]
                if not candidates:
                    raise RedundantOrder
                were_ready, participant = ready, order.choose(candidates)
                steps.append(participant.resume())
                await self._wait_until_settled(participant)
                for other in participants:
                    # Most often it still waits for the same lock: asking is faster than waiting.
                    if other.is_running and not await self._is_blocked(other):
                        await self._wait_until_settled(other)
                await after(steps[-1])
            assert all(participant.is_finished for participant in participants), f"a deadlock after {steps}"
            return RunResult({participant.name: participant.result() for participant in participants}, steps)
        finally:
            for participant in participants:
                participant.stop_pausing()
            for participant in participants:
                await participant.finish()

    async def _wait_until_settled(self, participant: "_Participant") -> None:
        """Wait until the participant is paused or has finished, or its statement waits for another participant."""
        while participant.is_running:
            await participant.wait_until_idle(_FIRST_WAIT_S)
            if participant.is_running and await self._is_blocked(participant):
                return

    async def _is_blocked(self, participant: "_Participant") -> bool:
        # A wait for anything else, such as a vacuum, ends by itself.
        others = [pid for other in self._participants.values() for pid in other.pids]
        row = await self.observer.one(_IS_BLOCKED, pids=participant.pids, others=others)
        return row is not None and bool(row["is_blocked"])


@contextlib.asynccontextmanager
async def open_scheduler(
    database_url: str, *names: str, is_paused: Callable[[Step], bool] = lambda _step: True
) -> AsyncIterator[Scheduler]:
    """Yield a scheduler for participants of these names, who pause before each step that `is_paused` accepts.

    Steps whose order cannot matter may be left out: those that read what no participant writes. A participant that is
    paused, or waits for another, meets no time limit.
    """
    async with contextlib.AsyncExitStack() as stack:

        async def connect(opener: type[Postgresql]) -> Postgresql:
            database = await opener.open(database_url, pool_size=1, prepared=True)
            stack.push_async_callback(database.close)
            return database

        effects = _Effects()
        participants = {
            name: _Participant(name, await connect(_SteppedPostgresql), is_paused, effects) for name in names
        }
        for participant in participants.values():
            # One connection for reads and one for queued writes: each pool holds one.
            reader = await participant.database.one(_PID)
            writer = await participant.database.write(
                lambda transaction: transaction.one(_PID), queue_key=_UNUSED_QUEUE_KEY
            )
            assert reader is not None
            assert writer is not None
            participant.pids = [reader["pid"], writer["pid"]]
        yield Scheduler(await connect(Postgresql), participants, effects)


class Scenario(Protocol):
    """A scheduler with the data that its participants work on; `reset` restores the data before each run."""

    scheduler: Scheduler

    async def reset(self) -> None: ...


ScenarioT = TypeVar("ScenarioT", bound=Scenario)
ScenarioTest = Callable[..., Awaitable[None]]


def in_every_order(
    open_scenario: Callable[[str], AbstractAsyncContextManager[ScenarioT]], *, at_least: int, is_reduced: bool = True
) -> Callable[[ScenarioTest], Callable[..., None]]:
    """Decorate a test of one run with a given order, so that it runs once in every order that may matter.

    At least `at_least` orders must exist, or the participants did not pause. `open_scenario` gets the URL of an empty
    database. A test that tells apart what is read before and after another's change, not its COMMIT, is not reduced.
    """

    def decorate(test: ScenarioTest) -> Callable[..., None]:
        async def run_every_order(postgresql_url: str, given: dict[str, Any]) -> None:
            async with open_scenario(postgresql_url) as scenario:
                effects, is_complete = scenario.scheduler.effects, False
                effects.are_ignored = not is_reduced
                while not is_complete:
                    count, effects.is_outdated = 0, False
                    for order in every_order():
                        await scenario.reset()
                        try:
                            await test(scenario, order, **given)
                            count += 1
                        except RedundantOrder:
                            pass
                        except Exception as failure:
                            failure.add_note(f"in this order: {scenario.scheduler.last_steps}")
                            raise
                    is_complete = not effects.is_outdated
            assert count >= at_least, count

        @functools.wraps(test)
        def body(*, postgresql_url: str, **given: Any) -> None:
            asyncio.run(run_every_order(postgresql_url, given))

        # pytest reads the signature to find the fixtures of the test.
        parameters = ["postgresql_url", *list(inspect.signature(test).parameters)[2:]]
        body.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in parameters]
        )
        return body

    return decorate


class _SteppedPostgresql(Postgresql):
    """The product's own driver, pausing before each statement, or not at all without `before_step`.

    `slices` needs no override, since it calls `all`.
    """

    before_step: Callable[[str, Effect], Awaitable[None]] | None = None

    async def one(self, query: Query, **values: Any) -> Row | None:
        await self._wait_before(query)
        return await super().one(query, **values)

    async def all(self, query: Query, **values: Any) -> list[Row]:
        await self._wait_before(query)
        return await super().all(query, **values)

    async def rows(self, query: Query, *values: Any) -> list[Row]:
        await self._wait_before(query)
        return await super().rows(query, *values)

    async def one_large(self, query: Query, **values: Any) -> Row | None:
        await self._wait_before(query)
        return await super().one_large(query, **values)

    async def write(
        self, unit: Unit[T], *, queue_key: int | None = None, feed_id: int | None = None, rows: int = 1
    ) -> T:
        async def paused_unit(transaction: Transaction) -> T:
            try:
                result = await unit(_SteppedTransaction(transaction, self._wait_before))
            except Exception:
                await self._wait("ROLLBACK", Effect.END)
                raise
            await self._wait("COMMIT", Effect.END)
            return result

        return await super().write(paused_unit, queue_key=queue_key, rows=rows)

    async def write_one(self, query: Query, **values: Any) -> Row | None:
        # For the server, a single statement and its commit are two steps: others come in between.
        return await self.write(lambda transaction: transaction.one(query, **values))

    async def _wait_before(self, query: Query) -> None:
        await self._wait(query.name, Effect.READ if _READS_ALONE.match(query.postgresql) else Effect.CHANGE)

    async def _wait(self, what: str, effect: Effect) -> None:
        if self.before_step is not None:
            await self.before_step(what, effect)


class _SteppedTransaction:
    outbox_feed_id: int | None = None

    def __init__(self, transaction: Transaction, wait_before: Callable[[Query], Awaitable[None]]) -> None:
        self._transaction, self._wait_before = transaction, wait_before

    async def one(self, query: Query, **values: Any) -> Row | None:
        await self._wait_before(query)
        return await self._transaction.one(query, **values)

    async def all(self, query: Query, **values: Any) -> list[Row]:
        await self._wait_before(query)
        return await self._transaction.all(query, **values)

    async def run(self, query: Query, **values: Any) -> int:
        await self._wait_before(query)
        return await self._transaction.run(query, **values)

    async def pause(self) -> None:
        await self._transaction.pause()


class _Participant:
    """A participant: running, paused before a step, or finished."""

    def __init__(self, name: str, database: Postgresql, is_paused: Callable[[Step], bool], effects: _Effects) -> None:
        self.name = name
        self.database = database
        self.pids: list[int] = []
        self._pauses_before = is_paused
        self._effects = effects
        self._step: Step | None = None
        self._next_step: Step | None = None
        self._resumed = asyncio.Event()
        self._idle = asyncio.Event()
        self._task: asyncio.Future[Any] | None = None

    @property
    def is_finished(self) -> bool:
        return self._task is None or self._task.done()

    @property
    def is_paused(self) -> bool:
        return self._next_step is not None and not self.is_finished

    @property
    def is_running(self) -> bool:
        return not self.is_paused and not self.is_finished

    @property
    def next_step(self) -> Step:
        assert self._next_step is not None
        return self._next_step

    def start(self, work: Work) -> None:
        assert isinstance(self.database, _SteppedPostgresql)
        self.database.before_step = self._before_step
        self._idle.clear()
        self._task = asyncio.ensure_future(work(self.database))
        self._task.add_done_callback(lambda _: self._idle.set())

    def resume(self) -> Step:
        """Let the participant do its next step; return that step."""
        self._step, self._next_step = self.next_step, None
        self._idle.clear()
        self._resumed.set()
        return self._step

    async def wait_until_idle(self, timeout_s: float) -> None:
        """Wait until the participant is paused or has finished, at most this long."""
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._idle.wait(), timeout_s)

    def result(self) -> Any:
        assert self._task is not None
        return self._task.result()

    def stop_pausing(self) -> None:
        assert isinstance(self.database, _SteppedPostgresql)
        self.database.before_step = None
        self._step = self._next_step = None
        self._resumed.set()

    async def finish(self) -> None:
        """Wait for the end of the participant, which pauses no more."""
        if self._task is not None:
            await asyncio.wait({self._task})
        self._resumed.clear()
        self._task = None

    async def _before_step(self, what: str, effect: Effect) -> None:
        step = Step(self.name, what)
        if not self._pauses_before(step):
            if self._step is not None:
                self._effects.note(self._step, effect)
            return
        self._effects.note(step, effect)
        self._next_step = step
        self._idle.set()
        await self._resumed.wait()
        self._resumed.clear()
