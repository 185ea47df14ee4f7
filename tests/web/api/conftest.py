"""The application over each kind of database, opened once for all the tests of a module."""

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack

import pytest

from tests.builders import migrated
from tests.fakes import FakeClock
from tests.web.api.partner import Partner
from tests.web.application import Application
from tests.web.conftest import Deployment


@pytest.fixture(scope="module")
def module_sqlite_url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The URL of an SQLite file that does not exist yet."""
    return f"sqlite:///{tmp_path_factory.mktemp('api') / 'stoplist.db'}"


@pytest.fixture(scope="module")
def module_postgresql_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of an empty PostgreSQL database, dropped after the module's tests."""
    server = request.getfixturevalue("postgresql")
    url: str = server.fresh_database(request.node.name)
    yield url
    server.drop_database(url)


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def each_deployment(request: pytest.FixtureRequest) -> Iterator[Deployment]:
    """A database and the loop that it lives in; the module's tests run once on each kind."""
    url: str = request.getfixturevalue(f"module_{request.param}_url")
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        database = runner.run(stack.enter_async_context(migrated(url, pool_size=2)))
        yield Deployment(runner.run, database)
        runner.run(stack.aclose())


@pytest.fixture
def partner(each_deployment: Deployment, clock: FakeClock) -> Partner:
    """Somebody with a token who may do all, for an organization that nobody else uses, at the clock's time."""
    return Partner.new(Application(each_deployment.run, each_deployment.database, clock), clock)


@pytest.fixture
def partner_on_sqlite(app: Application, clock: FakeClock) -> Partner:
    """The same on SQLite alone: for what is read of a request before any database is asked."""
    return Partner.new(app, clock)
