"""The catalogue of a database, and the changes to it that would break the program of the previous release.

That program keeps reading and writing while and after the next release has migrated. So nothing that it uses may be
removed or changed, and nothing new may refuse what it writes. Source: docs/interface.md section D1, Schema.
"""

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from typing import NamedTuple

import asyncpg

from stoplist.db.opening import sqlite_path
from tests.builders import direct
from tests.services.postgresql import on_connection

_COLUMNS = """
    SELECT CAST(a.attrelid::regclass AS text) AS on_table, CAST(a.attname AS text) AS name,
        concat_ws(' ', format_type(a.atttypid, a.atttypmod), 'collate ' || nullif(l.collname, 'default')) AS kind,
        a.attnotnull AS is_required,
        concat_ws(' ', pg_get_expr(d.adbin, d.adrelid), nullif(CAST(a.attidentity AS text), '')) AS filled_with
    FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
    LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
    LEFT JOIN pg_collation l ON l.oid = a.attcollation
    WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind IN ('r', 'p', 'v') AND a.attnum > 0
        AND NOT a.attisdropped
"""
_RULES = """
    SELECT CAST(conrelid::regclass AS text) AS on_table, pg_get_constraintdef(oid) AS text FROM pg_constraint
    WHERE connamespace = current_schema()::regnamespace AND contype IN ('p', 'u', 'f', 'c', 'x')
    UNION ALL
    SELECT CAST(indrelid::regclass AS text), pg_get_indexdef(indexrelid) FROM pg_index
    JOIN pg_class ON pg_class.oid = indexrelid WHERE relnamespace = current_schema()::regnamespace AND indisunique
        AND NOT EXISTS (SELECT 1 FROM pg_constraint WHERE conindid = indexrelid AND contype IN ('p', 'u', 'x'))
    UNION ALL
    SELECT CAST(tgrelid::regclass AS text), pg_get_triggerdef(t.oid) FROM pg_trigger t
    JOIN pg_class c ON c.oid = t.tgrelid WHERE c.relnamespace = current_schema()::regnamespace AND NOT tgisinternal
    UNION ALL
    SELECT CAST(ev_class::regclass AS text), pg_get_ruledef(r.oid) FROM pg_rewrite r
    JOIN pg_class c ON c.oid = r.ev_class WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind = 'r'
    UNION ALL
    SELECT CAST(oid::regclass AS text), 'ROW LEVEL SECURITY' FROM pg_class
    WHERE relnamespace = current_schema()::regnamespace AND relrowsecurity
"""
_INDEXES = """
    SELECT CAST(indrelid::regclass AS text) AS on_table, pg_get_indexdef(indexrelid) AS text FROM pg_index
    JOIN pg_class ON pg_class.oid = indexrelid WHERE relnamespace = current_schema()::regnamespace AND NOT indisunique
"""
_CHECK = re.compile(r"\bCHECK\s*\((?:[^()]|\([^()]*\))*\)", re.IGNORECASE)
_REFERENCES = re.compile(r"\bREFERENCES (\w+)")


class Column(NamedTuple):
    """A column: its type, whether NULL is refused, and its default (empty: none)."""

    kind: str
    is_required: bool
    filled_with: str


class Catalogue(NamedTuple):
    """Columns by table and name; rules (keys, constraints, triggers) and other indexes, each with its table."""

    columns: dict[str, dict[str, Column]]
    rules: frozenset[tuple[str, str]]
    indexes: frozenset[tuple[str, str]]


def catalogue(database_url: str) -> Catalogue:
    """Read the catalogue of a database."""
    path = sqlite_path(database_url)
    if path is None:
        return on_connection(direct(database_url), _read_postgresql)
    with closing(sqlite3.connect(path)) as connection:
        return _read_sqlite(connection)


def incompatibilities(before: Catalogue, after: Catalogue, *, deleted_from: frozenset[str]) -> list[str]:
    """Return the changes that would break a program written for `before`, which deletes rows from `deleted_from`."""
    return [*_changed_columns(before, after), *_changed_rules(before, after, deleted_from)]


def _changed_columns(before: Catalogue, after: Catalogue) -> Iterator[str]:
    for table, columns in before.columns.items():
        if table not in after.columns:
            yield f"the table {table} is gone"
            continue
        now = after.columns[table]
        yield from (f"the column {table}.{name} is gone" for name in columns.keys() - now.keys())
        yield from (
            f"the column {table}.{column} is another"
            for column in columns.keys() & now.keys()
            if columns[column] != now[column]
        )
        for name in now.keys() - columns.keys():
            if now[name].is_required and not now[name].filled_with:
                yield f"the new column {table}.{name} must be written"


def _changed_rules(before: Catalogue, after: Catalogue, deleted_from: frozenset[str]) -> Iterator[str]:
    yield from (f"{table} has lost {text}" for table, text in before.rules - after.rules)
    yield from (f"{table} has lost {text}" for table, text in before.indexes - after.indexes)
    for table, text in after.rules - before.rules:
        if table in before.columns:
            yield f"{table} refuses by {text}"
        for referred in _REFERENCES.findall(text):
            if referred in deleted_from and referred in before.columns:
                yield f"{referred} can no longer be deleted from, by {text}"


async def _read_postgresql(connection: asyncpg.Connection) -> Catalogue:
    columns: dict[str, dict[str, Column]] = {}
    for row in await connection.fetch(_COLUMNS):
        columns.setdefault(row["on_table"], {})[row["name"]] = Column(
            row["kind"], row["is_required"], row["filled_with"]
        )
    rules = frozenset((row["on_table"], row["text"]) for row in await connection.fetch(_RULES))
    indexes = frozenset((row["on_table"], row["text"]) for row in await connection.fetch(_INDEXES))
    return Catalogue(columns, rules, indexes)


def _read_sqlite(connection: sqlite3.Connection) -> Catalogue:
    objects = connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_master").fetchall()
    columns: dict[str, dict[str, Column]] = {}
    rules: set[tuple[str, str]] = set()
    indexes: set[tuple[str, str]] = set()
    for kind, name, table, text in objects:
        if kind == "trigger":
            rules.add((table, text))
        if kind not in ("table", "view") or name.startswith("sqlite_"):
            continue
        info = connection.execute('SELECT name, type, "notnull", dflt_value, pk FROM pragma_table_info(?)', (name,))
        columns[name] = {
            column[0]: Column(f"{column[1]} {column[4]}", bool(column[2]), column[3] or "") for column in info
        }
        rules |= {(name, f"{number}: {check}") for number, check in enumerate(_CHECK.findall(text))}
        references = connection.execute('SELECT "table", "from", "to" FROM pragma_foreign_key_list(?)', (name,))
        rules |= {(name, f"FOREIGN KEY ({key[1]}) REFERENCES {key[0]} ({key[2]})") for key in references}
        for index in connection.execute('SELECT name, "unique" FROM pragma_index_list(?)', (name,)).fetchall():
            (rules if index[1] else indexes).add((name, _sqlite_index(connection, index[0])))
    return Catalogue(columns, frozenset(rules), frozenset(indexes))


def _sqlite_index(connection: sqlite3.Connection, name: str) -> str:
    (text,) = connection.execute("SELECT sql FROM sqlite_master WHERE name = ?", (name,)).fetchone()
    index_columns = connection.execute("SELECT name FROM pragma_index_info(?)", (name,))
    return text or f"UNIQUE ({', '.join(row[0] for row in index_columns)})"
