"""Links of an organization of its own, on the application over the database of the module, of each kind."""

import pytest

from tests.conftest import shared_database as shared_database
from tests.deployment import SharedDatabase
from tests.fakes import FakeClock
from tests.web.application import Application
from tests.web.links.clicks import Sender


@pytest.fixture
def sender(shared_database: SharedDatabase, clock: FakeClock) -> Sender:
    """A sender with a link key."""
    return Sender.on(Application(shared_database.run, shared_database.database, clock))
