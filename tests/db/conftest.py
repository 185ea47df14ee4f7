"""Servers that tests may freeze, crash and promote, and drivers that are slow or quick to give up."""

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest

from stoplist.db import connecting, lines, pools, postgresql, sqlite
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
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everybody waits much longer than in the product: a machine that is busy is no trouble of the database."""
    monkeypatch.setattr(pools, "ACQUIRE_TIMEOUT_S", 60.0)
    monkeypatch.setattr(pools, "STATEMENT_TIMEOUT_S", 60.0)
    monkeypatch.setattr(postgresql, "STATEMENT_TIMEOUT_S", 60.0)
    monkeypatch.setattr(postgresql, "SERVER_STATEMENT_TIMEOUT_S", 60.0)
    monkeypatch.setattr(postgresql, "LOCK_TIMEOUT_S", 60.0)
    monkeypatch.setattr(postgresql, "IDLE_TIMEOUT_S", 60.0)
    monkeypatch.setattr(connecting, "CONNECT_TIMEOUT_S", 60.0)
    monkeypatch.setattr(lines, "SMALL_WAIT_S", 60.0)
    monkeypatch.setattr(lines, "HEAVY_WAIT_S", 60.0)
    monkeypatch.setattr(sqlite, "LOCK_WAIT_S", 60.0)


@pytest.fixture
def impatient(patient: None, monkeypatch: pytest.MonkeyPatch) -> Callable[[], AbstractContextManager[None]]:
    """In the block everybody waits a tenth as long as in the product; in the whole test a twentieth as many may.

    How long a statement may take is fixed when a database is opened: it must do for those before and after the block.
    """
    monkeypatch.setattr(pools, "STATEMENT_TIMEOUT_S", 4.0)
    monkeypatch.setattr(pools, "WAITING_ASKERS", MAY_WAIT)
    monkeypatch.setattr(lines, "WAITING_UNITS", MAY_WAIT)

    @contextlib.contextmanager
    def in_trouble() -> Iterator[None]:
        with monkeypatch.context() as patch:
            patch.setattr(pools, "ACQUIRE_TIMEOUT_S", 0.5)
            patch.setattr(pools, "SETTLE_TIMEOUT_S", 0.2)
            patch.setattr(postgresql, "SETTLE_TIMEOUT_S", 0.2)
            patch.setattr(postgresql, "STATEMENT_TIMEOUT_S", 1.0)
            patch.setattr(connecting, "CONNECT_TIMEOUT_S", 0.5)
            patch.setattr(lines, "SMALL_WAIT_S", 0.5)
            patch.setattr(lines, "HEAVY_WAIT_S", 1.0)
            yield

    return in_trouble
