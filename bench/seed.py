"""Fills a SQLite file with as many live tokens as a busy deployment has, by SQL, because issuing them takes long.

The rows are the ones that the product writes, with random bytes as hashes: nobody knows their tokens, and each
index is as large and as unordered as in production.
"""

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

_CLIENTS = [f"svc_ci_seeded{number:016}" for number in range(1_000)]
_ISSUED_WITHIN_MS, _ACCESS_TTL_MS, _REFRESH_TTL_MS = 60_000, 900_000, 2_592_000_000

_INSERT_CLIENT = """
INSERT INTO clients (client_id, label, secret_hash, secret_prefix, epoch, is_active, default_organization_id,
                     permissions, created_ms)
SELECT ?, 'Seeded', ?, 'svc_cs_seed', 1, 1, min(organization_id), 'read unsubscribe', ? FROM organizations
"""
_INSERT_PAIR = """
INSERT INTO token_pairs (client_id, epoch, access_hash, refresh_hash, access_expires_ms, refresh_expires_ms)
VALUES (?, 1, ?, ?, ?, ?)
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
    now_ms = time.time_ns() // 1_000_000
    with filling(file) as connection:
        connection.executemany(_INSERT_CLIENT, ((name, os.urandom(32), now_ms) for name in _CLIENTS))
        (present,) = connection.execute("SELECT count(*) FROM token_pairs").fetchone()
        connection.executemany(_INSERT_PAIR, _pairs(token_pairs - present, now_ms))
        highest: int = connection.execute("SELECT max(pair_id) FROM token_pairs").fetchone()[0]
    return highest


def trim(file: Path, highest_pair_id: int) -> None:
    """Delete the pairs issued since the file was filled, to keep their number. A server may be running."""
    with closing(sqlite3.connect(file, timeout=10)) as connection, connection:
        connection.execute("DELETE FROM token_pairs WHERE pair_id > ?", (highest_pair_id,))


def _pairs(count: int, now_ms: int) -> Iterator[tuple[str, bytes, bytes, int, int]]:
    for number in range(count):
        issued_ms = now_ms - _ISSUED_WITHIN_MS * number // count
        hashes = os.urandom(32), os.urandom(32)
        yield _CLIENTS[number % len(_CLIENTS)], *hashes, issued_ms + _ACCESS_TTL_MS, issued_ms + _REFRESH_TTL_MS
