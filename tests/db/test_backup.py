"""A backup of a SQLite file: complete under its name or absent, and without delaying writers."""

import asyncio
import fcntl
import os
import resource
import signal
import sqlite3
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from stoplist.db import backup
from stoplist.db.backup import back_up
from stoplist.db.sqlite_file import read_only, schema_version_of
from stoplist.errors import Refused
from tests.builders import NEWEST, execute, migrated
from tests.constants import ROOT

pytestmark = pytest.mark.interpreter

NOBODY = 65_534

# Stops when the copy is complete but has no name yet, and waits to be killed.
INTERRUPTED_PROGRAM = """
import os, signal, sys
from pathlib import Path
from stoplist import whole_file
from stoplist.db import backup
whole_file._link = lambda *_: os.kill(os.getpid(), signal.SIGSTOP)
backup.back_up(Path(sys.argv[1]), Path(sys.argv[2]))
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Return a database with an organization, whose last change may still be in the log beside the file."""
    path = tmp_path / "data" / "stoplist.db"
    path.parent.mkdir()

    async def make() -> None:
        async with migrated(f"sqlite:///{path}") as database:
            await execute(database, "INSERT INTO organizations (slug, name, created_ms) VALUES ('acme', 'Acme', 0)")

    asyncio.run(make())
    return path


@pytest.fixture
def target(tmp_path: Path) -> Path:
    """Return the path for the backup, in an empty folder."""
    (tmp_path / "backups").mkdir()
    return tmp_path / "backups" / "monday.db"


@contextmanager
def writer(path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(path, isolation_level=None, timeout=0)) as connection:
        connection.execute("PRAGMA wal_autocheckpoint=0").fetchall()
        yield connection


