"""A service on either database, opened once for all the tests of a module."""

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack

import pytest

from tests.fakes import FakeClock
from tests.oauth.partner import Deployment, InLoop, deployed
from tests.services.postgresql import Server


@pytest.fixture(scope="module")
def module_sqlite_url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The URL of an SQLite file that does not exist yet."""
    return f"sqlite:///{tmp_path_factory.mktemp('oauth') / 'stoplist.db'}"


@pytest.fixture(scope="module")
def module_postgresql_url(postgresql: Server, request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of an empty PostgreSQL database, dropped after the module's tests."""
    url = postgresql.fresh_database(request.node.name)
    yield url
    postgresql.drop_database(url)


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def deployment(request: pytest.FixtureRequest) -> Iterator[Deployment]:
    """A service and the loop that it lives in; the module's tests run once on each kind of database."""
    url: str = request.getfixturevalue(f"module_{request.param}_url")
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        deployed_service = runner.run(stack.enter_async_context(deployed(url, FakeClock())))
        yield Deployment(runner.run, deployed_service.database)
        runner.run(stack.aclose())


@pytest.fixture
def service(deployment: Deployment, clock: FakeClock) -> InLoop:
    """A service without a token, whose limits have counted nothing yet; the time is the clock's."""
    return deployment.service(clock)
