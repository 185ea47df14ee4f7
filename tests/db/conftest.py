"""Servers that tests may freeze, crash and promote, and a driver that is quick to give up."""

import contextlib
from collections.abc import Iterator

import pytest

from stoplist.db import connecting, lines, pools, postgresql
from tests.conftest import leave_out
from tests.db import hosts
from tests.db.trouble import MAY_WAIT
from tests.services import postgresql as services


@pytest.fixture(scope="module")
def cluster(pytestconfig: pytest.Config) -> Iterator[services.Cluster]:
    """A server that these tests have for themselves; each leaves it running."""
    with _own_cluster(pytestconfig) as own:
        yield own


@pytest.fixture
def primary(pytestconfig: pytest.Config) -> Iterator[services.Cluster]:
    """A server of the test's own, that may come to have a standby."""
    with _own_cluster(pytestconfig) as own:
        yield own


@contextlib.contextmanager
def _own_cluster(pytestconfig: pytest.Config) -> Iterator[services.Cluster]:
    try:
        with hosts.own_cluster() as own:
            yield own
    except services.Unavailable as error:
        leave_out(pytestconfig, "on a PostgreSQL of their own", str(error))


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everybody waits a tenth as long, and a twentieth as many may."""
    monkeypatch.setattr(pools, "ACQUIRE_TIMEOUT_S", 0.5)
    monkeypatch.setattr(pools, "STATEMENT_TIMEOUT_S", 1.0)
    monkeypatch.setattr(pools, "SETTLE_TIMEOUT_S", 0.2)
    monkeypatch.setattr(postgresql, "SETTLE_TIMEOUT_S", 0.2)
    monkeypatch.setattr(postgresql, "STATEMENT_TIMEOUT_S", 1.0)
    monkeypatch.setattr(pools, "WAITING_ASKERS", MAY_WAIT)
    monkeypatch.setattr(connecting, "CONNECT_TIMEOUT_S", 0.5)
    monkeypatch.setattr(lines, "WAITING_UNITS", MAY_WAIT)
    monkeypatch.setattr(lines, "SMALL_WAIT_S", 0.5)
    monkeypatch.setattr(lines, "HEAVY_WAIT_S", 1.0)
