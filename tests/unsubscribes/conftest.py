"""A deployment on either database, opened once for all the tests of a module."""

from collections.abc import Iterator

import pytest

from tests.builders import in_a_loop
from tests.fakes import FakeClock
from tests.unsubscribes.partner import Deployment, InLoop, placed


@pytest.fixture(scope="module")
def deployment(module_database_url: str) -> Iterator[Deployment]:
    """A deployment and its event loop. The module's tests run once on each kind of database."""
    with in_a_loop(placed(module_database_url)) as (run, place):
        yield Deployment(run, place.database)


@pytest.fixture
def place(deployment: Deployment, clock: FakeClock) -> InLoop:
    """The deployment at the clock's time. Each test creates organizations of its own."""
    return deployment.place(clock)
