"""The SQLite driver: durable writes, group commits, and failures that affect only their own unit."""

import asyncio
import os
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from stoplist.db import Database, Transaction, sqlite, sqlite_connection, sqlite_readers
from stoplist.db.opening import open_database
from stoplist.errors import SettingsError, StoreUnavailable
from tests.builders import execute, in_a_loop, migrated, on_sqlite, opened, sql, value
from tests.constants import ROOT
from tests.db.full_disk import driver_of, full_log, two_free_pages

pytestmark = pytest.mark.interpreter


MAKE = "CREATE TABLE things (number INTEGER PRIMARY KEY, content BLOB UNIQUE)"
ADD = sql("INSERT INTO things (number, content) VALUES (:number, :content)")
FIND = sql("SELECT content FROM things WHERE number = :number")
ALL = sql("SELECT number FROM things ORDER BY number")
FILL = (
    "INSERT INTO things (number) "
    "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < :rows) SELECT i FROM n"
)

# Writes endlessly and prints each number once its write is confirmed.
WRITER = """
import asyncio, itertools, sys
from tests.builders import opened
from tests.db.test_sqlite import ADD

async def write():
    async with opened(sys.argv[1]) as database:
        numbers = itertools.count()
        async def one_after_the_other():
            for number in numbers:
                await database.write_one(ADD, number=number, content=None)
                print(number, flush=True)
        await asyncio.gather(*(one_after_the_other() for _ in range(8)))

asyncio.run(write())
"""


async def numbers(database: Database) -> list[int]:
    return [row["number"] for row in await database.all(ALL)]


async def add(database: Database, number: int, content: object = None) -> None:
    await database.write_one(ADD, number=number, content=content)


@contextmanager
def another_process_writes(database: Database) -> Iterator[sqlite3.Connection]:
    """Hold the write lock by a connection of another process until it commits."""
    with closing(sqlite3.connect(driver_of(database)._path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield other


# Opening


@on_sqlite
async def test_every_commit_reaches_the_disk(database: Database) -> None:
    """A confirmed write survives a power cut: `synchronous` is FULL on the writer's connection, in WAL mode."""
    writer = driver_of(database)._writer
    assert writer.execute("PRAGMA synchronous").fetchone()[0] == 2
    assert writer.execute("PRAGMA journal_mode").fetchone()[0] == "wal"


@on_sqlite
async def test_foreign_keys_are_enforced(database: Database) -> None:
    """SQLite checks them only if told to, per connection."""
    assert driver_of(database)._writer.execute("PRAGMA foreign_keys").fetchone()[0] == 1


def test_a_new_file_is_private(sqlite_url: str, tmp_path: Path) -> None:
    """It holds hashes and labels. Whatever the umask; also the log beside the file."""

    def modes() -> dict[str, int]:
        return {file.name: stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()}

    async def body() -> dict[str, int]:
        async with migrated(sqlite_url):
            return modes()

    before = os.umask(0)
    try:
        found = asyncio.run(body())
    finally:
        os.umask(before)
    assert found == dict.fromkeys(("stoplist.db", "stoplist.db-wal", "stoplist.db-shm"), 0o600)


def test_a_missing_file_is_not_created_unless_asked(sqlite_url: str, tmp_path: Path) -> None:
    """Section D1: only `serve` and `migrate` create a database."""
    with pytest.raises(SettingsError, match=r"stoplist\.db"):
        asyncio.run(open_database(sqlite_url, create=False))
    assert list(tmp_path.iterdir()) == []


def test_a_missing_folder_is_refused_by_its_name(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="nowhere"):
        asyncio.run(open_database(f"sqlite:///{tmp_path}/nowhere/stoplist.db", create=True))


def test_a_file_that_is_not_a_database_is_left_alone(sqlite_url: str, tmp_path: Path) -> None:
    """A wrong path must not destroy a file; and nothing is kept open."""
    file = tmp_path / "stoplist.db"
    file.write_bytes(b"My shopping list: bread, butter. " * 100)
    with pytest.raises(SettingsError, match=r"stoplist\.db"):
        asyncio.run(open_database(sqlite_url, create=True))
    assert file.read_bytes().startswith(b"My shopping list")


def test_an_old_sqlite_is_refused(monkeypatch: pytest.MonkeyPatch, sqlite_url: str) -> None:
    """The startup error names the needed version, before a statement fails."""
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 37, 2))
    with pytest.raises(SettingsError, match=r"3\.38\.0 or newer"):
        asyncio.run(open_database(sqlite_url, create=True))


