"""A service on either database, opened once for all the tests of a module."""

from collections.abc import Iterator

import pytest

from tests.builders import in_a_loop
from tests.fakes import FakeClock
from tests.oauth.partner import Deployment, InLoop, deployed


@pytest.fixture(scope="module")
def deployment(module_database_url: str) -> Iterator[Deployment]:
    """A service and its event loop. The module's tests run once on each kind of database."""
    with in_a_loop(deployed(module_database_url, FakeClock())) as (run, service):
        yield Deployment(run, service.database)


@pytest.fixture
def service(deployment: Deployment, clock: FakeClock) -> InLoop:
    """A service without tokens, whose limits have counted nothing yet, at the clock's time."""
    return deployment.service(clock)
