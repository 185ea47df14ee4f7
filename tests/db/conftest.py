"""Servers that tests may freeze, crash and promote, and drivers that are slow or quick to give up."""

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from types import ModuleType

import pytest

from stoplist.db import feed_queues, host_selection, pools, postgresql, sqlite
from tests.conftest import leave_out
from tests.db import hosts
from tests.db.failing_databases import MAY_WAIT
from tests.empty_databases import *  # noqa: F403 - fixtures
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


Waits = dict[tuple[ModuleType, str], float]
# In seconds. What only a server in trouble makes anybody wait for (SETTLE_TIMEOUT_S) is never long.
_LONG: Waits = {
    (pools, "ACQUIRE_TIMEOUT_S"): 60.0,
    (pools, "STATEMENT_TIMEOUT_S"): 60.0,
    (postgresql, "STATEMENT_TIMEOUT_S"): 60.0,
    (postgresql, "SERVER_STATEMENT_TIMEOUT_S"): 60.0,
    (postgresql, "LOCK_TIMEOUT_S"): 60.0,
    (postgresql, "IDLE_TIMEOUT_S"): 60.0,
    (host_selection, "CONNECT_TIMEOUT_S"): 60.0,
    (feed_queues, "SMALL_WAIT_S"): 60.0,
    (feed_queues, "HEAVY_WAIT_S"): 60.0,
    (sqlite, "LOCK_WAIT_S"): 60.0,
}
_SHORT: Waits = {
    (pools, "ACQUIRE_TIMEOUT_S"): 0.5,
    (pools, "SETTLE_TIMEOUT_S"): 0.2,
    (postgresql, "SETTLE_TIMEOUT_S"): 0.2,
    (postgresql, "STATEMENT_TIMEOUT_S"): 1.0,
    (host_selection, "CONNECT_TIMEOUT_S"): 0.5,
    (feed_queues, "SMALL_WAIT_S"): 0.5,
    (feed_queues, "HEAVY_WAIT_S"): 1.0,
}


def _set(patch: pytest.MonkeyPatch, waits: Waits) -> None:
    for (module, name), seconds in waits.items():
        patch.setattr(module, name, seconds)


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everybody waits much longer than in the product: a machine that is busy is no trouble of the database."""
    _set(monkeypatch, _LONG)


@pytest.fixture
def impatient(patient: None, monkeypatch: pytest.MonkeyPatch) -> Callable[[], AbstractContextManager[None]]:
    """In the block everybody waits a tenth as long as in the product; in the whole test a twentieth as many may.

    How long a statement may take is fixed when a database is opened: it must do for those before and after the block.
    """
    monkeypatch.setattr(pools, "STATEMENT_TIMEOUT_S", 4.0)
    monkeypatch.setattr(pools, "MAX_WAITING_REQUESTS", MAY_WAIT)
    monkeypatch.setattr(feed_queues, "MAX_WAITING_UNITS", MAY_WAIT)

    @contextlib.contextmanager
    def in_trouble() -> Iterator[None]:
        with monkeypatch.context() as patch:
            _set(patch, _SHORT)
            yield

    return in_trouble
