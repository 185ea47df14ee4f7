"""A disk without room, for SQLite: the file may hardly grow, or its log may not."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager

from stoplist.db import Database
from stoplist.db.sqlite import Sqlite


def of(database: Database) -> Sqlite:
    """The driver itself, for what only it has."""
    assert isinstance(database, Sqlite)
    return database


@contextmanager
def two_pages_left(database: Database) -> Iterator[None]:
    """The file may grow by two pages; after the block by as many as ever."""
    writer = of(database)._writer
    most = writer.execute("PRAGMA max_page_count").fetchone()[0]
    pages = writer.execute("PRAGMA page_count").fetchone()[0]
    writer.execute(f"PRAGMA max_page_count = {pages + 2}")
    yield
    writer.execute(f"PRAGMA max_page_count = {most}")


@contextmanager
def no_room_for_the_log(database: Database) -> Iterator[None]:
    """The operating system lets no file of this process grow far beyond the log as it is."""
    log = of(database)._path.with_name("stoplist.db-wal")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (log.stat().st_size + 8_192, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
