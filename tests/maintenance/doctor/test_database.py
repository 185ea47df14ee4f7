"""The doctor's checks of the database."""

import asyncio
import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from stoplist.db.schema import Deployment
from stoplist.maintenance.doctor.assessments import (
    assess_clock_offset,
    assess_connections,
    assess_deployment,
    assess_durability,
    assess_role,
)
from stoplist.maintenance.doctor.database import DatabaseFindings, database
from tests.builders import NEWEST, execute, migrate_to, migrated, on_database
from tests.maintenance.doctor.installation import settings, statuses, texts

REST = ("schema", "environment", "copy", "role", "durability", "clock", "connections")


HANGING_FEEDS = """CREATE FUNCTION hang() RETURNS BIGINT LANGUAGE plpgsql AS $$
    BEGIN RAISE EXCEPTION 'canceling statement due to statement timeout' USING ERRCODE = '57014'; END $$"""


def check(folder: Path, url: str, *, is_environment_set: bool = True, **variables: str) -> DatabaseFindings:
    configured = settings(folder, DATABASE_URL=url, **variables)
    return asyncio.run(database(configured, is_environment_set=is_environment_set))


def create_database(url: str, *statements: str) -> None:
    async def body() -> None:
        async with migrated(url) as target:
            for statement in statements:
                await execute(target, statement)

    asyncio.run(body())


def test_a_database_of_this_release_is_ok(tmp_path: Path, database_url: str) -> None:
    """The tests' PostgreSQL runs without fsync, which is noticed."""
    create_database(database_url)
    result = check(tmp_path, database_url)
    is_sqlite = database_url.startswith("sqlite")
    by_check = statuses(result.findings)
    assert list(by_check) == ["database", *REST]
    assert [check for check, status in by_check.items() if status == "wrong"] == ([] if is_sqlite else ["durability"])
    assert ("fsync = off, full_page_writes = off" in texts(result.findings, "wrong")) == (not is_sqlite)
    assert not result.holds_feeds


def test_a_missing_schema_is_reported_with_the_remedy(tmp_path: Path, database_url: str) -> None:
    """The check creates nothing."""
    result = check(tmp_path, database_url)
    assert "`stoplist migrate`" in texts(result.findings, "wrong")
    assert not (tmp_path / "stoplist.db").exists()


def test_an_unreachable_database_is_reported_without_its_password(tmp_path: Path) -> None:
    """Every check that needs it is skipped."""
    result = check(tmp_path, "postgresql://stoplist:hush@127.0.0.1:1/none")
    assert statuses(result.findings) == {"database": "wrong"} | dict.fromkeys(REST, "not checked")
    assert "STOPLIST_DATABASE_URL" in result.findings[0].text
    assert "hush" not in result.findings[0].text


@pytest.mark.parametrize("content", [b"", b"no database " * 100])
def test_a_file_that_is_not_a_database_is_wrong(tmp_path: Path, sqlite_url: str, content: bytes) -> None:
    """The doctor prints no traceback and does not change the file."""
    (tmp_path / "stoplist.db").write_bytes(content)
    assert check(tmp_path, sqlite_url).findings[0].status == "wrong"
    assert (tmp_path / "stoplist.db").read_bytes() == content


def test_nothing_is_written(tmp_path: Path, sqlite_url: str) -> None:
    """The file stays as it is, and so does the log that a killed server left."""
    create_database(sqlite_url)
    path = tmp_path / "stoplist.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA wal_autocheckpoint=0").fetchall()
        connection.execute("INSERT INTO organizations (slug, name, created_ms) VALUES ('acme', 'Acme', 0)")
        log = (tmp_path / "stoplist.db-wal").read_bytes()
        content = path.read_bytes()
    (tmp_path / "stoplist.db-wal").write_bytes(log)
    path.write_bytes(content)
    os.utime(path, (1, 1))
    assert statuses(check(tmp_path, sqlite_url).findings)["schema"] == "ok"
    assert (path.read_bytes(), path.stat().st_mtime) == (content, 1)
    assert (tmp_path / "stoplist.db-wal").read_bytes() == log


def test_a_file_not_in_wal_mode_gives_a_warning(tmp_path: Path, sqlite_url: str) -> None:
    """A server switches the mode at startup; another program may have switched it back since."""
    create_database(sqlite_url)
    with closing(sqlite3.connect(tmp_path / "stoplist.db")) as connection:
        connection.execute("PRAGMA journal_mode=DELETE").fetchall()
    assert statuses(check(tmp_path, sqlite_url).findings)["durability"] == "warning"


def test_feeds_that_cannot_be_read_are_a_finding_of_their_own(tmp_path: Path, postgresql_url: str) -> None:
    """A hanging node is one cause; the other checks of the database are made, and the secret key counts as needed."""
    create_database(
        postgresql_url,
        "ALTER TABLE feeds RENAME TO other",
        HANGING_FEEDS,
        "CREATE VIEW feeds AS SELECT hang() AS feed_id",
    )
    found = check(tmp_path, postgresql_url)
    assert found.holds_feeds
    assert "but not its feeds" in texts(found.findings, "wrong")
    assert statuses(found.findings)["role"] == "ok"


