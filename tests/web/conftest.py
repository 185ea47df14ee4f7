"""The application over a database that is opened once for all the tests of a module."""

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack
from typing import NamedTuple

import pytest

from stoplist.db import Database
from tests.builders import make_organization, migrated
from tests.fakes import FakeClock
from tests.web.application import Application, Key, Run


class Deployment(NamedTuple):
    """A database and the loop that it lives in."""

    run: Run
    database: Database


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """A database with the organization `acme`."""
    url = f"sqlite:///{tmp_path_factory.mktemp('web') / 'stoplist.db'}"
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        database = runner.run(stack.enter_async_context(migrated(url)))
        runner.run(make_organization(database, FakeClock()))
        yield Deployment(runner.run, database)
        runner.run(stack.aclose())


@pytest.fixture
def app(deployment: Deployment, clock: FakeClock) -> Application:
    """The application without a past, at the clock's time."""
    return Application(deployment.run, deployment.database, clock)


@pytest.fixture
def key(app: Application) -> Key:
    """An active key that nobody has used."""
    return app.new_key()
