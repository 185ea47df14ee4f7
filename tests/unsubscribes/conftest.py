"""A deployment on either database, opened once for all the tests of a module."""

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack

import pytest

from tests.fakes import FakeClock
from tests.services.postgresql import Server
from tests.unsubscribes.partner import Deployment, InLoop, placed


@pytest.fixture(scope="module")
def module_sqlite_url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The URL of an SQLite file that does not exist yet."""
    return f"sqlite:///{tmp_path_factory.mktemp('unsubscribes') / 'stoplist.db'}"


@pytest.fixture(scope="module")
def module_postgresql_url(postgresql: Server, request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of an empty PostgreSQL database, dropped after the module's tests."""
    url = postgresql.fresh_database(request.node.name)
    yield url
    postgresql.drop_database(url)


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def deployment(request: pytest.FixtureRequest) -> Iterator[Deployment]:
    """A deployment and the loop that it lives in; the module's tests run once on each kind of database."""
    url: str = request.getfixturevalue(f"module_{request.param}_url")
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        place = runner.run(stack.enter_async_context(placed(url)))
        yield Deployment(runner.run, place.database)
        runner.run(stack.aclose())


@pytest.fixture
def place(deployment: Deployment, clock: FakeClock) -> InLoop:
    """It at the clock's time; each test makes organizations of its own."""
    return deployment.place(clock)