def test_a_feed_makes_the_secret_key_needed(tmp_path: Path, database_url: str) -> None:
    """Somebody may hold a cursor."""
    create_database(
        database_url,
        "INSERT INTO feeds (feed_id, organization_id, channel, generation, head_seq, writes) "
        "VALUES (17, 1, 'email', 'first', 0, 0)",
    )
    assert check(tmp_path, database_url).holds_feeds


def test_an_unfinished_copy_is_wrong(tmp_path: Path, database_url: str) -> None:
    """It is the only fault; the schema is ok."""
    create_database(database_url, "INSERT INTO copy_progress VALUES ('feeds', 1, 1, 1)")
    by_check = statuses(check(tmp_path, database_url).findings)
    assert (by_check["copy"], by_check["schema"]) == ("wrong", "ok")


def test_a_schema_of_the_first_release_has_no_feeds(tmp_path: Path, database_url: str) -> None:
    """It is old, but the checks do not fail."""
    on_database(database_url, migrate_to, 1)
    result = check(tmp_path, database_url)
    assert statuses(result.findings)["schema"] == "wrong"
    assert "`stoplist migrate`" in texts(result.findings, "wrong")


def test_the_other_environment_is_wrong_only_if_one_is_set(tmp_path: Path, sqlite_url: str) -> None:
    """Servers may be started with `--environment`."""
    create_database(sqlite_url)
    wrong = check(tmp_path, sqlite_url, ENVIRONMENT="production")
    assert statuses(wrong.findings)["environment"] == "wrong"
    unset = check(tmp_path, sqlite_url, ENVIRONMENT="production", is_environment_set=False)
    assert statuses(unset.findings)["environment"] == "warning"
    assert statuses(check(tmp_path, sqlite_url).findings)["environment"] == "ok"


def test_an_excluded_release_is_wrong(tmp_path: Path) -> None:
    """A newer schema may exclude this release; one that allows it is ok."""
    for oldest, status in (("99.0.0", "wrong"), ("0.1.0", "ok")):
        deployment = Deployment("development", NEWEST + 1, oldest)
        assert assess_deployment(deployment, settings(tmp_path), is_environment_set=False)[0].status == status


@pytest.mark.parametrize(
    ("offset_ms", "status"),
    [(0, "ok"), (1_000, "ok"), (-1_001, "warning"), (5_000, "warning"), (5_001, "wrong"), (-3_600_000, "wrong")],
)
def test_a_clock_offset_is_reported(offset_ms: int, status: str) -> None:
    """The report has its direction."""
    finding = assess_clock_offset(offset_ms)
    assert finding.status == status
    assert ("behind" in finding.text) == (offset_ms < 0)


@pytest.mark.parametrize("name", ["synchronous_commit", "fsync", "full_page_writes"])
def test_each_setting_that_loses_commits_is_wrong(name: str) -> None:
    """All are on by default; a remote synchronous_commit is as good as on."""
    facts = {"synchronous_commit": "remote_apply", "fsync": "on", "full_page_writes": "on"}
    assert assess_durability(facts).status == "ok"
    wrong = assess_durability(facts | {name: "off"})
    assert wrong.status == "wrong"
    assert f"{name} = off" in wrong.text


def test_a_server_that_takes_no_writes_is_wrong() -> None:
    """A standby, or a database that is read-only by default."""
    assert assess_role({"is_standby": False, "is_read_only": False}).status == "ok"
    assert "standby" in texts([assess_role({"is_standby": True, "is_read_only": True})], "wrong")
    assert "read-only" in texts([assess_role({"is_standby": False, "is_read_only": True})], "wrong")


@pytest.mark.parametrize(("pool", "workers", "status"), [("20", "4", "ok"), ("97", "1", "ok"), ("49", "2", "wrong")])
def test_all_pools_must_fit_into_postgresqls_limit(tmp_path: Path, pool: str, workers: str, status: str) -> None:
    """97 of the default 100 connections; behind a pooler the limit is the pooler's."""
    direct = settings(tmp_path, DATABASE_POOL=pool, WORKERS=workers)
    assert assess_connections(direct, 97, of_process=int(pool), share="all").status == status
    pooled = settings(tmp_path, DATABASE_POOL=pool, WORKERS=workers, DATABASE_PREPARED="off")
    assert assess_connections(pooled, 97, of_process=int(pool), share="all").status == "not checked"


def test_a_pool_too_big_for_the_real_postgresql_is_wrong(tmp_path: Path, postgresql_url: str) -> None:
    """The limit is read from the server."""
    create_database(postgresql_url)
    assert statuses(check(tmp_path, postgresql_url, DATABASE_POOL="2").findings)["connections"] == "ok"
    assert statuses(check(tmp_path, postgresql_url, DATABASE_POOL="1000").findings)["connections"] == "wrong"


def test_a_read_only_postgresql_is_wrong(tmp_path: Path, postgresql_url: str) -> None:
    """An administrator makes it read-only while a database is being moved."""
    read_only = "format('ALTER DATABASE %I SET default_transaction_read_only = on', current_database())"
    create_database(postgresql_url, f"DO $$ BEGIN EXECUTE {read_only}; END $$")
    by_check = statuses(check(tmp_path, postgresql_url).findings)
    assert "wrong" in {by_check[name] for name in ("database", "role")}