def test_a_path_may_hold_any_character(tmp_path: Path) -> None:
    """The path travels as a URI internally; characters with a meaning there must not change the file."""
    path = tmp_path / "a b?c%20d#e.db"

    async def body() -> None:
        async with migrated(f"sqlite:///{path}"):
            assert path.exists()

    asyncio.run(body())


# Groups


@on_sqlite
async def test_failing_units_of_a_group_fail_alone(database: Database) -> None:
    """Units that wait together commit together; none is affected by the failure of another."""
    await execute(database, MAKE)
    fails = {
        3: "raise",
        9: "constraint",
        10: "raise",
        17: "wait",
        30: "raise",
        31: "constraint",
        44: "wait",
        50: "raise",
    }

    def unit(number: int) -> Any:
        async def work(transaction: Transaction) -> int:
            await transaction.run(ADD, number=number, content=None)
            if fails.get(number) == "raise":
                raise LookupError(number)
            if fails.get(number) == "constraint":
                await transaction.run(ADD, number=number, content=None)
            if fails.get(number) == "wait":
                await asyncio.get_running_loop().create_future()
            return number

        return work

    commits = database.counts.commits
    answers = await asyncio.gather(*(database.write(unit(number)) for number in range(51)), return_exceptions=True)
    good = [number for number in range(51) if number not in fails]
    assert [answer for answer in answers if isinstance(answer, int)] == good
    kinds = {"raise": LookupError, "constraint": sqlite3.IntegrityError, "wait": RuntimeError}
    assert {number: type(answers[number]) for number in fails} == {n: kinds[how] for n, how in fails.items()}
    assert await numbers(database) == good
    assert database.counts.commits - commits == 1


@on_sqlite
async def test_a_failing_statement_does_not_affect_others(database: Database) -> None:
    """`write_one` has no savepoint: SQLite undoes a failed statement."""
    await execute(database, MAKE)
    answers = await asyncio.gather(
        *(add(database, number, content) for number, content in [(1, "a"), (2, "a"), (3, "b")]),
        return_exceptions=True,
    )
    assert [type(answer) for answer in answers] == [type(None), sqlite3.IntegrityError, type(None)]
    assert await numbers(database) == [1, 3]


@on_sqlite
async def test_a_unit_that_awaits_something_else_is_refused(database: Database) -> None:
    """It would block every writer: RuntimeError, nothing of it is stored, and it never continues."""
    await execute(database, MAKE)
    went_on = False

    async def wait(transaction: Transaction) -> None:
        nonlocal went_on
        await transaction.run(ADD, number=1, content=None)
        await asyncio.sleep(0)
        went_on = True

    refused, fine = await asyncio.gather(database.write(wait), add(database, 2), return_exceptions=True)
    assert isinstance(refused, RuntimeError)
    assert "nothing but its transaction" in str(refused)
    assert fine is None
    assert await numbers(database) == [2]
    assert not went_on


@pytest.mark.parametrize("steps", range(8))
def test_a_cancelled_caller_stops_nothing(sqlite_url: str, steps: int) -> None:
    """Its unit is stored, at whatever step it is cancelled, and so is every other."""

    async def body() -> None:
        async with opened(sqlite_url) as database:
            await execute(database, MAKE)
            quitter, other = asyncio.create_task(add(database, 1)), asyncio.create_task(add(database, 2))
            await asyncio.sleep(0)  # both are queued
            for _ in range(steps):
                await asyncio.sleep(0)
            quitter.cancel()
            await asyncio.gather(quitter, other, return_exceptions=True)
            assert other.exception() is None
            assert await numbers(database) == [1, 2]
            assert database.counts.waiting == 0

    asyncio.run(body())


@on_sqlite
async def test_readers_see_only_committed_changes(database: Database) -> None:
    """A unit sees its own changes; others see them once they are durable."""
    await execute(database, MAKE)
    seen: list[object] = []

    async def read_both(transaction: Transaction) -> None:
        await transaction.run(ADD, number=1, content="new")
        seen.append(await transaction.one(FIND, number=1))
        # A read never suspends, so a test may read here, which a unit should not.
        seen.append(await database.one(FIND, number=1))
        seen.append(await database.one(FIND, number=0))

    await asyncio.gather(add(database, 0), database.write(read_both))
    own, *of_others = seen
    assert own is not None
    assert of_others == [None, None]
    assert await numbers(database) == [0, 1]


