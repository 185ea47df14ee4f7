"""A deployment on either database, opened once for all the tests of a module."""

from collections.abc import Iterator

import pytest

from tests.builders import in_a_loop
from tests.deployment import SharedDatabase
from tests.fakes import FakeClock
from tests.oauth.partner import TokenDeployment, token_deployment


@pytest.fixture(scope="module")
def shared_database(module_database_url: str) -> Iterator[SharedDatabase]:
    """Yield a database with one organization. The module's tests run once on each kind of database."""
    with in_a_loop(token_deployment(module_database_url, FakeClock())) as (run, deployment):
        yield SharedDatabase(run, deployment.database)


@pytest.fixture
def deployment(shared_database: SharedDatabase, clock: FakeClock) -> TokenDeployment:
    """Return a deployment without tokens, whose limits have counted nothing yet, at the clock's time."""
    return TokenDeployment.on(shared_database, clock)
