"""After an erasure no table, index or log of the database holds the address (docs/interface.md section D13)."""

import asyncio
import shutil
import sqlite3
import subprocess
from contextlib import closing

import pytest

from stoplist.db.opening import sqlite_path
from tests.lists.imports.importer import Importer, list_of
from tests.lists.uploads.uploader import Uploader
from tests.rights.eraser import erase
from tests.services.postgresql import run_statements
from tests.unsubscribes.partner import back, opt_out_deployment, out

LONG_AGO = "2001-09-09T01:46:40Z"
ANN, BOB, SOURCE = "ann.unique-name@example.org", "bob@example.org", "unique source of Ann"


async def _fill_and_erase(database_url: str) -> None:
    async with opt_out_deployment(database_url) as deployment:
        organization = await deployment.new_organization()
        await organization.submit(out(ANN, deployment.ago(9), source=SOURCE), out(BOB))
        await organization.submit(back(ANN, deployment.ago(5), source=SOURCE))
        await organization.submit(out(ANN, deployment.ago(3), source=SOURCE), all_groups=True)
        await Importer(organization).take(list_of([(ANN, deployment.now_ms)]))
        rows = (f"{BOB},{LONG_AGO},x", f"nobody,{LONG_AGO},{ANN}", f"Ann <{ANN}>,{LONG_AGO},x")
        content = "\n".join(("address,occurred_at,note", *rows)).encode()
        await Uploader(organization).take(content, name=f"{ANN}.csv")
        await erase(organization, ANN)
        await organization.submit(out(ANN, source=SOURCE))


def _all_rows(database_url: str) -> bytes:
    tables = run_statements(database_url, "SELECT tablename FROM pg_tables WHERE schemaname = current_schema()")
    rows = [run_statements(database_url, f'SELECT t::text FROM "{table[0]}" t') for table in tables]  # noqa: S608
    return "\n".join(row[0] for some in rows for row in some).encode()


def test_no_byte_of_sqlite_holds_the_address(sqlite_url: str) -> None:
    """Neither the file after VACUUM nor its log after a checkpoint."""
    asyncio.run(_fill_and_erase(sqlite_url))
    path = sqlite_path(sqlite_url)
    assert path is not None
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("VACUUM")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        _assert_forgotten(b"".join(file.read_bytes() for file in path.parent.glob(f"{path.name}*")))


def test_no_row_of_postgresql_holds_the_address(postgresql_url: str) -> None:
    asyncio.run(_fill_and_erase(postgresql_url))
    _assert_forgotten(_all_rows(postgresql_url))


@pytest.mark.slow
def test_no_dump_of_postgresql_holds_the_address(postgresql_url: str) -> None:
    if shutil.which("pg_dump") is None:
        pytest.skip("pg_dump is not installed")
    asyncio.run(_fill_and_erase(postgresql_url))
    dump = subprocess.run(["pg_dump", "--dbname", postgresql_url], check=False, capture_output=True)
    if b"server version mismatch" in dump.stderr:
        pytest.skip("pg_dump is of another version than the server")
    assert dump.returncode == 0, dump.stderr
    _assert_forgotten(dump.stdout)


def _assert_forgotten(content: bytes) -> None:
    assert BOB.encode() in content
    assert ANN.encode() not in content
    assert SOURCE.encode() not in content
