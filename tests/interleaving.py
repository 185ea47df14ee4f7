"""Operations on PostgreSQL that are driven against one another, statement by statement, in every order there is.

Each participant has a driver of its own, as a server process has, and is held before BEGIN, before each statement, and
before COMMIT or ROLLBACK, until its turn comes. A statement that waits in the server for another participant's lock
stays where it is until that participant has let go of it: the server says which those are, so nothing here depends on
time.
"""

import asyncio
import contextlib
import functools
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
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
_NO_LINE = -1

# Most statements are answered sooner, and the server need not be asked what they wait for. Nothing else hangs on it.
_PATIENCE_S = 0.002


class Step(NamedTuple):
    """What a participant was let do: BEGIN, COMMIT, ROLLBACK, or a statement by its name."""

    who: str
    what: str


class Played(NamedTuple):
    """One order to its end: what each participant returned, and who was let do what, in this order."""

    results: dict[str, Any]
    steps: list[Step]

    def came_first(self, who: str) -> bool:
        """Whether this participant had finished before anybody else began."""
        others = [step.who != who for step in self.steps]
        return others == sorted(others)

    def is_before(self, one: Step, other: Step) -> bool:
        """Whether the one was done before the other, for the first time each; the other need not have been done."""
        if one not in self.steps:
            return False
        return other not in self.steps or self.steps.index(one) < self.steps.index(other)


class Order:
    """Which participant goes next: as `prefix` says, then the first that can; remembers where it had a choice."""

    def __init__(self, prefix: Sequence[int] = ()) -> None:
        self._prefix = prefix
        self._chosen: list[int] = []
        self._choices: list[int] = []

    def choose(self, ready: Sequence[T]) -> T:
        """The next one of those that can go."""
        depth = len(self._chosen)
        self._chosen.append(self._prefix[depth] if depth < len(self._prefix) else 0)
        self._choices.append(len(ready))
        return ready[self._chosen[-1]]

    def branches(self) -> Iterator[Sequence[int]]:
        """The prefixes of the orders that part from this one after its own prefix."""
        for depth in range(len(self._prefix), len(self._chosen)):
            for other in range(1, self._choices[depth]):
                yield [*self._chosen[:depth], other]


def every_order() -> Iterator[Order]:
    """Each order once; what to branch off shows only when the one handed out has been played."""
    prefixes: list[Sequence[int]] = [()]
    while prefixes:
        order = Order(prefixes.pop())
        yield order
        prefixes += order.branches()


async def _nothing(_step: Step) -> None:
    """What is done after a step where nothing else is asked for."""


class Stage:
    """The participants' connections, and the observer's, which is never held."""

    def __init__(self, observer: Postgresql, players: Mapping[str, "_Player"]) -> None:
        self.observer = observer
        self._players = players
        self.last_steps: list[Step] = []

    async def play(self, order: Order, *, after: Callable[[Step], Awaitable[None]] = _nothing, **work: Work) -> Played:
        """Let each participant do its work on its own database, in this order, and wait until all have finished.

        `after` is called after each step, when all that can go on without another step has gone on.
        """
        players = [self._players[who] for who in work]
        steps: list[Step] = []
        self.last_steps = steps
        try:
            for player in players:
                player.start(work[player.name])
                await self._settle(player)
            while ready := [player for player in players if player.is_held]:
                player = order.choose(ready)
                steps.append(Step(player.name, player.go()))
                await self._settle(player)
                for other in players:
                    # Most often it waits for a lock as before: asking is quicker than patience.
                    if other.is_running and not await self._is_blocked(other):
                        await self._settle(other)
                await after(steps[-1])
            assert all(player.is_finished for player in players), f"a deadlock after {steps}"
            return Played({player.name: player.result() for player in players}, steps)
        finally:
            for player in players:
                await player.leave()

    async def _settle(self, player: "_Player") -> None:
        """Wait until the participant is held or has finished, or its statement waits for another participant."""
        while player.is_running:
            await player.rest(_PATIENCE_S)
            if player.is_running and await self._is_blocked(player):
                return

    async def _is_blocked(self, player: "_Player") -> bool:
        # Whoever waits for somebody else, as for a vacuum, goes on by himself.
        others = [pid for other in self._players.values() for pid in other.pids]
        row = await self.observer.one(_IS_BLOCKED, pids=player.pids, others=others)
        return row is not None and bool(row["is_blocked"])


@contextlib.asynccontextmanager
async def stage(
    database_url: str, *names: str, is_held: Callable[[Step], bool] = lambda _step: True
) -> AsyncIterator[Stage]:
    """A stage for participants of these names, who are held before each step that `is_held` says.

    Steps whose place among the others' cannot matter may be left out: they read what nobody in the play writes.
    """
    async with contextlib.AsyncExitStack() as stack:

        async def connect(opener: type[Postgresql]) -> Postgresql:
            database = await opener.open(database_url, pool_size=1, prepared=True)
            stack.push_async_callback(database.close)
            return database

        players = {name: _Player(name, await connect(_Held), is_held) for name in names}
        for player in players.values():
            # One connection for what reads and one for what waits in a queue: the pools hold no more.
            of_reads = await player.database.one(_PID)
            of_lines = await player.database.write(lambda transaction: transaction.one(_PID), queue_key=_NO_LINE)
            assert of_reads is not None
            assert of_lines is not None
            player.pids = [of_reads["pid"], of_lines["pid"]]
        yield Stage(await connect(Postgresql), players)


