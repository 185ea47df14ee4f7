"""Deployments on either kind of database, and servers that run for all the tests of a module."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.e2e.running import Place, Server
from tests.services import postgresql as services

SECRET_KEY = "0123456789abcdefghijklmnopqrstuvwxyz"


class Deployment(NamedTuple):
    """A place and the servers that run there: one on SQLite, two on one database of PostgreSQL."""

    place: Place
    servers: list[Server]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A place for SQLite where there is nothing yet."""
    return Place(tmp_path)


def postgresql_place(folder: Path, url: str) -> Place:
    """A place whose database is an empty one of PostgreSQL."""
    return Place(folder, DATABASE_URL=url, LIMITS_URL="memory:", SECRET_KEY=SECRET_KEY, DATABASE_POOL="5")


@pytest.fixture(params=["sqlite", "postgresql"])
def migrated(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """A place with a database of each kind, and no server."""
    if request.param == "sqlite":
        place = Place(tmp_path)
    else:
        place = postgresql_place(tmp_path, request.getfixturevalue("postgresql_url"))
    place.ok("migrate")
    return place


@pytest.fixture(scope="module")
def on_sqlite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """One server on SQLite."""
    place = Place(tmp_path_factory.mktemp("sqlite"))
    with place.serving() as server:
        yield Deployment(place, [server])


@pytest.fixture(scope="module")
def on_postgresql(
    tmp_path_factory: pytest.TempPathFactory, postgresql: services.Server, request: pytest.FixtureRequest
) -> Iterator[Deployment]:
    """Two servers on one database of PostgreSQL."""
    url = postgresql.fresh_database(request.node.name)
    place = postgresql_place(tmp_path_factory.mktemp("postgresql"), url)
    place.ok("migrate")
    with place.serving() as first, place.serving() as second:
        yield Deployment(place, [first, second])
    postgresql.drop_database(url)


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def deployment(request: pytest.FixtureRequest) -> Deployment:
    """Each of the two."""
    running: Deployment = request.getfixturevalue(f"on_{request.param}")
    return running
