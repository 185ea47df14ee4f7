"""The previous release keeps working, and can be started, after the next one's `stoplist migrate`.

This is tested for each migration of this release by comparing the database before and after it.
Source: docs/interface.md section D1, Schema.
"""

import asyncio
import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from typing import Any, NamedTuple

import asyncpg
import pytest

from stoplist import __version__
from stoplist.db import schema
from stoplist.db.opening import sqlite_path
from stoplist.db.query import Query
from stoplist.db.schema import Migration, load_migrations
from tests.builders import direct, on_database
from tests.constants import ROOT
from tests.db.catalogue import Catalogue, catalogue, incompatibilities
from tests.db.test_shardable import QUERIES

STEPS = load_migrations()
NEWEST = STEPS[-1].number
LATER = [step.number for step in STEPS[1:]]

DELETED_FROM = frozenset(
    table for query in QUERIES.values() for table in re.findall(r"\bDELETE FROM (\w+)", query.postgresql)
)
"""The tables that a program deletes rows from."""


def migrate_to(url: str, number: int, *more: Migration) -> None:
    """Apply the migrations up to this number, and the extra statements."""
    steps = [*STEPS[:number], *more]
    on_database(url, schema.migrate, environment="development", now_ms=0, migrations=steps)


class SchemaState(NamedTuple):
    """The objects of an empty database after a migration, and the statements that it can prepare."""

    catalogue: Catalogue
    statements: dict[str, Any]


@pytest.fixture(scope="module")
def states(module_database_url: str) -> dict[int, SchemaState]:
    """Return the state after each migration, on a database of each kind."""
    found = {}
    for step in STEPS:
        migrate_to(module_database_url, step.number)
        found[step.number] = SchemaState(catalogue(module_database_url), prepared_statements(module_database_url))
    return found


# The migrations

# These change PostgreSQL's estimates for a column, and nothing visible of a table.
ONLY_PLANS = {4}


@pytest.mark.parametrize("number", LATER)
def test_a_migration_does_not_break_the_previous_program(states: dict[int, SchemaState], number: int) -> None:
    """Nothing that it uses is removed or changed, and nothing refuses what it writes."""
    before, after = states[number - 1].catalogue, states[number].catalogue
    assert before.columns
    assert incompatibilities(before, after, deleted_from=DELETED_FROM) == []
    assert after != before or number in ONLY_PLANS, "it does something"


@pytest.mark.parametrize("number", LATER)
def test_statements_work_the_same_after_a_migration(states: dict[int, SchemaState], number: int) -> None:
    """Each that could be prepared before still can, takes the same values and returns the same columns."""
    before, after = states[number - 1].statements, states[number].statements
    assert len(before) > 30
    assert {name: after.get(name) for name in before} == before


def test_migrations_allow_the_previous_release() -> None:
    """None names a newer oldest program: the servers of that release could not be restarted."""
    for step in STEPS:
        assert version(step.oldest_program) <= version(previous_release()), step.number


def version(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(".")))