class Theatre(Protocol):
    """What is played on: a stage, and what stands on it when a play begins."""

    on: Stage

    async def set_the_scene(self) -> None: ...


TheatreT = TypeVar("TheatreT", bound=Theatre)
Play = Callable[..., Awaitable[None]]


def in_every_order(
    theatre: Callable[[str], AbstractAsyncContextManager[TheatreT]], *, at_least: int
) -> Callable[[Play], Callable[..., None]]:
    """A test that plays a scene once, in the order that it is given: it is run once in each that there is.

    `at_least` so many there must be, or the participants were not held. The `theatre` is made from the URL of an empty
    database.
    """

    def decorate(test: Play) -> Callable[..., None]:
        async def in_each(postgresql_url: str, given: dict[str, Any]) -> None:
            count = 0
            async with theatre(postgresql_url) as scene:
                for order in every_order():
                    await scene.set_the_scene()
                    try:
                        await test(scene, order, **given)
                    except Exception as failure:
                        failure.add_note(f"in this order: {scene.on.last_steps}")
                        raise
                    count += 1
            assert count >= at_least, count

        @functools.wraps(test)
        def body(*, postgresql_url: str, **given: Any) -> None:
            asyncio.run(in_each(postgresql_url, given))

        # What pytest reads to see which fixtures the test wants.
        wanted = ["postgresql_url", *list(inspect.signature(test).parameters)[2:]]
        body.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in wanted]
        )
        return body

    return decorate


class _Held(Postgresql):
    """The product's own driver, held before each statement. Without a `turn` it goes on by itself.

    `slices` needs no word here: it goes by way of `all`.
    """

    turn: Callable[[str], Awaitable[None]] | None = None

    async def one(self, query: Query, **values: Any) -> Row | None:
        await self._wait(query.name)
        return await super().one(query, **values)

    async def all(self, query: Query, **values: Any) -> list[Row]:
        await self._wait(query.name)
        return await super().all(query, **values)

    async def one_large(self, query: Query, **values: Any) -> Row | None:
        await self._wait(query.name)
        return await super().one_large(query, **values)

    async def write(self, unit: Unit[T], *, queue_key: int | None = None, rows: int = 1) -> T:
        async def held(transaction: Transaction) -> T:
            try:
                result = await unit(_HeldTransaction(transaction, self._wait))
            except Exception:
                await self._wait("ROLLBACK")
                raise
            await self._wait("COMMIT")
            return result

        await self._wait("BEGIN")
        return await super().write(held, queue_key=queue_key, rows=rows)

    async def write_one(self, query: Query, **values: Any) -> Row | None:
        # To the server a lone statement, too, is one thing and its commit another: others come in between.
        return await self.write(lambda transaction: transaction.one(query, **values))

    async def _wait(self, what: str) -> None:
        if self.turn is not None:
            await self.turn(what)


class _HeldTransaction:
    def __init__(self, transaction: Transaction, wait: Callable[[str], Awaitable[None]]) -> None:
        self._transaction, self._wait = transaction, wait

    async def one(self, query: Query, **values: Any) -> Row | None:
        await self._wait(query.name)
        return await self._transaction.one(query, **values)

    async def all(self, query: Query, **values: Any) -> list[Row]:
        await self._wait(query.name)
        return await self._transaction.all(query, **values)

    async def run(self, query: Query, **values: Any) -> int:
        await self._wait(query.name)
        return await self._transaction.run(query, **values)

    async def pause(self) -> None:
        await self._transaction.pause()


class _Player:
    """A participant: running, held before a step, or finished."""

    def __init__(self, name: str, database: Postgresql, is_held: Callable[[Step], bool]) -> None:
        self.name = name
        self.database = database
        self.pids: list[int] = []
        self._is_held = is_held
        self._next_step = ""
        self._is_let_go = asyncio.Event()
        self._is_at_rest = asyncio.Event()
        self._task: asyncio.Future[Any] | None = None

    @property
    def is_finished(self) -> bool:
        return self._task is None or self._task.done()

    @property
    def is_held(self) -> bool:
        return bool(self._next_step) and not self.is_finished

    @property
    def is_running(self) -> bool:
        return not self.is_held and not self.is_finished

    def start(self, work: Work) -> None:
        assert isinstance(self.database, _Held)
        self.database.turn = self._turn
        self._is_at_rest.clear()
        self._task = asyncio.ensure_future(work(self.database))
        self._task.add_done_callback(lambda _: self._is_at_rest.set())

    def go(self) -> str:
        """Let the participant do its next step; returns which it is."""
        step, self._next_step = self._next_step, ""
        self._is_at_rest.clear()
        self._is_let_go.set()
        return step

    async def rest(self, patience_s: float) -> None:
        """Wait until the participant is held or has finished, but not longer than this."""
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._is_at_rest.wait(), patience_s)

    def result(self) -> Any:
        assert self._task is not None
        return self._task.result()

    async def leave(self) -> None:
        """Go on without being held, if it is not finished yet."""
        assert isinstance(self.database, _Held)
        self.database.turn = None
        self._next_step = ""
        self._is_let_go.set()
        if self._task is not None:
            await asyncio.wait({self._task})
        self._is_let_go.clear()
        self._task = None

    async def _turn(self, what: str) -> None:
        if not self._is_held(Step(self.name, what)):
            return
        self._next_step = what
        self._is_at_rest.set()
        await self._is_let_go.wait()
        self._is_let_go.clear()
