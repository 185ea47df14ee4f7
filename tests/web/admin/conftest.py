"""Fixtures: the pages on one SQLite database per test module; the HTML is the same on PostgreSQL."""

from collections.abc import Iterator

import pytest

from stoplist.db import Database
from tests.builders import Run, in_a_loop, migrated
from tests.fakes import FakeClock
from tests.web.admin.pages import Pages
from tests.web.application import Application


@pytest.fixture(scope="module")
def pages_url(module_sqlite_url: str) -> str:
    """The database of the module. A module that needs both kinds replaces this fixture."""
    return module_sqlite_url


@pytest.fixture(scope="module")
def prepared(pages_url: str) -> Iterator[tuple[Run, Database, Pages]]:
    """A database with organizations and people."""
    with in_a_loop(migrated(pages_url)) as (run, database):
        first = Pages(Application(run, database, FakeClock()))
        first.prepare()
        yield run, database, first


@pytest.fixture
def pages(prepared: tuple[Run, Database, Pages], clock: FakeClock) -> Pages:
    """The pages with fresh limits and counters, and this clock."""
    run, database, first = prepared
    return first.with_app(Application(run, database, clock))
