"""A failing database is reported with its cause and the remedy (docs/operate.md, When the database fails)."""

import sqlite3
from pathlib import Path

import asyncpg
import pytest

from stoplist.db.postgresql_errors import translated_errors
from stoplist.db.remedies import FEEDS_ARE_APART
from stoplist.db.sqlite_connection import STORE_CODES, translate_error
from stoplist.db.sqlite_file import unreadable_reason
from stoplist.errors import StoreUnavailable
from tests.constants import ROOT

GUIDE = ROOT / "docs" / "operate.md"

CAUSES = {
    "SQLITE_FULL": "disk is full: free space",
    "SQLITE_CORRUPT": "disk cannot be read, or its file is damaged",
    "SQLITE_IOERR_READ": "disk cannot be read or written",
    "SQLITE_NOTADB": "its beginning is damaged",
    "SQLITE_READONLY_DIRECTORY": "mounted read-only",
    "SQLITE_CANTOPEN": "the limit of open files",
    "SQLITE_NOMEM": "memory",
    "SQLITE_BUSY": "try again shortly",
}
CAUSES_BY_STATE = {
    "53100": "disk of PostgreSQL is full: free space",
    "53200": "memory",
    "53300": "max_connections",
    "58030": "disk of PostgreSQL cannot be read",
    "58P01": "misses a file",
    "XX001": "a table damaged",
    "XX002": "an index damaged",
    "57014": "try again shortly",
    "23514": "restart it with STOPLIST_FEEDS_URL",
}
CONSTRAINTS = {"23514": {"n": FEEDS_ARE_APART}}


@pytest.mark.parametrize(("name", "cause"), CAUSES.items(), ids=CAUSES)
def test_a_failure_of_sqlite_names_cause_and_remedy(name: str, cause: str) -> None:
    """SQLite calls a disk that cannot be read corrupt, too: nobody may restore a backup over a whole file for it."""
    error = sqlite3.OperationalError("of the file")
    error.sqlite_errorcode, error.sqlite_errorname = getattr(sqlite3, name), name
    failure = translate_error(error)
    assert isinstance(failure, StoreUnavailable)
    assert f"({name}): " in failure.text
    assert cause in failure.text
    assert "must be repaired" not in failure.text
    assert ("dmesg" in failure.text) == (name in ("SQLITE_CORRUPT", "SQLITE_IOERR_READ", "SQLITE_NOTADB"))


@pytest.mark.parametrize(("state", "cause"), CAUSES_BY_STATE.items(), ids=CAUSES_BY_STATE)
def test_a_failure_of_postgresql_names_cause_and_remedy(state: str, cause: str) -> None:
    with pytest.raises(StoreUnavailable) as failure, translated_errors():
        raise asyncpg.PostgresError.new({"C": state, "M": "of a row"} | CONSTRAINTS.get(state, {}))
    assert f"(SQLSTATE {state}): " in failure.value.text
    assert cause in failure.value.text
    assert "of a row" not in failure.value.text


def test_the_guide_lists_each_cause() -> None:
    """The errors that an operator must act on have one, by the code that the log shows."""
    section = GUIDE.read_text().partition("## When the database fails")[2].partition("\n## ")[0]
    primary_names = {f"SQLITE_{name.split('_')[1]}" for name in CAUSES} - {"SQLITE_BUSY"}
    for code in (primary_names, set(CAUSES_BY_STATE) - {"57014"}):
        assert [name for name in sorted(code) if f"`{name}`" not in section] == []
    assert {getattr(sqlite3, name) for name in primary_names} < STORE_CODES


def test_a_disk_that_fails_is_told_from_a_damaged_file(tmp_path: Path) -> None:
    """The file is read; the first page of a process's memory can be read by no program, as a bad sector."""
    (tmp_path / "stoplist.db").write_bytes(b"\xee" * 100_000)
    assert unreadable_reason(tmp_path / "stoplist.db") is None
    assert unreadable_reason(Path("/proc/self/mem")) == "Input/output error"
    assert unreadable_reason(tmp_path) == "Is a directory"


def test_a_constraint_is_recognised_on_a_shard_of_a_citus() -> None:
    """Its error names no constraint, and its text has the number of the shard."""
    text = f'new row for relation "feeds_102010" violates check constraint "{FEEDS_ARE_APART}_102010"'
    with pytest.raises(StoreUnavailable, match="restart it with STOPLIST_FEEDS_URL"), translated_errors():
        raise asyncpg.PostgresError.new({"C": "23514", "M": text})
