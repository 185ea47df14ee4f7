"""The doctor's comparison of the states of feeds with their records (docs/interface.md section D14)."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from stoplist.maintenance.doctor.feed_states import assess, feed_states
from stoplist.maintenance.doctor.finding import Finding
from stoplist.proof.feed_states import Comparison
from tests.builders import execute, migrate_to, on_database
from tests.maintenance.doctor.installation import settings
from tests.unsubscribes.partner import opt_out_deployment, out


def examined(folder: Path, url: str) -> Finding:
    return asyncio.run(feed_states(settings(folder, DATABASE_URL=url)))


def submit(url: str, *statements: str) -> None:
    """Submit three opt-outs, then run these statements."""

    async def body() -> None:
        async with opt_out_deployment(url) as deployment:
            organization = await deployment.new_organization()
            await organization.submit(*(out(f"p{number}@x.org") for number in range(3)))
            for statement in statements:
                await execute(deployment.database, statement)

    asyncio.run(body())


def test_states_of_untouched_records_are_ok(tmp_path: Path, database_url: str) -> None:
    submit(database_url)
    found = examined(tmp_path, database_url)
    assert (found.status, found.text) == ("ok", "1 are those of the records.")


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE unsubscribes SET status = 'resubscribed' WHERE seq = 2",
        "UPDATE unsubscribes SET address = 'someone.else@x.org' WHERE seq = 2",
        "DELETE FROM unsubscribes WHERE seq = 2",
    ],
)
def test_a_row_that_was_changed_by_hand_is_wrong(tmp_path: Path, database_url: str, damage: str) -> None:
    """The finding names the feed."""
    submit(database_url, damage)
    found = examined(tmp_path, database_url)
    assert found.status == "wrong"
    assert "1 of 1 differ from their records (feed_id " in found.text


def test_an_examined_file_is_not_written_to(tmp_path: Path, sqlite_url: str) -> None:
    submit(sqlite_url)
    with closing(sqlite3.connect(tmp_path / "stoplist.db")) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    content = (tmp_path / "stoplist.db").read_bytes()
    assert examined(tmp_path, sqlite_url).status == "ok"
    assert (tmp_path / "stoplist.db").read_bytes() == content


def test_a_schema_without_states_is_not_checked(tmp_path: Path, empty_database_url: str) -> None:
    on_database(empty_database_url, migrate_to, 9)
    found = examined(tmp_path, empty_database_url)
    assert (found.status, "`stoplist migrate`" in found.text) == ("not checked", True)


def test_feeds_without_a_state_are_counted() -> None:
    """They are completed in the background, and are nothing wrong."""
    found = assess(Comparison(compared=3, differing=[], open=2))
    assert (found.status, "2 have none yet" in found.text) == ("ok", True)


def test_at_most_five_differing_feeds_are_named() -> None:
    found = assess(Comparison(compared=9, differing=list(range(10, 17)), open=0))
    assert (found.status, "7 of 9" in found.text, "14)" in found.text, "15" in found.text) == (
        "wrong",
        True,
        True,
        False,
    )
