"""The application over a database that all tests of a module share."""

from collections.abc import Iterator
from typing import NamedTuple

import pytest

from stoplist.db import Database
from tests.builders import in_a_loop, make_organization, migrated
from tests.fakes import FakeClock
from tests.web.application import Application, Key, Run


class Deployment(NamedTuple):
    """A database, and a function that runs coroutines on its event loop."""

    run: Run
    database: Database


@pytest.fixture(scope="module")
def deployment(module_sqlite_url: str) -> Iterator[Deployment]:
    """A database with the organization `acme`."""
    with in_a_loop(migrated(module_sqlite_url)) as (run, database):
        run(make_organization(database, FakeClock()))
        yield Deployment(run, database)


@pytest.fixture
def app(deployment: Deployment, clock: FakeClock) -> Application:
    """A new application over the database of the module."""
    return Application(deployment.run, deployment.database, clock)


@pytest.fixture
def key(app: Application) -> Key:
    """An active, unused key."""
    return app.new_key()
