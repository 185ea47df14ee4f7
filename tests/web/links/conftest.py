"""Links of an organization of its own, on the application over the database of the module."""

from collections.abc import Iterator

import pytest

from tests.builders import in_a_loop, migrated
from tests.deployment import SharedDatabase
from tests.fakes import FakeClock
from tests.web.application import Application
from tests.web.links.clicks import Sender


@pytest.fixture(scope="module")
def shared_database(module_database_url: str) -> Iterator[SharedDatabase]:
    """A database of each kind."""
    with in_a_loop(migrated(module_database_url)) as (run, database):
        yield SharedDatabase(run, database)


@pytest.fixture
def sender(shared_database: SharedDatabase, clock: FakeClock) -> Sender:
    """A sender with a link key."""
    return Sender.on(Application(shared_database.run, shared_database.database, clock))
