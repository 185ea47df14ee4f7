"""A deployment on either database, opened once for all the tests of a module."""

import pytest

from tests.deployment import SharedDatabase
from tests.fakes import FakeClock
from tests.unsubscribes.partner import OptOutDeployment


@pytest.fixture
def deployment(shared_database: SharedDatabase, clock: FakeClock) -> OptOutDeployment:
    """Return a deployment at the clock's time. Each test creates organizations of its own."""
    return OptOutDeployment.on(shared_database, clock)
