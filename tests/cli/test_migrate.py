"""`stoplist migrate` (docs/interface.md sections D1 and D9)."""

import asyncio
import os
import sqlite3
import stat
from contextlib import closing

import pytest

from stoplist.cli import migrate as cli_migrate
from stoplist.proof import feed_states
from stoplist.unsubscribes.feed_state import FeedState, StateRecord, extended_state
from tests.builders import NEWEST, opened
from tests.cli.command_line import Prompt
from tests.db import citus as stand_ins
from tests.fakes import FakeClock
from tests.services.citus import Citus


def test_it_creates_a_private_database(empty: Prompt) -> None:
    """Only the owner may read the file and its folder."""
    assert f"now has schema {NEWEST}" in empty.ok("migrate")
    assert stat.S_IMODE(empty.data_dir.stat().st_mode) == 0o700
    assert stat.S_IMODE((empty.data_dir / "stoplist.db").stat().st_mode) == 0o600


def test_it_may_be_repeated(empty: Prompt) -> None:
    """The second run changes nothing and makes no copy."""
    assert empty.json("migrate") == {"schema_before": 0, "schema": NEWEST, "copy": None}
    assert empty.json("migrate") == {"schema_before": NEWEST, "schema": NEWEST, "copy": None}
    assert "nothing to do" in empty.ok("migrate")
    assert not list(empty.data_dir.glob("*before*"))


def test_it_computes_the_states_of_feeds(prompt: Prompt, monkeypatch: pytest.MonkeyPatch) -> None:
    """An older program stored the records. A line is printed every five seconds; the second run has nothing to do."""
    clock = FakeClock()

    def extended(feed: FeedState, seq: int, records: list[StateRecord]) -> FeedState:
        clock.advance(2)
        return extended_state(feed, seq, records)

    monkeypatch.setattr(feed_states, "RECORDS_PER_STEP", 3)
    monkeypatch.setattr(feed_states, "extended_state", extended)
    monkeypatch.setattr(cli_migrate, "Clock", lambda: clock)
    with closing(sqlite3.connect(prompt.data_dir / "stoplist.db")) as database:
        database.execute(
            "INSERT INTO feeds (feed_id, organization_id, channel, generation, head_seq, writes)"
            " VALUES (17, 1, 'email', 'first', 10, 10)"
        )
        database.execute(
            "INSERT INTO unsubscribes (feed_id, address, group_no, id, seq, status, reason, occurred_ms, recorded_ms,"
            " submission_id, latest_act_ms, is_confirmed) SELECT 17, 'p' || value || '@x.org', 0, 'uns_' || value,"
            " value, 'unsubscribed', 'manual', 1, 1, 'sub_older', 1, 0 FROM json_each('[1,2,3,4,5,6,7,8,9,10]')"
        )
        database.commit()
    assert prompt.run("migrate").err.splitlines() == [
        "Computing the states of feeds: 9 records.",
        "The states of all feeds are computed: 10 records.",
    ]
    assert "1 are those of the records." in prompt.run("doctor", "--deep").out
    assert prompt.run("migrate").err == ""


def test_it_refuses_the_database_of_the_other_environment(empty: Prompt) -> None:
    """It names that environment."""
    empty.ok("migrate")
    empty.set(ENVIRONMENT="production")
    assert "belongs to the development environment" in empty.refused("migrate")


def test_it_refuses_a_folder_that_cannot_be_written(empty: Prompt) -> None:
    """Here a file is in its place."""
    empty.data_dir.write_text("a file")
    empty.refused("migrate")


def test_it_refuses_an_unreachable_database(empty: Prompt) -> None:
    """The refusal does not repeat the password of the address."""
    empty.set(DATABASE_URL="postgresql://stoplist:hush@127.0.0.1:1/none")
    text = empty.refused("migrate")
    assert "STOPLIST_DATABASE_URL" in text
    assert "hush" not in text


def test_commands_work_on_postgresql(on_postgresql: Prompt) -> None:
    """First `migrate`, then all the others, with the same output as on SQLite."""
    assert "`stoplist migrate`" in on_postgresql.refused("org", "list")
    assert on_postgresql.json("migrate") == {"schema_before": 0, "schema": NEWEST, "copy": None}
    assert on_postgresql.json("migrate")["schema_before"] == NEWEST
    group = on_postgresql.json("org", "create", "acme", "--name", "Acme", "--default-group", "A")["default_group_id"]
    on_postgresql.ok("org", "rename", "acme", "--name", "Acme Shoes")
    other = on_postgresql.json("group", "create", "--org", "acme", "--name", "B")["group_id"]
    on_postgresql.ok("org", "set-default-group", "acme", other)
    on_postgresql.ok("group", "retire", group)
    key = on_postgresql.json("key", "create", "--label", "x", "--org", "acme")["client_id"]
    for verb in ("deactivate", "activate", "revoke-tokens", "rotate-secret", "limits", "show"):
        on_postgresql.ok("key", verb, key)
    on_postgresql.ok("key", "limits", key, "--api-per-minute", "5")
    assert on_postgresql.json("key", "update", key, "--label", "y")["label"] == "y"
    assert [known["api_per_minute"] for known in on_postgresql.json("key", "list")] == [5]
    assert [known["name"] for known in on_postgresql.json("group", "list", "--org", "acme")] == ["A", "B"]
    on_postgresql.ok("org", "close", "acme")
    assert on_postgresql.json("org", "list")[0]["closed_at"] is not None
    assert not on_postgresql.data_dir.exists()


def test_it_distributes_the_feeds_on_citus(on_postgresql: Prompt) -> None:
    """One run does this and the schema; the second run changes nothing."""
    assert "CREATE EXTENSION citus" in on_postgresql.refused("migrate", "--distribute")
    assert "`stoplist migrate`" in on_postgresql.refused("org", "list"), "nothing was created"
    on_postgresql.ok("migrate")
    asyncio.run(_install_citus(os.environ["STOPLIST_DATABASE_URL"]))
    assert "Now distributed by feed_id: feeds, unsubscribes" in on_postgresql.ok("migrate", "--distribute")
    assert on_postgresql.json("migrate", "--distribute")["distributed"] == []
    assert "already distributed" in on_postgresql.ok("migrate", "--distribute")
    assert "distributed" not in on_postgresql.json("migrate")


def test_it_distributes_the_feeds_on_a_real_citus(empty: Prompt, citus: Citus) -> None:
    """The same command does so, where a Citus is installed."""
    url = citus.fresh_database("migrate")
    empty.set(DATABASE_URL=url)
    assert "Now distributed by feed_id: feeds, unsubscribes" in empty.ok("migrate", "--distribute")
    assert empty.json("migrate", "--distribute")["distributed"] == []
    empty.ok("org", "create", "acme", "--name", "Acme")
    assert [org["slug"] for org in empty.json("org", "list")] == ["acme"]
    citus.drop_database(url)


def test_it_distributes_no_sqlite_file(empty: Prompt) -> None:
    """It creates none either."""
    assert "`stoplist copy`" in empty.refused("migrate", "--distribute")
    assert not empty.data_dir.exists()


async def _install_citus(url: str) -> None:
    async with opened(url, prepared=False) as database:
        await stand_ins.install(database)
