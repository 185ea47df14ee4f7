"""A deployment on a pair of databases, opened once for all the tests of a module."""

from collections.abc import Iterator

import pytest

from tests.builders import Apart, in_a_loop, migrated
from tests.deployment import SharedDatabase
from tests.unsubscribes.conftest import deployment as deployment


@pytest.fixture(scope="module")
def shared_database(module_apart_url: Apart) -> Iterator[SharedDatabase]:
    """Yield the pair of a module, each open with one connection for reads and one for submissions."""
    with in_a_loop(migrated(module_apart_url, pool_size=2)) as (run, database):
        yield SharedDatabase(run, database)
