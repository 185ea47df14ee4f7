"""The application over each kind of database, which all tests of a module share."""

import pytest

from tests.deployment import SharedDatabase
from tests.fakes import FakeClock
from tests.web.api.partner import ApiPartner
from tests.web.application import Application


@pytest.fixture
def partner(shared_database: SharedDatabase, clock: FakeClock) -> ApiPartner:
    """A partner with all permissions for an organization of its own."""
    return ApiPartner.new(Application(shared_database.run, shared_database.database, clock), clock)


@pytest.fixture
def partner_on_sqlite(app: Application, clock: FakeClock) -> ApiPartner:
    """The same on SQLite only, for tests of a request before it reaches the database."""
    return ApiPartner.new(app, clock)
