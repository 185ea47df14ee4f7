"""Time limits of the product, so long that only a broken program meets them.

A busy machine is not a failing store: the limits of databases are long in the process of the tests (tests/conftest.py),
and a test lengthens others that it is not about, there or in the processes of a server.
"""

from textwrap import indent
from types import ModuleType

import pytest

from stoplist.db import (
    feed_connections,
    feed_queues,
    host_selection,
    pools,
    postgresql_transactions,
    sqlite,
    sqlite_connection,
)
from stoplist.limits import store
from stoplist.server import supervisor
from tests.constants import PATIENCE_S

Constants = dict[tuple[ModuleType, str], float]
"""Values by module and name."""


def _long(*names: tuple[ModuleType, str]) -> Constants:
    return dict.fromkeys(names, PATIENCE_S)


# SETTLE_TIMEOUT_S, which only a failing server reaches, is never long.
LONG_STATEMENTS = _long(
    (pools, "ACQUIRE_TIMEOUT_S"),
    (pools, "STATEMENT_TIMEOUT_S"),
    (postgresql_transactions, "STATEMENT_TIMEOUT_S"),
    (postgresql_transactions, "SERVER_STATEMENT_TIMEOUT_S"),
    (postgresql_transactions, "IDLE_TIMEOUT_S"),
    (host_selection, "CONNECT_TIMEOUT_S"),
)
LONG_DATABASE = LONG_STATEMENTS | _long(
    (postgresql_transactions, "LOCK_TIMEOUT_S"),
    (feed_queues, "SMALL_WAIT_S"),
    (feed_queues, "HEAVY_WAIT_S"),
    (sqlite, "LOCK_WAIT_S"),
    (sqlite_connection, "LOCK_WAIT_S"),
)
# A read that takes longer gives way to other feeds.
LONG_READS = _long((feed_connections, "GIVE_WAY_S"))
# A server that counts alone accepts more.
LONG_LIMIT_STORE = _long((store, "ANSWER_TIMEOUT_S"))
# After this time the page has the last known values of a worker that is busy.
LONG_METRICS = _long((supervisor, "_METRICS_TIMEOUT_S"))


def set_constants(patch: pytest.MonkeyPatch, constants: Constants) -> None:
    """Set these constants in this process."""
    for (module, name), number in constants.items():
        patch.setattr(module, name, number)


def assignments(constants: Constants) -> str:
    """Return a program that sets these constants."""
    lines: list[str] = []
    for (module, name), number in constants.items():
        assert hasattr(module, name)
        lines += [f"import {module.__name__}", f"{module.__name__}.{name} = {number}"]
    return "\n".join([*lines, ""])


def setting_constants(constants: Constants) -> str:
    """Return a program that sets these constants in a process of a server, and does nothing in other processes."""
    is_server = 'import sys\nif {"serve", "--multiprocessing-fork"} & set(sys.orig_argv):\n'
    return is_server + indent(assignments(constants), "    ")
