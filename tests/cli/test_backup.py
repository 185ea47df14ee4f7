"""`stoplist backup` (docs/interface.md section D9)."""

import os
import time

from stoplist.db.last_backup import last_backup_s
from tests.builders import NEWEST, execute, on_database
from tests.cli.command_line import Prompt


def test_it_prints_where_the_backup_is_and_what_it_lacks(prompt: Prompt) -> None:
    """It prints an object with --json, otherwise three sentences: the secret key has to be kept too."""
    result = prompt.json("backup", "monday.db")
    file = prompt.folder / "monday.db"
    assert result.pop("duration_ms") >= 0
    key = str(prompt.data_dir / "secret.key")
    assert result == {"path": str(file), "bytes": file.stat().st_size, "schema": NEWEST, "secret_key": key}
    text = prompt.ok("backup", "tuesday.db")
    assert str(prompt.folder / "tuesday.db") in text
    assert key in text
    assert "`stoplist after-restore`" in text


def test_a_key_set_by_a_variable_is_named_by_it(prompt: Prompt) -> None:
    """Its value is not printed."""
    prompt.set(SECRET_KEY="0123456789" * 4)
    assert prompt.json("backup", "monday.db")["secret_key"] is None
    text = prompt.ok("backup", "tuesday.db")
    assert "STOPLIST_SECRET_KEY" in text
    assert "0123456789" not in text


def test_it_notes_when_a_backup_was_completed(prompt: Prompt) -> None:
    """For the metrics of the server. A backup that fails is none."""
    database = prompt.data_dir / "stoplist.db"
    assert last_backup_s(database) == 0
    began_s = time.time()
    prompt.ok("backup", "monday.db")
    noted_s = last_backup_s(database)
    assert began_s - 1 <= noted_s <= time.time() + 1
    os.utime(database.with_name("stoplist.db.last-backup"), (1, 1))
    prompt.refused("backup", "monday.db")
    assert last_backup_s(database) == 1
    prompt.ok("backup", "tuesday.db")
    assert last_backup_s(database) >= noted_s


def test_it_overwrites_nothing(prompt: Prompt) -> None:
    prompt.ok("backup", "monday.db")
    assert "overwrites nothing" in prompt.refused("backup", "monday.db")


def test_an_older_schema_is_backed_up_too(prompt: Prompt) -> None:
    """The new release makes such a backup before a migration."""
    on_database(prompt.database_url, execute, "UPDATE deployment SET schema_version = 1")
    assert "`stoplist migrate`" in prompt.refused("org", "list")
    assert prompt.json("backup", "monday.db")["schema"] == 1


def test_it_needs_a_database(empty: Prompt) -> None:
    """It creates none."""
    assert "`stoplist migrate`" in empty.refused("backup", "monday.db")
    assert not empty.data_dir.exists()


def test_on_postgresql_it_names_other_tools(empty: Prompt) -> None:
    """It does so even if that database cannot be reached."""
    empty.set(DATABASE_URL="postgresql://stoplist:hush@127.0.0.1:1/none")
    text = empty.refused("backup", "monday.db")
    assert "pg_dump" in text
    assert "pg_basebackup" in text


def test_it_takes_one_file(prompt: Prompt) -> None:
    prompt.wrong_usage("backup")
    prompt.wrong_usage("backup", "monday.db", "tuesday.db")
