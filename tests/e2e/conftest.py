"""Deployments on either kind of database, and servers shared by the tests of a module."""

import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import redis

from tests.e2e.server_process import Installation, RunningServer
from tests.empty_databases import *  # noqa: F403 - fixtures
from tests.services import postgresql as services
from tests.services.valkey import Valkey
from tests.time_limits import LONG_DATABASE, LONG_LIMIT_STORE, LONG_READS, setting_constants

SECRET_KEY = "0123456789abcdefghijklmnopqrstuvwxyz"


# Each deployment has its own database of the limit store, because attempts of unknown clients count by source alone.
_limit_databases = itertools.cycle(range(1, 16))


class RunningDeployment(NamedTuple):
    """An installation and its servers: one process on SQLite, or one of two workers on PostgreSQL and Valkey."""

    installation: Installation
    servers: list[RunningServer]


@pytest.fixture
def installation(tmp_path: Path) -> Installation:
    """Return an empty installation for SQLite."""
    return Installation(tmp_path)


def postgresql_installation(folder: Path, url: str, **variables: str) -> Installation:
    """Return an installation on an empty PostgreSQL database, by default with a server of one process."""
    defaults = {"DATABASE_URL": url, "LIMITS_URL": "memory:", "SECRET_KEY": SECRET_KEY, "DATABASE_POOL": "5"}
    return Installation(folder, **(defaults | variables))


def scaled_installation(folder: Path, url: str, valkey: Valkey) -> Installation:
    """Return an installation on PostgreSQL and Valkey with two workers per server, which wait long for both."""
    return run_first(
        setting_constants(LONG_DATABASE | LONG_READS | LONG_LIMIT_STORE),
        postgresql_installation(folder, url, LIMITS_URL=own_limits_url(valkey), WORKERS="2"),
    )


def run_first(program: str, installation: Installation) -> Installation:
    """Make every `stoplist` process of the installation run this program first."""
    start = installation.folder / "start"
    start.mkdir(exist_ok=True)
    (start / "sitecustomize.py").write_text(program)
    installation.variables["PYTHONPATH"] = f"{start}{os.pathsep}{installation.variables['PYTHONPATH']}"
    return installation


def own_limits_url(valkey: Valkey) -> str:
    """Return the URL of an empty database of the limit store that no other test uses now."""
    number = next(_limit_databases)
    url = valkey.url.removesuffix("/0") + f"/{number}"
    with redis.Redis.from_url(url) as client:
        client.flushdb()
    return url


@pytest.fixture(params=["sqlite", "postgresql"])
def migrated(request: pytest.FixtureRequest, tmp_path: Path) -> Installation:
    """Return an installation with a database of each kind, and no server."""
    if request.param == "sqlite":
        installation = Installation(tmp_path)
    else:
        url, valkey = map(request.getfixturevalue, ("postgresql_url", "valkey"))
        installation = scaled_installation(tmp_path, url, valkey)
    installation.migrate()
    return installation


@pytest.fixture(scope="module")
def on_sqlite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDeployment]:
    """Run a server on SQLite."""
    installation = Installation(tmp_path_factory.mktemp("sqlite"))
    with installation.serving() as server:
        yield RunningDeployment(installation, [server])


@pytest.fixture(scope="module")
def scaled(
    tmp_path_factory: pytest.TempPathFactory,
    postgresql: services.PostgresqlServer,
    valkey: Valkey,
    request: pytest.FixtureRequest,
) -> Iterator[Installation]:
    """Return an installation on PostgreSQL and Valkey with two workers per server, for the tests of a module."""
    url = postgresql.fresh_database(request.node.name)
    installation = scaled_installation(tmp_path_factory.mktemp("scaled"), url, valkey)
    installation.migrate()
    yield installation
    postgresql.drop_database(url)


@pytest.fixture(scope="module")
def on_postgresql(scaled: Installation) -> Iterator[RunningDeployment]:
    """Run a server of two workers on PostgreSQL and Valkey."""
    with scaled.serving() as server:
        yield RunningDeployment(scaled, [server])


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def deployment(request: pytest.FixtureRequest) -> RunningDeployment:
    """Run each kind of deployment."""
    running: RunningDeployment = request.getfixturevalue(f"on_{request.param}")
    return running
