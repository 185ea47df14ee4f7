"""The application over a database that all tests of a module share."""

from collections.abc import Iterator

import pytest

from tests.builders import in_a_loop, make_organization, migrated
from tests.deployment import SharedDatabase
from tests.fakes import FakeClock
from tests.keys import Key
from tests.web.application import Application


@pytest.fixture(scope="module")
def shared_database(module_sqlite_url: str) -> Iterator[SharedDatabase]:
    """A database with the organization `acme`."""
    with in_a_loop(migrated(module_sqlite_url)) as (run, database):
        run(make_organization(database, FakeClock()))
        yield SharedDatabase(run, database)


@pytest.fixture
def app(shared_database: SharedDatabase, clock: FakeClock) -> Application:
    """A new application over the database of the module."""
    return Application(shared_database.run, shared_database.database, clock)


@pytest.fixture
def key(app: Application) -> Key:
    """An active, unused key."""
    return app.new_key()