def slugs(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as connection:
        return [row[0] for row in connection.execute("SELECT slug FROM organizations ORDER BY slug")]


def add(connection: sqlite3.Connection, slug: str) -> None:
    connection.execute("INSERT INTO organizations (slug, name, created_ms) VALUES (?, '', 0)", (slug,))


def test_a_backup_is_on_disk_before_it_has_its_name(
    source: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power cut leaves the whole backup or none: contents are synced, then named, then the name is synced."""
    steps: list[str] = []
    fsync, link = os.fsync, os.link

    def record_fsync(descriptor: int) -> None:
        steps.append("sync the folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "sync the file")
        fsync(descriptor)

    def record_link(partial: Path, name: Path) -> None:
        steps.append("name")
        link(partial, name)

    monkeypatch.setattr(os, "fsync", record_fsync)
    monkeypatch.setattr(os, "link", record_link)
    back_up(source, target)
    assert steps == ["sync the file", "name", "sync the folder"]


def test_a_backup_is_a_private_database(source: Path, target: Path) -> None:
    """The umask does not matter. Nothing else is in the folder."""
    before = os.umask(0)
    try:
        done = back_up(source, target)
    finally:
        os.umask(before)
    assert (done.path, done.bytes, done.schema) == (target, target.stat().st_size, NEWEST)
    assert done.duration_ms >= 0
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert os.listdir(target.parent) == [target.name]
    assert slugs(target) == ["acme"]


def test_changes_in_the_log_are_in_the_backup(source: Path, target: Path) -> None:
    """A server checkpoints only now and then, so the newest changes may not be in the file itself."""
    with writer(source) as connection:
        add(connection, "beta")
        assert b"beta" not in source.read_bytes()
        back_up(source, target)
    assert slugs(target) == ["acme", "beta"]


def test_after_an_erasure_it_has_nothing_that_was_deleted(source: Path, target: Path) -> None:
    """A copy of the pages would have what released space held before (docs/interface.md section D13, Backups)."""
    with writer(source) as connection:
        connection.execute("PRAGMA secure_delete=FAST").fetchall()  # as the product does
        add(connection, "forgotten-long-ago" * 1_000)  # on pages of its own
        connection.execute("DELETE FROM organizations WHERE slug <> 'acme'")
        connection.execute("PRAGMA wal_checkpoint").fetchall()
        back_up(source, target)
        assert b"forgotten-long-ago" in target.read_bytes()
        target.unlink()
        connection.execute("UPDATE deployment SET first_erasure_ms = 1")
    back_up(source, target)
    assert slugs(target) == ["acme"]
    assert b"forgotten-long-ago" not in target.read_bytes()


def test_a_writer_in_the_middle_of_a_transaction_goes_on(source: Path, target: Path) -> None:
    """The backup takes no lock that a writer has or waits for; uncommitted changes are not in it."""
    with writer(source) as connection:
        connection.execute("BEGIN IMMEDIATE")
        add(connection, "beta")
        back_up(source, target)
        add(connection, "gamma")
        connection.execute("COMMIT")
    assert slugs(target) == ["acme"]
    assert slugs(source) == ["acme", "beta", "gamma"]


def test_the_source_is_not_changed(source: Path, target: Path) -> None:
    """A backup makes no checkpoint, even when no server runs."""
    with writer(source) as connection:
        add(connection, "beta")
        log = source.with_name("stoplist.db-wal")
        kept = log.read_bytes()
        back_up(source, target)
        assert log.read_bytes() == kept
        content = source.read_bytes()
    log.write_bytes(kept)  # as a killed server leaves the log
    source.write_bytes(content)
    back_up(source, target.with_name("tuesday.db"))
    assert source.read_bytes() == content
    assert log.read_bytes() == kept
    assert slugs(target.with_name("tuesday.db")) == ["acme", "beta"]


def test_an_existing_target_is_never_overwritten(source: Path, target: Path) -> None:
    """A file, an empty file, or a dangling link."""
    back_up(source, target)
    kept = target.read_bytes()
    with pytest.raises(Refused, match="overwrites nothing"):
        back_up(source, target)
    assert target.read_bytes() == kept
    for name, make in (("empty", Path.touch), ("link", lambda it: it.symlink_to("nowhere"))):
        existing = target.with_name(name)
        make(existing)
        with pytest.raises(Refused, match="overwrites nothing"):
            back_up(source, existing)
    assert not target.with_name("nowhere").exists()


def test_a_target_created_meanwhile_is_not_overwritten(
    source: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When two backups begin together, the second finds the name taken and removes its own copy."""
    checked = backup._check

    def slow(partial: Path) -> int:
        target.write_text("of somebody else")
        return checked(partial)

    monkeypatch.setattr(backup, "_check", slow)
    with pytest.raises(Refused, match="by now"):
        back_up(source, target)
    assert target.read_text() == "of somebody else"
    assert os.listdir(target.parent) == [target.name]


@pytest.mark.parametrize("suffix", ["-wal", "-journal", "-shm"])
def test_a_leftover_log_at_the_target_is_refused(source: Path, target: Path, suffix: str) -> None:
    """SQLite would apply it to the backup on opening."""
    target.with_name(target.name + suffix).touch()
    with pytest.raises(Refused, match=f"monday.db{suffix} is left"):
        back_up(source, target)


def test_the_next_backup_removes_an_interrupted_one(source: Path, target: Path) -> None:
    """kill -9 at the worst moment: never half a file under the name, and no leftovers in the folder."""
    process = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED_PROGRAM, source, target], env=os.environ | {"PYTHONPATH": str(ROOT / "src")}
    )
    os.waitpid(process.pid, os.WUNTRACED)
    with pytest.raises(Refused, match="Another backup"):  # it locks its file, and might continue
        back_up(source, target)
    process.kill()
    assert process.wait() == -signal.SIGKILL
    (partial,) = os.listdir(target.parent)
    assert partial.startswith("monday.db.partial-")
    target.with_name("tuesday.db.partial-01234567").touch()
    back_up(source, target)
    assert sorted(os.listdir(target.parent)) == ["monday.db", "tuesday.db.partial-01234567"]


