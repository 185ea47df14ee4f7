"""Fills a SQLite file with as many live tokens as a busy deployment has, by SQL, because issuing them takes long.

The rows are the ones that the product writes, with random bytes as hashes: nobody knows their tokens, and each
index is as large and as unordered as in production.
"""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from stoplist.clock import Clock

# A thousand clients, and pairs that were issued to them within the last minute.
_FILL = """
    INSERT INTO clients (client_id, label, secret_hash, secret_prefix, epoch, is_active, default_organization_id,
                         permissions, created_ms)
    WITH RECURSIVE numbers (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM numbers LIMIT 1000)
    SELECT printf('svc_ci_seeded%016d', n), 'Seeded', randomblob(32), 'svc_cs_seed', 1, 1, 1, 'read unsubscribe',
           :now_ms FROM numbers;
    INSERT INTO token_pairs (client_id, epoch, access_hash, refresh_hash, access_expires_ms, refresh_expires_ms)
    WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers LIMIT :missing)
    SELECT printf('svc_ci_seeded%016d', n % 1000), 1, randomblob(32), randomblob(32),
           :now_ms - 60000 * n / :missing + 900000, :now_ms - 60000 * n / :missing + 2592000000
    FROM numbers
"""


@contextmanager
def filling(file: Path) -> Iterator[sqlite3.Connection]:
    """Yield a connection that writes fast, and make the file durable in the end. No server may be running."""
    with closing(sqlite3.connect(file)) as connection:
        # After a crash the benchmark starts again anyway.
        connection.executescript("PRAGMA synchronous = OFF; PRAGMA cache_size = -400000;")
        yield connection
        connection.commit()
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    # Otherwise the system writes the file back during the measurement.
    os.sync()


def fill(file: Path, token_pairs: int) -> int:
    """Add live pairs until there are `token_pairs`, and return the highest pair_id. No server may be running."""
    with filling(file) as connection:
        ((present,),) = connection.execute("SELECT count(*) FROM token_pairs")
        for statement in _FILL.split(";"):
            connection.execute(statement, {"now_ms": Clock().now_ms(), "missing": token_pairs - present})
        ((highest,),) = connection.execute("SELECT max(pair_id) FROM token_pairs")
    return int(highest)


def trim(file: Path, highest_pair_id: int) -> None:
    """Delete the pairs issued since the file was filled, to keep their number. A server may be running."""
    with closing(sqlite3.connect(file, timeout=10)) as connection, connection:
        connection.execute("DELETE FROM token_pairs WHERE pair_id > ?", (highest_pair_id,))
