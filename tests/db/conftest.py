"""Servers that tests may freeze, crash and promote, and drivers with long or short timeouts."""

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest

from stoplist.db import feed_breaker, feed_queues, host_selection, pools, postgresql_transactions
from tests.conftest import needed
from tests.db import hosts
from tests.db.failing_databases import MAX_WAITING
from tests.empty_databases import *  # noqa: F403 - fixtures
from tests.services import postgresql as services
from tests.time_limits import Constants, set_constants


@pytest.fixture(scope="module")
def cluster(pytestconfig: pytest.Config) -> Iterator[services.Cluster]:
    """Yield a server for the tests of a module; each test leaves it running."""
    with needed(pytestconfig, "on a PostgreSQL of their own"), hosts.own_cluster() as own:
        yield own


# In seconds.
_SHORT: Constants = {
    (pools, "ACQUIRE_TIMEOUT_S"): 0.5,
    (pools, "SETTLE_TIMEOUT_S"): 0.2,
    (postgresql_transactions, "SETTLE_TIMEOUT_S"): 0.2,
    (postgresql_transactions, "STATEMENT_TIMEOUT_S"): 1.0,
    (host_selection, "CONNECT_TIMEOUT_S"): 0.5,
    (feed_queues, "SMALL_WAIT_S"): 0.5,
    (feed_queues, "HEAVY_WAIT_S"): 1.0,
}


@pytest.fixture
def quick_probes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a feed that failed be tried again after 20 ms."""
    monkeypatch.setattr(feed_breaker, "PROBE_INTERVAL_S", 0.02)


@pytest.fixture
def short_timeouts(quick_probes: None, monkeypatch: pytest.MonkeyPatch) -> Callable[[], AbstractContextManager[None]]:
    """Return a context in which timeouts are a tenth of the product's; in the whole test fewer units may wait.

    The timeout of a statement is fixed when a database is opened: it must also suit the statements outside the context.
    """
    monkeypatch.setattr(pools, "STATEMENT_TIMEOUT_S", 4.0)
    monkeypatch.setattr(pools, "MAX_WAITING_REQUESTS", MAX_WAITING)
    monkeypatch.setattr(feed_queues, "MAX_WAITING_UNITS", MAX_WAITING)

    @contextlib.contextmanager
    def short() -> Iterator[None]:
        with monkeypatch.context() as patch:
            set_constants(patch, _SHORT)
            yield

    return short