@on_sqlite
async def test_a_result_waits_for_the_commit(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the commit fails, no caller is told that its unit is stored."""
    await execute(database, MAKE)

    def fails() -> None:
        raise sqlite3.OperationalError("disk I/O error")

    with monkeypatch.context() as patch:
        patch.setattr(database, "_commit", fails)
        answers = await asyncio.gather(add(database, 1), add(database, 2), return_exceptions=True)
    assert [type(answer) for answer in answers] == [StoreUnavailable, StoreUnavailable]
    assert await numbers(database) == []
    await add(database, 3)
    assert await numbers(database) == [3]


@on_sqlite
async def test_a_full_queue_refuses_at_once(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """An unbounded queue would answer nobody in time."""
    await execute(database, MAKE)
    monkeypatch.setattr(sqlite, "MAX_WAITING_UNITS", 3)
    answers = await asyncio.gather(*(add(database, number) for number in range(5)), return_exceptions=True)
    assert [type(answer) for answer in answers] == [type(None)] * 3 + [StoreUnavailable] * 2
    assert await numbers(database) == [0, 1, 2]


# Store failures


@on_sqlite
async def test_another_writing_process_blocks_no_reader_and_no_timer(database: Database) -> None:
    """The write waits without blocking the loop, and succeeds once the lock is released."""
    await execute(database, MAKE)
    began_s = time.monotonic()
    with another_process_writes(database) as other:
        writing = asyncio.create_task(add(database, 1))
        for _ in range(20):
            await asyncio.sleep(0)
            assert await database.one(FIND, number=1) is None
        done, _ = await asyncio.wait({writing}, timeout=0.03)
        assert not done
        other.execute("COMMIT")
        await writing
    assert time.monotonic() - began_s < sqlite_connection.LOCK_WAIT_S / 2
    assert await numbers(database) == [1]


@on_sqlite
async def test_a_lock_timeout_is_a_store_failure(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every waiting caller is told to try again, and later writes work."""
    await execute(database, MAKE)
    with another_process_writes(database) as other:
        with monkeypatch.context() as patch:
            patch.setattr(sqlite, "LOCK_WAIT_S", 0.01)
            answers = await asyncio.gather(*(add(database, number) for number in range(3)), return_exceptions=True)
        assert [type(answer) for answer in answers] == [StoreUnavailable] * 3
        other.execute("ROLLBACK")
    await add(database, 7)
    assert await numbers(database) == [7]


@on_sqlite
async def test_a_full_disk_refuses_the_whole_group(database: Database) -> None:
    """SQLite rolls the group back, and every caller is told so. With space it works again."""
    await execute(database, MAKE)

    async def big(transaction: Transaction) -> None:
        await transaction.run(ADD, number=2, content=bytes(100_000))

    with two_free_pages(database):
        answers = await asyncio.gather(add(database, 1), database.write(big), add(database, 3), return_exceptions=True)
    # The third had not started when the second filled the disk: it is in the next group, and fits.
    assert [type(answer) for answer in answers] == [StoreUnavailable, StoreUnavailable, type(None)]
    assert "(SQLITE_FULL): its disk is full: free space on it." in str(answers[0])
    assert await numbers(database) == [3]
    await database.write(big)
    assert await numbers(database) == [2, 3]


@on_sqlite
async def test_a_commit_on_a_full_disk_refuses_the_whole_group(database: Database) -> None:
    """The log cannot grow: the operating system refuses it in the middle of COMMIT."""
    await execute(database, MAKE)
    with full_log(database):
        answers = await asyncio.gather(
            add(database, 1, bytes(50_000)), add(database, 2, bytes(60_000)), return_exceptions=True
        )
    assert [type(answer) for answer in answers] == [StoreUnavailable] * 2
    assert await numbers(database) == []
    await add(database, 3, bytes(50_000))
    assert await numbers(database) == [3]


@pytest.mark.parametrize("statement", ["BEGIN", "COMMIT"])
def test_any_failure_to_begin_or_commit_is_a_store_failure(sqlite_url: str, statement: str) -> None:
    """No request causes it: 503, not 500, whatever SQLite calls it. Here it denies the statement (SQLITE_AUTH)."""

    def deny(action: int, what: str | None, *_: object) -> int:
        return sqlite3.SQLITE_DENY if action == sqlite3.SQLITE_TRANSACTION and what == statement else sqlite3.SQLITE_OK

    async def body() -> None:
        async with opened(sqlite_url) as database:
            await execute(database, MAKE)
            driver_of(database)._writer.set_authorizer(deny)
            with pytest.raises(StoreUnavailable, match="SQLITE_AUTH"):
                await add(database, 1)
            driver_of(database)._writer.set_authorizer(None)
            assert await numbers(database) == []
            await add(database, 2)

    asyncio.run(body())


@on_sqlite
async def test_a_wrong_statement_is_a_defect(database: Database) -> None:
    """A 500 that somebody investigates, not a 503 that everybody waits out."""
    with pytest.raises(sqlite3.OperationalError, match="no such table"):
        await database.one(sql("SELECT * FROM nowhere"))
    with pytest.raises(sqlite3.OperationalError, match="no such table"):
        await execute(database, "INSERT INTO nowhere VALUES (1)")


def test_a_damaged_file_is_a_store_failure(sqlite_url: str, tmp_path: Path) -> None:
    """The text says what is wrong, and nothing of the file's content."""

    async def body() -> None:
        async with opened(sqlite_url) as database:
            await execute(database, MAKE)
            await execute(database, FILL, rows=5_000)
        with (tmp_path / "stoplist.db").open("r+b") as file:
            file.seek(4096)
            file.write(b"\xee" * 40_960)
        async with opened(sqlite_url) as database:
            with pytest.raises(
                StoreUnavailable, match=r"SQLITE_CORRUPT\): its disk cannot be read, or its file is damaged"
            ):
                await database.all(ALL)

    asyncio.run(body())


@pytest.mark.parametrize("is_replaced", [False, True])
def test_a_missing_or_replaced_file_is_a_store_failure(
    sqlite_url: str, tmp_path: Path, is_replaced: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reads would return old data and writes would be lost: 503 until the server is restarted."""
    monkeypatch.setattr("stoplist.db.sqlite_readers.FILE_CHECK_S", 0.0)

    def remove_file() -> None:
        for file in tmp_path.iterdir():
            file.rename(file.with_name(f"away.{file.name}"))
        if is_replaced:
            shutil.copy(tmp_path / "away.stoplist.db", tmp_path / "stoplist.db")

    async def body() -> None:
        async with opened(sqlite_url) as database:
            await execute(database, MAKE)
            await add(database, 1)
            remove_file()
            for work in (
                database.one(ALL),
                database.all(ALL),
                add(database, 2),
                execute(database, "DELETE FROM things"),
            ):
                with pytest.raises(StoreUnavailable, match="restart the server"):
                    await work

    asyncio.run(body())
    with closing(sqlite3.connect(tmp_path / "away.stoplist.db")) as connection:
        assert connection.execute("SELECT number FROM things").fetchall() == [(1,)]


# Long reads


@on_sqlite
async def test_a_long_read_is_one_snapshot_in_slices(database: Database) -> None:
    """Ten thousand rows from one state, although a writer commits meanwhile; other tasks run in between."""
    await execute(database, MAKE)
    await execute(database, FILL, rows=10_000)
    slices: list[list[Any]] = []
    async for part in database.slices(ALL):
        slices.append(part)
        if len(slices) == 10:
            await execute(database, "DELETE FROM things WHERE number > 5000")
            await add(database, 20_000)
            assert await value(database, "SELECT COUNT(*) FROM things") == 5_001
    assert [row["number"] for part in slices for row in part] == list(range(1, 10_001))
    assert len(slices) > 40


@on_sqlite
async def test_a_cancelled_reader_releases_its_snapshot(database: Database) -> None:
    """An old snapshot would keep the log from restarting."""
    await execute(database, MAKE)
    await execute(database, FILL, rows=10_000)
    reading = asyncio.create_task(database.all(ALL))
    await asyncio.sleep(0)
    reading.cancel()
    await asyncio.wait({reading})
    await add(database, 20_000)
    _, in_log, moved = driver_of(database)._writer.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
    assert in_log == moved > 0
    assert len(await database.all(ALL)) == 10_001


@on_sqlite
async def test_concurrent_long_reads_do_not_keep_their_connections(database: Database) -> None:
    """Each has its own meanwhile; a few are kept for later reads."""
    await execute(database, MAKE)
    await execute(database, FILL, rows=500)
    read = await asyncio.gather(*(database.all(ALL) for _ in range(sqlite_readers.IDLE_READERS * 3)))
    assert {len(rows) for rows in read} == {500}
    assert len(driver_of(database)._readers.idle) == sqlite_readers.IDLE_READERS


# The log beside the file


@on_sqlite
async def test_checkpoints_restart_the_log(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """They move it into the file, so that it does not grow forever."""
    monkeypatch.setattr(sqlite, "CHECKPOINT_CHANGES", 10)
    await execute(database, MAKE)
    log = driver_of(database)._path.with_name("stoplist.db-wal")
    await add(database, 0)
    for turn in range(60):
        await execute(database, "UPDATE things SET content = :content", content=bytes([turn]) * 100_000)
    assert log.stat().st_size < 30 * 100_000


@on_sqlite
async def test_a_long_read_delays_checkpoints_only(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log grows during the read; afterwards the next checkpoint moves everything."""
    monkeypatch.setattr(sqlite, "CHECKPOINT_CHANGES", 1)
    await execute(database, MAKE)
    await execute(database, FILL, rows=1_000)
    log = driver_of(database)._path.with_name("stoplist.db-wal")
    change = "UPDATE things SET content = :content WHERE number = 1"
    read = database.all(ALL)
    read.send(None)
    for turn in range(10):
        await execute(database, change, content=f"{turn}" * 50_000)
    grown = log.stat().st_size
    await asyncio.create_task(_finish(read))
    for turn in range(30):
        await execute(database, change, content=f"{turn}" * 50_000)
    assert 10 * 50_000 < grown < log.stat().st_size + 1 < grown * 1.5


# Closing


def test_closing_finishes_waiting_units(sqlite_url: str) -> None:
    """Later callers are refused."""

    async def body() -> list[int]:
        async with opened(sqlite_url) as database:
            await execute(database, MAKE)
            waiting = [asyncio.create_task(add(database, number)) for number in range(600)]
            await asyncio.sleep(0)
            await database.close()
            await asyncio.gather(*waiting)
            with pytest.raises(StoreUnavailable):
                await add(database, 1_000)
        async with opened(sqlite_url) as database:
            return await numbers(database)

    assert asyncio.run(body()) == list(range(600))


def test_answered_writes_survive_a_kill(sqlite_url: str, tmp_path: Path) -> None:
    """`kill -9` in the middle of writes loses nothing that was confirmed."""

    async def make() -> None:
        async with opened(sqlite_url) as database:
            await execute(database, MAKE)

    async def stored() -> list[int]:
        async with opened(sqlite_url) as database:
            return await numbers(database)

    asyncio.run(make())
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, sqlite_url],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
        stdout=subprocess.PIPE,
    )
    assert writer.stdout is not None
    answered = [int(writer.stdout.readline()) for _ in range(200)]
    writer.send_signal(signal.SIGKILL)
    rest, _ = writer.communicate()
    answered += [int(line) for line in rest.splitlines(keepends=True) if line.endswith(b"\n")]
    assert writer.returncode == -signal.SIGKILL
    assert len(answered) >= 200
    assert set(answered) <= set(asyncio.run(stored()))


async def _finish(read: Any) -> Any:
    """Run the rest of a coroutine that was started by hand."""
    while True:
        try:
            read.send(None)
        except StopIteration as done:
            return done.value
        await asyncio.sleep(0)


def test_another_process_leaves_the_log_of_a_file_open_twice(sqlite_url: str, tmp_path: Path) -> None:
    """The last connection to a file deletes the log, and what another process still writes to it would be lost."""
    with in_a_loop(opened(sqlite_url)) as (run, database), in_a_loop(opened(sqlite_url)):
        run(execute(database, MAKE))
        other = "import sqlite3, sys; sqlite3.connect(sys.argv[1]).execute('SELECT name FROM sqlite_schema').fetchall()"
        subprocess.run([sys.executable, "-c", other, tmp_path / "stoplist.db"], check=True)
        assert (tmp_path / "stoplist.db-wal").stat().st_size > 0
