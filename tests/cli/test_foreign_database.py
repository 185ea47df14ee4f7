"""Every command refuses the database of another program, and leaves it unchanged."""

import sqlite3
from contextlib import closing

import pytest

from tests.cli.command_line import Prompt
from tests.services.postgresql import run_statements

THEIRS = {
    "tables of its own": "CREATE TABLE customers (name TEXT)",
    "a table with a name of ours": "CREATE TABLE deployment (environment TEXT, version TEXT)",
    "another's tables": "CREATE TABLE clients (client_id TEXT); CREATE TABLE audit (what TEXT)",
}
COMMANDS = [["org", "list"], ["key", "list", "--json"], ["org", "create", "acme", "--name", "Acme"]]


def assert_all_refuse(prompt: Prompt) -> None:
    """Assert that `migrate` says what would help, and the others that there is no Stoplist database."""
    assert "name an empty one with STOPLIST_DATABASE_URL" in prompt.refused("migrate")
    for command in COMMANDS:
        assert "There is no Stoplist database" in prompt.refused(*command)


@pytest.mark.parametrize("theirs", THEIRS.values(), ids=THEIRS)
def test_a_foreign_sqlite_file_is_unchanged(empty: Prompt, theirs: str) -> None:
    """Every byte stays as it was, and no file is left beside it."""
    empty.data_dir.mkdir()
    path = empty.data_dir / "stoplist.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(theirs)
    before = path.read_bytes()
    assert_all_refuse(empty)
    assert path.read_bytes() == before
    assert list(empty.data_dir.iterdir()) == [path]


@pytest.mark.parametrize("theirs", THEIRS.values(), ids=THEIRS)
def test_a_foreign_postgresql_database_is_unchanged(on_postgresql: Prompt, postgresql_url: str, theirs: str) -> None:
    """It has no other table or column."""
    columns = (
        "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = 'public' ORDER BY 1, 2"
    )
    run_statements(postgresql_url, *theirs.split("; "))
    before = run_statements(postgresql_url, columns)
    assert before
    assert_all_refuse(on_postgresql)
    assert run_statements(postgresql_url, columns) == before
