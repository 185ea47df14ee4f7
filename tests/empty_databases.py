"""Databases without a schema in place of migrated ones, for folders whose tests are about the database itself.

Their conftest.py imports these fixtures; `database_url` and the like then lead to them.
"""

from collections.abc import Iterator

import pytest

from tests.services.postgresql import PostgresqlServer

__all__ = ["module_postgresql_url", "module_sqlite_url", "postgresql_url", "sqlite_url"]


@pytest.fixture
def postgresql_url(empty_postgresql_url: str) -> str:
    """The URL of a PostgreSQL database of the test's own without a schema."""
    return empty_postgresql_url


@pytest.fixture
def sqlite_url(empty_sqlite_url: str) -> str:
    """The URL of an SQLite file that does not exist yet."""
    return empty_sqlite_url


@pytest.fixture(scope="module")
def module_postgresql_url(postgresql: PostgresqlServer, request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of a PostgreSQL database without a schema, for all the tests of a module."""
    url = postgresql.fresh_database(request.node.name)
    yield url
    postgresql.drop_database(url)


@pytest.fixture(scope="module")
def module_sqlite_url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The URL of an SQLite file that does not exist yet, for all the tests of a module."""
    return f"sqlite:///{tmp_path_factory.mktemp('module') / 'stoplist.db'}"
