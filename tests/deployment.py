"""A deployment at the level of its operations: the base of what the tests of each package work on."""

import asyncio
import functools
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple, ParamSpec, Self

from stoplist.db import Database
from tests.builders import Run
from tests.fakes import FakeClock

P = ParamSpec("P")


class SharedDatabase(NamedTuple):
    """A migrated database that the tests of a module share, and the `run` of the event loop in which it is open."""

    run: Run
    database: Database


class Deployment:
    """A migrated database, the `run` of the event loop in which it is open, and a clock that the test moves."""

    def __init__(self, database: Database, clock: FakeClock, run: Run = asyncio.run) -> None:
        self.database, self.clock, self.run = database, clock, run

    @classmethod
    def on(cls, shared: SharedDatabase, clock: FakeClock | None = None) -> Self:
        """Return a deployment on a shared database, with a clock of its own."""
        return cls(shared.database, clock or FakeClock(), shared.run)


def in_loop(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Decorate a test that is a coroutine: it runs in the event loop of its fixture `deployment`."""

    @functools.wraps(test)
    def body(*values: P.args, **named: P.kwargs) -> None:
        deployment: Any = named["deployment"]
        deployment.run(test(*values, **named))

    return body


def run_by(
    run: Callable[[Coroutine[Any, Any, None]], None], test: Callable[P, Coroutine[Any, Any, None]]
) -> Callable[P, None]:
    """Return a test that is a coroutine as a function, which lets `run` run it."""

    @functools.wraps(test)
    def body(*values: P.args, **named: P.kwargs) -> None:
        run(test(*values, **named))

    return body


def in_own_loop(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Decorate a test that is a coroutine: it runs in an event loop of its own."""
    return run_by(asyncio.run, test)
