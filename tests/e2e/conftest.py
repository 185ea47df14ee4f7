"""Deployments on either kind of database, and servers shared by the tests of a module."""

import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import redis

from tests.e2e.server_process import Place, Server
from tests.empty_databases import *  # noqa: F403 - fixtures
from tests.services import postgresql as services
from tests.services.valkey import Valkey

SECRET_KEY = "0123456789abcdefghijklmnopqrstuvwxyz"


# A busy machine must not count as a failing limit store: a server that counts alone would accept more.
_LONG_TIMEOUT = """
import sys

if {"serve", "--multiprocessing-fork"} & set(sys.orig_argv):
    from stoplist.limits import store

    store.ANSWER_WITHIN_S = 30.0
"""

# Each deployment has its own database of the limit store, because attempts of unknown clients count by source alone.
_limit_databases = itertools.cycle(range(1, 16))


class Deployment(NamedTuple):
    """A place and its servers: one process on SQLite, or one of two workers on PostgreSQL and Valkey."""

    place: Place
    servers: list[Server]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """Return an empty place for SQLite."""
    return Place(tmp_path)


def postgresql_place(folder: Path, url: str, **variables: str) -> Place:
    """Return a place on an empty PostgreSQL database, by default with a server of one process."""
    defaults = {"DATABASE_URL": url, "LIMITS_URL": "memory:", "SECRET_KEY": SECRET_KEY, "DATABASE_POOL": "5"}
    return Place(folder, **(defaults | variables))


def scaled_place(folder: Path, url: str, valkey: Valkey) -> Place:
    """Return a place on PostgreSQL and Valkey with two workers per server, which wait long for Valkey."""
    return run_first(_LONG_TIMEOUT, postgresql_place(folder, url, LIMITS_URL=own_limits_url(valkey), WORKERS="2"))


def run_first(program: str, place: Place) -> Place:
    """Make every `stoplist` process of the place run this program first."""
    start = place.folder / "start"
    start.mkdir(exist_ok=True)
    (start / "sitecustomize.py").write_text(program)
    place.variables["PYTHONPATH"] = f"{start}{os.pathsep}{place.variables['PYTHONPATH']}"
    return place


def own_limits_url(valkey: Valkey) -> str:
    """Return the URL of an empty database of the limit store that no other test uses now."""
    number = next(_limit_databases)
    url = valkey.url.removesuffix("/0") + f"/{number}"
    with redis.Redis.from_url(url) as client:
        client.flushdb()
    return url


@pytest.fixture(params=["sqlite", "postgresql"])
def migrated(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """Return a place with a database of each kind, and no server."""
    if request.param == "sqlite":
        place = Place(tmp_path)
    else:
        url, valkey = map(request.getfixturevalue, ("postgresql_url", "valkey"))
        place = scaled_place(tmp_path, url, valkey)
    place.ok("migrate")
    return place


@pytest.fixture(scope="module")
def on_sqlite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """Run a server on SQLite."""
    place = Place(tmp_path_factory.mktemp("sqlite"))
    with place.serving() as server:
        yield Deployment(place, [server])


@pytest.fixture(scope="module")
def scaled(
    tmp_path_factory: pytest.TempPathFactory,
    postgresql: services.Server,
    valkey: Valkey,
    request: pytest.FixtureRequest,
) -> Iterator[Place]:
    """Return a place on PostgreSQL and Valkey with two workers per server, for the tests of a module."""
    url = postgresql.fresh_database(request.node.name)
    place = scaled_place(tmp_path_factory.mktemp("scaled"), url, valkey)
    place.ok("migrate")
    yield place
    postgresql.drop_database(url)


@pytest.fixture(scope="module")
def on_postgresql(scaled: Place) -> Iterator[Deployment]:
    """Run a server of two workers on PostgreSQL and Valkey."""
    with scaled.serving() as server:
        yield Deployment(scaled, [server])


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def deployment(request: pytest.FixtureRequest) -> Deployment:
    """Run each kind of deployment."""
    running: Deployment = request.getfixturevalue(f"on_{request.param}")
    return running
