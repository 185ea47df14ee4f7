"""The application over each kind of database, opened once for all the tests of a module."""

from collections.abc import Iterator

import pytest

from tests.builders import in_a_loop, migrated
from tests.fakes import FakeClock
from tests.web.api.partner import Partner
from tests.web.application import Application
from tests.web.conftest import Deployment


@pytest.fixture(scope="module")
def each_deployment(module_database_url: str) -> Iterator[Deployment]:
    """A database and the loop that it lives in; the module's tests run once on each kind."""
    with in_a_loop(migrated(module_database_url, pool_size=2)) as (run, database):
        yield Deployment(run, database)


@pytest.fixture
def partner(each_deployment: Deployment, clock: FakeClock) -> Partner:
    """Somebody with a token who may do all, for an organization that nobody else uses, at the clock's time."""
    return Partner.new(Application(each_deployment.run, each_deployment.database, clock), clock)


@pytest.fixture
def partner_on_sqlite(app: Application, clock: FakeClock) -> Partner:
    """The same on SQLite alone: for what is read of a request before any database is asked."""
    return Partner.new(app, clock)
