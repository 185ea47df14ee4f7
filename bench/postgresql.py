"""A temporary PostgreSQL that is as durable as in production: the tests' cluster with `fsync` on."""

import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from bench.server import BenchError
from tests.services import postgresql

# Persistent by convention, unlike /tmp, and accessible to the user that runs PostgreSQL if root measures.
_DISK = Path("/var/tmp")
_DURABLE = {"fsync": "on", "full_page_writes": "on", "synchronous_commit": "on"}


@contextmanager
def settings() -> Iterator[Mapping[str, str]]:
    """Yield the settings of Stoplist for an empty database on a cluster that is removed afterwards."""
    try:
        with postgresql.cluster(parent=_DISK, settings=_DURABLE) as cluster:
            yield {
                "STOPLIST_DATABASE_URL": cluster.fresh_database("bench"),
                "STOPLIST_LIMITS_URL": "memory:",
                "STOPLIST_SECRET_KEY": secrets.token_hex(32),
            }
    except postgresql.Unavailable as error:
        raise BenchError(str(error)) from error