def test_a_finished_backup_with_a_partial_name_is_not_emptied(source: Path, target: Path) -> None:
    """It was killed between its two names and then moved away; the next one must not empty a good backup."""
    archived = target.with_name("archived.db")
    back_up(source, archived)
    os.link(archived, target.with_name("monday.db.partial-01234567"))
    kept = archived.read_bytes()
    back_up(source, target)
    assert archived.read_bytes() == kept
    assert sorted(os.listdir(target.parent)) == ["archived.db", "monday.db"]


def test_pattern_characters_in_a_name_are_literal(source: Path, target: Path) -> None:
    """Leftovers of another backup are not its own."""
    others = target.with_name("day1.db.partial-01234567")
    others.touch()
    back_up(source, target.with_name("day[1].db"))
    assert others.exists()


def test_a_damaged_database_makes_no_backup(source: Path, target: Path) -> None:
    """No backup is better than one that cannot be restored; earlier ones stay."""
    with closing(sqlite3.connect(source)) as connection:
        connection.execute("PRAGMA journal_mode=DELETE").fetchall()
        connection.execute("PRAGMA writable_schema=ON")
        (page,) = connection.execute(
            "SELECT rootpage FROM sqlite_master WHERE name = 'sqlite_autoindex_organizations_1'"
        ).fetchone()
        (size,) = connection.execute("PRAGMA page_size").fetchone()
    content = bytearray(source.read_bytes())
    content[(page - 1) * size : page * size] = bytes(size)
    source.write_bytes(content)
    with pytest.raises(Refused, match="quick_check"):
        back_up(source, target)
    assert os.listdir(target.parent) == []


def test_a_foreign_file_makes_no_backup(source: Path, target: Path) -> None:
    """It may be another product's file, or no database at all."""
    other = source.with_name("other.db")
    with closing(sqlite3.connect(other)) as connection:
        connection.execute("CREATE TABLE customers (name TEXT)")
    with pytest.raises(Refused, match="not a Stoplist database"):
        back_up(other, target)
    other.write_text("a list of names " * 100)
    with pytest.raises(Refused, match=r"SQLITE_NOTADB"):
        back_up(other, target)
    assert os.listdir(target.parent) == []


def test_a_missing_folder_is_named(source: Path, target: Path) -> None:
    """It is not created: it may be a disk that is not mounted."""
    with pytest.raises(Refused, match=r"There is no folder .*elsewhere"):
        back_up(source, target.parent / "elsewhere" / "monday.db")
    with pytest.raises(Refused, match=r"is a file, not a folder"):
        back_up(source, source / "monday.db")


def test_a_full_disk_leaves_nothing(source: Path, target: Path) -> None:
    """A limit on file sizes simulates the disk: SQLite's writes fail in the same way."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (source.stat().st_size // 2, limits[1]))
    try:
        with pytest.raises(Refused, match="check its space and quota"):
            back_up(source, target)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert os.listdir(target.parent) == []


def test_a_backup_releases_its_lock(source: Path, target: Path) -> None:
    """Another program may then move the file."""
    back_up(source, target)
    with target.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


@contextmanager
def as_nobody() -> Iterator[None]:
    """Run the context as the user nobody, because root may write everywhere."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


def test_a_file_in_a_read_only_folder_can_be_read(source: Path) -> None:
    """The log of a running server is not read: this serves `doctor`, not a copy."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        folder = Path(name)
        file = folder / "stoplist.db"
        file.write_bytes(source.read_bytes())
        folder.chmod(0o555)
        with as_nobody():
            with pytest.raises(sqlite3.OperationalError), read_only(file):
                pass
            with read_only(file, allow_unshared=True) as connection:
                assert schema_version_of(connection) == NEWEST
        folder.chmod(0o755)
