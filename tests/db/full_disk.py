"""Full disks for SQLite: either the file or its write-ahead log may hardly grow."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager

from stoplist.db import Database
from stoplist.db.sqlite import Sqlite


def driver_of(database: Database) -> Sqlite:
    """Return the SQLite driver, for its own attributes."""
    assert isinstance(database, Sqlite)
    return database


@contextmanager
def two_free_pages(database: Database) -> Iterator[None]:
    """Let the file grow by two pages within this context."""
    writer = driver_of(database)._writer
    max_pages = writer.execute("PRAGMA max_page_count").fetchone()[0]
    pages = writer.execute("PRAGMA page_count").fetchone()[0]
    writer.execute(f"PRAGMA max_page_count = {pages + 2}")
    yield
    writer.execute(f"PRAGMA max_page_count = {max_pages}")


@contextmanager
def full_log(database: Database) -> Iterator[None]:
    """Make the operating system refuse to let files of this process grow much beyond the current log."""
    log = driver_of(database)._path.with_name("stoplist.db-wal")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (log.stat().st_size + 8_192, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
