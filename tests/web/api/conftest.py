"""The application over each kind of database, which all tests of a module share."""

from collections.abc import Iterator

import pytest

from tests.builders import in_a_loop, migrated
from tests.deployment import SharedDatabase
from tests.fakes import FakeClock
from tests.web.api.partner import ApiPartner
from tests.web.application import Application


@pytest.fixture(scope="module")
def each_deployment(module_database_url: str) -> Iterator[SharedDatabase]:
    """A database of each kind; the tests of the module run once on each."""
    with in_a_loop(migrated(module_database_url, pool_size=2)) as (run, database):
        yield SharedDatabase(run, database)


@pytest.fixture
def partner(each_deployment: SharedDatabase, clock: FakeClock) -> ApiPartner:
    """A partner with all permissions for an organization of its own."""
    return ApiPartner.new(Application(each_deployment.run, each_deployment.database, clock), clock)


@pytest.fixture
def partner_on_sqlite(app: Application, clock: FakeClock) -> ApiPartner:
    """The same on SQLite only, for tests of a request before it reaches the database."""
    return ApiPartner.new(app, clock)
