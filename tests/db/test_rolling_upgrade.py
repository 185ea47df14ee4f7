"""The release before goes on working, and can be started, once the next one's `stoplist migrate` has run.

Each migration of this release is held to it: the databases tell what there was before it and what there is after it.
Source: docs/interface.md section D1, Schema.
"""

import asyncio
import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from stoplist import __version__
from stoplist.db import schema
from stoplist.db.opening import sqlite_path
from stoplist.db.query import Query
from stoplist.db.schema import Migration, load_migrations
from tests.builders import direct, opened
from tests.db.catalogue import Catalogue, catalogue, objections
from tests.db.test_shardable import QUERIES

ROOT = Path(__file__).parents[2]
STEPS = load_migrations()
NEWEST = STEPS[-1].number
LATER = [step.number for step in STEPS[1:]]

DELETED_FROM = frozenset(
    table for query in QUERIES.values() for table in re.findall(r"\bDELETE FROM (\w+)", query.postgresql)
)
"""The tables that a program deletes rows from."""


def migrate_to(url: str, number: int, *more: Migration) -> None:
    """The schema as of that migration, and what follows it."""

    async def body() -> None:
        async with opened(url) as database:
            steps = [*STEPS[:number], *more]
            await schema.migrate(database, environment="development", now_ms=0, migrations=steps)

    asyncio.run(body())


def migrated(url: str, number: int) -> tuple[Catalogue, Catalogue]:
    """What there is before that migration, and after it."""
    migrate_to(url, number - 1)
    before = catalogue(url)
    migrate_to(url, number)
    return before, catalogue(url)


# The migrations

# These change what PostgreSQL expects of a column, and nothing that can be seen of a table.
ONLY_PLANS = {4}


@pytest.mark.parametrize("number", LATER)
def test_a_migration_is_no_hindrance_to_the_program_before_it(database_url: str, number: int) -> None:
    """Nothing that it uses goes or changes, and nothing refuses what it writes."""
    before, after = migrated(database_url, number)
    assert before.columns
    assert objections(before, after, deleted_from=DELETED_FROM) == []
    assert after != before or number in ONLY_PLANS, "it does something"


@pytest.mark.parametrize("number", LATER)
def test_statements_mean_the_same_after_a_migration(database_url: str, number: int) -> None:
    """Each that could be prepared before it still can, takes the same values and returns the same columns."""
    migrate_to(database_url, number - 1)
    before = prepared(database_url)
    migrate_to(database_url, number)
    after = prepared(database_url)
    assert len(before) > 30
    assert {name: after.get(name) for name in before} == before


def test_migrations_let_the_release_before_run() -> None:
    """None of them names an oldest program that is newer: the servers of that release could not be started again."""
    for step in STEPS:
        assert version(step.oldest_program) <= version(release_before()), step.number


def version(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(".")))


def release_before() -> str:
    """The newest release in the changelog that is older than this one; before the second release, this one."""
    released = re.findall(r"^## \[(\d+\.\d+\.\d+)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    older = [one for one in released if version(one) < version(__version__)]
    return max(older, key=version, default=__version__)


def prepared(url: str) -> dict[str, Any]:
    """What the database makes of every statement that it can prepare."""
    path = sqlite_path(url)
    if path is None:
        return asyncio.run(_prepared_on_postgresql(direct(url)))
    with closing(sqlite3.connect(path)) as connection:
        made = {f"{key}": _prepared_on_sqlite(connection, query) for key, query in QUERIES.items()}
    return {name: columns for name, columns in made.items() if columns is not None}


def _prepared_on_sqlite(connection: sqlite3.Connection, query: Query) -> Any:
    """The columns that it would return, or their absence; None where it cannot be prepared."""
    try:
        connection.execute(f"EXPLAIN {query.sqlite}", dict.fromkeys(query.parameters)).fetchall()
    except sqlite3.OperationalError:
        return None
    if not query.sqlite.startswith("SELECT"):
        return ()
    found = connection.execute(query.sqlite, dict.fromkeys(query.parameters, 1))  # there is nothing in it yet
    return tuple(column[0] for column in found.description)


async def _prepared_on_postgresql(url: str) -> dict[str, Any]:
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
    """The objections to a migration after the newest one."""

    def objected(url: str, text: str) -> list[str]:
        migrate_to(url, NEWEST)
        before = catalogue(url)
        migrate_to(url, NEWEST, Migration(NEWEST + 1, text, "0.1.0"))
        return objections(before, catalogue(url), deleted_from=DELETED_FROM)

    return objected


@pytest.mark.parametrize("what", BAD)
def test_a_migration_that_is_a_hindrance_is_noticed(
    database_url: str, change: Callable[[str, str], list[str]], what: str
) -> None:
    """On both databases."""
    text, objection = BAD[what]
    assert any(objection in found for found in change(database_url, text))


@pytest.mark.parametrize("what", BAD_ON_POSTGRESQL)
def test_what_only_postgresql_can_change_is_noticed(
    postgresql_url: str, change: Callable[[str, str], list[str]], what: str
) -> None:
    """On SQLite a column cannot be changed, and none can be added that must be written."""
    text, objection = BAD_ON_POSTGRESQL[what]
    assert any(objection in found for found in change(postgresql_url, text))


def test_a_migration_that_only_adds_is_no_hindrance(database_url: str, change: Callable[[str, str], list[str]]) -> None:
    """A table with its own rules, an index, and columns that fill themselves."""
    assert change(database_url, GOOD) == []


def test_a_statement_that_no_longer_works_is_noticed(database_url: str) -> None:
    """It is not among those that can be prepared any more."""
    migrate_to(database_url, NEWEST)
    before = prepared(database_url)
    migrate_to(database_url, NEWEST, Migration(NEWEST + 1, "ALTER TABLE feeds RENAME COLUMN writes TO w;", "0.1.0"))
    lost = before.keys() - prepared(database_url).keys()
    assert {"('stoplist.unsubscribes', 'feed')", "('stoplist.unsubscribes', 'lock_feed')"} <= lost


def test_a_statement_that_takes_or_returns_something_else_is_noticed(postgresql_url: str) -> None:
    """PostgreSQL tells the types."""
    migrate_to(postgresql_url, NEWEST)
    before = prepared(postgresql_url)
    text = "ALTER TABLE feeds ALTER COLUMN writes TYPE NUMERIC;"
    migrate_to(postgresql_url, NEWEST, Migration(NEWEST + 1, text, "0.1.0"))
    name = "('stoplist.unsubscribes', 'feed')"
    assert prepared(postgresql_url)[name] != before[name]