def previous_release() -> str:
    """Return the newest release in the changelog that is older than this one; before the second release, this one."""
    released = re.findall(r"^## \[(\d+\.\d+\.\d+)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    older = [one for one in released if version(one) < version(__version__)]
    return max(older, key=version, default=__version__)


def prepared_statements(url: str) -> dict[str, Any]:
    """Return the parameters and columns of every statement that the database can prepare."""
    path = sqlite_path(url)
    if path is None:
        return asyncio.run(_prepare_on_postgresql(direct(url)))
    with closing(sqlite3.connect(path)) as connection:
        made = {f"{key}": _prepare_on_sqlite(connection, query) for key, query in QUERIES.items()}
    return {name: columns for name, columns in made.items() if columns is not None}


def _prepare_on_sqlite(connection: sqlite3.Connection, query: Query) -> Any:
    """Return the columns of the result, or that there are none; None if the statement cannot be prepared."""
    try:
        connection.execute(f"EXPLAIN {query.sqlite}", dict.fromkeys(query.parameters)).fetchall()
    except sqlite3.OperationalError:
        return None
    if not query.sqlite.startswith("SELECT"):
        return ()
    found = connection.execute(query.sqlite, dict.fromkeys(query.parameters, 1))  # it is empty
    return tuple(column[0] for column in found.description)


async def _prepare_on_postgresql(url: str) -> dict[str, Any]:
    connection = await asyncpg.connect(url)
    try:
        made = {f"{key}": await _types(connection, query) for key, query in QUERIES.items()}
    finally:
        await connection.close()
    return {name: types for name, types in made.items() if types is not None}


async def _types(connection: Any, query: Query) -> Any:
    try:
        statement = await connection.prepare(query.postgresql)
    except asyncpg.PostgresError:
        return None
    returned = [(column.name, column.type.name) for column in statement.get_attributes()]
    return [taken.name for taken in statement.get_parameters()], returned


# The checks can fail

BAD: dict[str, tuple[str, str]] = {
    "a table goes": ("DROP TABLE feed_days;", "the table feed_days is gone"),
    "a table is renamed": ("ALTER TABLE feed_days RENAME TO days;", "the table feed_days is gone"),
    "a column goes": ("ALTER TABLE clients DROP COLUMN label;", "the column clients.label is gone"),
    "a column is renamed": ("ALTER TABLE feeds RENAME COLUMN writes TO w;", "the column feeds.writes is gone"),
    "a column gets another type": (
        """
        ALTER TABLE feeds ALTER COLUMN writes TYPE NUMERIC;  -- only: postgresql
        ALTER TABLE feeds DROP COLUMN writes;  -- only: sqlite
        ALTER TABLE feeds ADD COLUMN writes NUMERIC NOT NULL DEFAULT 0;  -- only: sqlite
        """,
        "the column feeds.writes is another",
    ),
    "a column may be NULL all at once": (
        """
        ALTER TABLE feeds ALTER COLUMN channel DROP NOT NULL;  -- only: postgresql
        ALTER TABLE feeds DROP COLUMN channel;  -- only: sqlite
        ALTER TABLE feeds ADD COLUMN channel TEXT;  -- only: sqlite
        """,
        "the column feeds.channel is another",
    ),
    "a unique index is added": (
        "CREATE UNIQUE INDEX one_name ON organizations (name);",
        "organizations refuses by CREATE UNIQUE INDEX one_name",
    ),
    "a reference is added": (
        "ALTER TABLE feeds ADD COLUMN twin BIGINT REFERENCES feeds (feed_id);",
        "feeds refuses by FOREIGN KEY (twin)",
    ),
    "a check comes with a column": (
        "ALTER TABLE feeds ADD COLUMN size BIGINT DEFAULT 0 CHECK (size < 10);",
        "CHECK",
    ),
    "a trigger is added": (
        """
        CREATE TRIGGER t BEFORE INSERT ON feeds  -- only: postgresql
            FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger();  -- only: postgresql
        CREATE TRIGGER t BEFORE INSERT ON feeds BEGIN SELECT RAISE(ABORT, 'no'); END;  -- only: sqlite
        """,
        "feeds refuses by CREATE TRIGGER t",
    ),
    "an index goes": ("DROP INDEX audit_target;", "audit has lost CREATE INDEX audit_target"),
    "a unique index goes": ("DROP INDEX unsubscribes_seq;", "unsubscribes has lost CREATE UNIQUE INDEX"),
    "what is deleted is referred to": (
        "CREATE TABLE uses (pair_id BIGINT NOT NULL PRIMARY KEY REFERENCES token_pairs (pair_id));",
        "token_pairs can no longer be deleted from",
    ),
}

BAD_ON_POSTGRESQL: dict[str, tuple[str, str]] = {
    "a new column must be written": (
        "ALTER TABLE feeds ADD COLUMN size BIGINT NOT NULL;",
        "the new column feeds.size must be written",
    ),
    "a column must be written all at once": (
        "ALTER TABLE clients ALTER COLUMN api_per_minute SET NOT NULL;",
        "the column clients.api_per_minute is another",
    ),
    "a default goes": (
        "ALTER TABLE audit ALTER COLUMN audit_id DROP IDENTITY;",
        "the column audit.audit_id is another",
    ),
    "rows are excluded": (
        "ALTER TABLE groups ADD EXCLUDE (name WITH =);",
        "groups refuses by EXCLUDE",
    ),
    "a key is another": (
        "ALTER TABLE client_days DROP CONSTRAINT client_days_pkey, ADD PRIMARY KEY (day, client_id);",
        "client_days has lost PRIMARY KEY (client_id, day)",
    ),
    "a rule is added": ("CREATE RULE r AS ON INSERT TO feeds DO INSTEAD NOTHING;", "feeds refuses by CREATE RULE r"),
    "rows are hidden": ("ALTER TABLE feeds ENABLE ROW LEVEL SECURITY;", "feeds refuses by ROW LEVEL SECURITY"),
    "a check is added": ("ALTER TABLE feeds ADD CHECK (writes < 10);", "feeds refuses by CHECK"),
}

GOOD = """
    CREATE TABLE later (
        name TEXT NOT NULL PRIMARY KEY CHECK (name <> ''),
        slug TEXT NOT NULL UNIQUE REFERENCES organizations (slug)
    );
    CREATE INDEX feeds_of ON feeds (feed_id, channel);
    ALTER TABLE feeds ADD COLUMN size BIGINT NOT NULL DEFAULT 0;
    ALTER TABLE clients ADD COLUMN remark TEXT;
"""


@pytest.fixture
def change(request: pytest.FixtureRequest) -> Callable[[str, str], list[str]]:
    """Return a function for the incompatibilities of a migration after the newest one."""

    def incompatibilities_of(url: str, text: str) -> list[str]:
        migrate_to(url, NEWEST)
        before = catalogue(url)
        migrate_to(url, NEWEST, Migration(NEWEST + 1, text, "0.1.0"))
        return incompatibilities(before, catalogue(url), deleted_from=DELETED_FROM)

    return incompatibilities_of


@pytest.mark.parametrize("what", BAD)
def test_an_incompatible_migration_is_detected(
    database_url: str, change: Callable[[str, str], list[str]], what: str
) -> None:
    text, objection = BAD[what]
    assert any(objection in found for found in change(database_url, text))


@pytest.mark.parametrize("what", BAD_ON_POSTGRESQL)
def test_an_incompatible_change_on_postgresql_is_detected(
    postgresql_url: str, change: Callable[[str, str], list[str]], what: str
) -> None:
    """SQLite cannot change a column, nor add one that must be written."""
    text, objection = BAD_ON_POSTGRESQL[what]
    assert any(objection in found for found in change(postgresql_url, text))


def test_an_additive_migration_is_compatible(database_url: str, change: Callable[[str, str], list[str]]) -> None:
    """A table with its own rules, an index, and columns with defaults."""
    assert change(database_url, GOOD) == []


def test_a_statement_that_no_longer_works_is_detected(database_url: str) -> None:
    """It can no longer be prepared."""
    migrate_to(database_url, NEWEST)
    before = prepared_statements(database_url)
    migrate_to(database_url, NEWEST, Migration(NEWEST + 1, "ALTER TABLE feeds RENAME COLUMN writes TO w;", "0.1.0"))
    lost = before.keys() - prepared_statements(database_url).keys()
    assert {"('stoplist.unsubscribes', 'feed')", "('stoplist.unsubscribes', 'lock_feed')"} <= lost


def test_a_statement_with_other_types_is_detected(postgresql_url: str) -> None:
    """PostgreSQL reports the types."""
    migrate_to(postgresql_url, NEWEST)
    before = prepared_statements(postgresql_url)
    text = "ALTER TABLE feeds ALTER COLUMN writes TYPE NUMERIC;"
    migrate_to(postgresql_url, NEWEST, Migration(NEWEST + 1, text, "0.1.0"))
    name = "('stoplist.unsubscribes', 'feed')"
    assert prepared_statements(postgresql_url)[name] != before[name]
