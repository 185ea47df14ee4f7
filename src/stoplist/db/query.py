"""Named statements, read from the `queries.sql` beside the code that uses them.

A statement begins with `-- name: some_name`; parameters are written `:some_parameter`. A line that ends in
`-- only: sqlite` or `-- only: postgresql` is left out for the other database. Text that several statements share begins
with `-- fragment: some_name`, there or in `db/fragments.sql`; a line `-- include: some_name column=value` stands for
it, with `{column}` replaced.
"""

import re
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib import resources

import msgspec

DIALECTS = ("sqlite", "postgresql")
_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
_FRAGMENT = re.compile(r"^-- fragment: (\w+)\n(.*?)(?=^-- (?:name|fragment): |\Z)", re.MULTILINE | re.DOTALL)
_INCLUDE = re.compile(r"^[ ]*-- include: (\w+)((?: \w+=\S+)*)\n", re.MULTILINE)
_ONLY = re.compile(r"--\s*only: (\w+)\s*$")
_PARAMETER = re.compile(r"(?<![:\w]):([a-z_]+)")
_FEED_ID = re.compile(r"\bfeed_id\b")
_TABLE = re.compile(r"\b(?:FROM|INTO|JOIN|UPDATE)\s")


class Query(msgspec.Struct, frozen=True):
    """A statement in both dialects; `parameters` are named in the order of `$1`, `$2`, … in `postgresql`.

    `sqlite_by_position` takes its values in that order too, which SQLite binds in half the time. `reads_feeds`: the
    statement is about feeds, one (its parameter `feed_id`) or many. `reads_accounts`: it is about any other table. No
    statement is about both; one that only takes a lock is about neither.
    """

    name: str
    sqlite: str
    sqlite_by_position: str
    postgresql: str
    parameters: tuple[str, ...]
    reads_feeds: bool
    reads_accounts: bool


@cache  # several modules of a package take theirs from one file
def load_queries(package: str) -> Mapping[str, Query]:
    """Return the statements of the queries.sql in `package`, by name."""
    return parse_queries(
        resources.files(package).joinpath("queries.sql").read_text("utf-8"), shared=_shared_fragments()
    )


def parse_queries(text: str, *, shared: str = "") -> dict[str, Query]:
    """Return the statements in `text`, by name. Raise ValueError if a name is used twice or a fragment is missing.

    `shared` has more fragments.
    """
    _, *parts = _NAME.split(_with_fragments(text, shared))
    names, bodies = parts[::2], parts[1::2]
    if len(set(names)) != len(names):
        raise ValueError("a statement name is used twice")
    return {name: _query(name, body) for name, body in zip(names, bodies, strict=True)}


def only_for(dialect: str, text: str) -> str:
    """Return `text` without comments and without the lines of the other dialect."""
    lines = (line for line in text.splitlines() if _dialect_of(line) in (None, dialect))
    return "\n".join(line for line in (_without_comment(line) for line in lines) if line)


def statements(script: str) -> Iterator[str]:
    """Yield the statements of a script. They must not contain a text in dollar quotes."""
    statement = ""
    for line in script.splitlines():
        statement += line + "\n"
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
    if statement.strip():
        yield statement


def json_text(value: object) -> str:
    """Return a parameter that carries any number of rows, as one JSON text."""
    return msgspec.json.encode(value).decode()


@cache
def _shared_fragments() -> str:
    return resources.files("stoplist.db").joinpath("fragments.sql").read_text("utf-8")


def _with_fragments(text: str, shared: str) -> str:
    """Return `text` with each include replaced, also those within fragments, and without the fragments themselves."""
    fragments = {match[1]: match[2].rstrip() + "\n" for match in _FRAGMENT.finditer(f"{shared}\n{text}")}

    def included(match: re.Match[str]) -> str:
        if match[1] not in fragments:
            raise ValueError(f"no such fragment: {match[1]}")
        fragment = fragments[match[1]]
        for argument in match[2].split():
            name, _, value = argument.partition("=")
            fragment = fragment.replace(f"{{{name}}}", value)
        return _INCLUDE.sub(included, fragment)

    return _INCLUDE.sub(included, _FRAGMENT.sub("", text))


def _query(name: str, body: str) -> Query:
    postgresql = only_for("postgresql", body).rstrip(";")
    parameters = tuple(dict.fromkeys(_PARAMETER.findall(postgresql)))
    sqlite = only_for("sqlite", body).rstrip(";")
    reads_feeds = _FEED_ID.search(postgresql) is not None
    return Query(
        name=name,
        sqlite=sqlite,
        sqlite_by_position=_numbered(sqlite, "?", parameters),
        postgresql=_numbered(postgresql, "$", parameters),
        parameters=parameters,
        reads_feeds=reads_feeds,
        reads_accounts=not reads_feeds and _TABLE.search(postgresql) is not None,
    )


def _numbered(text: str, sign: str, parameters: Sequence[str]) -> str:
    """Return `text` with the number of each of `parameters`, after `sign`, in place of its name."""
    number_of = {name: f"{sign}{number}" for number, name in enumerate(parameters, 1)}
    return _PARAMETER.sub(lambda match: number_of.get(match[1], match[0]), text)


def _dialect_of(line: str) -> str | None:
    match = _ONLY.search(line)
    if match and match[1] not in DIALECTS:
        raise ValueError(f"no such dialect: {match[1]}")
    return match[1] if match else None


def _without_comment(line: str) -> str:
    return line.split("--", 1)[0].rstrip()
