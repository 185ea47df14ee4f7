"""The file of a SQLite database: removed and put back, restored from a copy, and its lock."""

import os
import shutil
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from stoplist.db import Database
from stoplist.db.opening import single_server_lock
from stoplist.db.sqlite_connection import connect
from stoplist.errors import StoreUnavailable
from tests.builders import execute, migrated, opened, sql, value
from tests.deployment import in_own_loop

COUNT = "SELECT COUNT(*) FROM organizations"
ADD = "INSERT INTO organizations (slug, name, created_ms) VALUES (:slug, 'x', 0)"
OWNER_ONLY = 0o600


@pytest.fixture(params=[0o000, 0o022, 0o077], ids=["umask 000", "umask 022", "umask 077"])
def any_umask(request: pytest.FixtureRequest) -> Iterator[None]:
    """Set umasks that allow access to everybody, to readers, or to the owner only."""
    before = os.umask(request.param)
    yield
    os.umask(before)


async def assert_refuses(database: Database) -> None:
    """Assert that reads of both kinds and writes are refused."""
    with pytest.raises(StoreUnavailable, match="restart the server"):
        await value(database, COUNT)
    with pytest.raises(StoreUnavailable, match="restart the server"):
        await database.all(sql(COUNT))
    with pytest.raises(StoreUnavailable, match="restart the server"):
        await execute(database, ADD, slug="lost")


@pytest.mark.parametrize("is_replaced", [False, True])
@in_own_loop
async def test_a_file_put_back_is_served_again(
    sqlite_url: str, tmp_path: Path, is_replaced: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing was lost meanwhile, and nothing was written to the file in its place."""
    monkeypatch.setattr("stoplist.db.sqlite_readers.FILE_CHECK_S", 0.0)
    path, away = tmp_path / "stoplist.db", tmp_path / "away.db"
    async with migrated(sqlite_url) as database:
        await execute(database, ADD, slug="before")
        path.rename(away)
        if is_replaced:
            shutil.copy(away, path)
            other = path.read_bytes()
        await assert_refuses(database)
        if is_replaced:
            assert path.read_bytes() == other
        away.replace(path)
        assert await value(database, COUNT) == 1
        await execute(database, ADD, slug="after")
        assert await value(database, COUNT) == 2


@in_own_loop
async def test_a_restored_copy_is_switched_to_wal(sqlite_url: str, tmp_path: Path) -> None:
    """SQLite's copies have no write-ahead log until they are opened."""
    path, copy = tmp_path / "stoplist.db", tmp_path / "copy.db"
    async with migrated(sqlite_url):
        pass
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("VACUUM INTO ?", (str(copy),))
    async with opened(f"sqlite:///{copy}") as database:
        assert await value(database, "PRAGMA journal_mode") == "wal"


@pytest.mark.usefixtures("any_umask")
def test_the_lock_file_is_private(sqlite_url: str, tmp_path: Path) -> None:
    """Another user who could open it could hold the lock, and no server would start."""
    for _ in range(2):
        with single_server_lock(sqlite_url):
            assert stat.S_IMODE((tmp_path / "stoplist.db.lock").stat().st_mode) == OWNER_ONLY


def test_concurrent_creation_of_a_file_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first process switches a new file to WAL; SQLite refuses others at once meanwhile."""
    path = tmp_path / "stoplist.db"
    waits: list[float] = []
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("CREATE TABLE deployment (oldest_program TEXT)")  # so that it is a Stoplist file
        other.execute("BEGIN IMMEDIATE")

        def wait(seconds: float) -> None:
            waits.append(seconds)
            if other.in_transaction:
                other.execute("COMMIT")

        monkeypatch.setattr("stoplist.db.sqlite_connection.time.sleep", wait)
        with closing(connect(path, cache_kib=100)) as connection:
            assert connection.execute("PRAGMA journal_mode").fetchone()[0] == "wal"
    assert waits == [0.01]
