"""Fixtures: the pages on one database of each kind per test module."""

from collections.abc import Iterator

import pytest

from stoplist.db import Database
from tests.builders import in_a_loop, migrated
from tests.fakes import FakeClock
from tests.web.admin.pages import Pages
from tests.web.application import Application, Run


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def prepared(request: pytest.FixtureRequest) -> Iterator[tuple[Run, Database, Pages]]:
    """A database with organizations and people."""
    url: str = request.getfixturevalue(f"module_{request.param}_url")
    with in_a_loop(migrated(url)) as (run, database):
        first = Pages(Application(run, database, FakeClock()))
        first.prepare()
        yield run, database, first


@pytest.fixture
def pages(prepared: tuple[Run, Database, Pages], clock: FakeClock) -> Pages:
    """The pages with fresh limits and counters, and this clock."""
    run, database, first = prepared
    return first.with_app(Application(run, database, clock))
