"""`stoplist after-restore` (docs/interface.md sections D1 and D9)."""

import sqlite3
from contextlib import closing

from tests.cli.command_line import Prompt


def test_it_prints_how_many_feeds_and_keys_it_renewed(prompt: Prompt) -> None:
    """The counts are an object with --json, otherwise a sentence; the command may be repeated."""
    prompt.ok("key", "create", "--label", "x", "--org", "acme")
    prompt.ok("key", "create", "--label", "y", "--org", "acme")
    assert prompt.json("after-restore") == {"feeds": 0, "credentials": 2, "groups": 0}
    text = prompt.ok("after-restore")
    assert "feeds: 0" in text
    assert "keys: 2" in text
    assert "stoplist person erase --from FILE" in text


def test_every_generation_and_every_epoch_changes(prompt: Prompt) -> None:
    """The audit names the person at the command line."""
    prompt.ok("key", "create", "--label", "x", "--org", "acme")
    with closing(sqlite3.connect(prompt.data_dir / "stoplist.db", isolation_level=None)) as connection:
        connection.execute(
            "INSERT INTO feeds (feed_id, organization_id, channel, generation, head_seq, writes) "
            "VALUES (17, 1, 'email', 'the first', 9, 4)"
        )
        (epoch,) = connection.execute("SELECT epoch FROM clients").fetchone()
        assert prompt.json("after-restore") == {"feeds": 1, "credentials": 1, "groups": 0}
        feed = connection.execute("SELECT feed_id, organization_id, channel, head_seq, writes FROM feeds").fetchone()
        assert feed == (17, 1, "email", 9, 4)
        assert connection.execute("SELECT generation FROM feeds").fetchone() != ("the first",)
        assert connection.execute("SELECT epoch FROM clients").fetchone() == (epoch + 1,)
        row = connection.execute("SELECT actor_kind, action, target FROM audit ORDER BY audit_id DESC").fetchone()
        assert row == ("command", "database.restored", "database")


def test_it_needs_a_database(empty: Prompt) -> None:
    """It creates none."""
    assert "`stoplist migrate`" in empty.refused("after-restore")
    assert not empty.data_dir.exists()


def test_it_takes_no_argument(prompt: Prompt) -> None:
    prompt.wrong_usage("after-restore", "now")


def test_it_works_on_postgresql(on_postgresql: Prompt) -> None:
    """The output is the same."""
    on_postgresql.ok("migrate")
    on_postgresql.ok("org", "create", "acme", "--name", "Acme")
    on_postgresql.ok("key", "create", "--label", "x", "--org", "acme")
    assert on_postgresql.json("after-restore") == {"feeds": 0, "credentials": 1, "groups": 0}
