"""Digests of rows in Python and in PostgreSQL: equal for equal rows, different for different rows."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from stoplist.maintenance.copy.contents import Column, Progress, Table, first_unstorable, unknown_kinds
from stoplist.maintenance.copy.target import open_target
from tests.services.postgresql import run_statements

pytestmark = pytest.mark.interpreter

KINDS = ("smallint", "integer", "bigint", "text", "bytea")
TABLE = Table("t", tuple(Column(f"{kind}_c", kind, True, False) for kind in KINDS), frozenset())
TEXTS = Table("t", tuple(Column(name, "text", True, False) for name in "ab"), frozenset())

Row = tuple[Any, ...]

ROWS: list[Row] = [
    (0, 0, 0, "", b""),
    (None, None, None, None, None),
    (None, None, None, "", None),
    (None, None, None, None, b""),
    (-(2**15), -(2**31), -(2**63), "a:b;c", b"\x00"),
    (2**15 - 1, 2**31 - 1, 2**63 - 1, "3:abc", bytes(range(256))),
    (1, 1, 1, "jürgen@例え.example \U0001f48c \U0010ffff", b"\xff"),
    (1, 1, 1, "tab\tline\nreturn\rquote'\"\\N \x01\x1f\x7f", b"\\x00"),
    (1, 1, 1, "e\u0301 is not \u00e9", b"1;"),
    (1, 1, 1, "x" * 100_000, b"y" * 100_000),
]


def progress_of(rows: Sequence[Row], table: Table = TABLE) -> Progress:
    """Return the count and digest of these rows, as computed for the source."""
    return Progress().after(0, list(zip(*rows, strict=True)), table)


def stored_progress(url: str, rows: Sequence[Row], table: Table = TABLE) -> Progress:
    """Return the count and digest of a PostgreSQL table with these rows, inserted as parameters."""

    async def body() -> Progress:
        columns = ", ".join(f"{column.name} {column.kind}" for column in table.columns)
        run_statements(url, "DROP TABLE IF EXISTS t", f"CREATE TABLE t ({columns})")
        async with open_target(url) as target:
            places = ", ".join(f"${number}" for number in range(1, len(table.columns) + 1))
            await target._connection.executemany(f"INSERT INTO t VALUES ({places})", rows)  # noqa: S608
            return await target.count_and_digest(table)

    return asyncio.run(body())


def test_both_sides_compute_the_same_digest(postgresql_url: str) -> None:
    """This holds for every storable value, and for no rows."""
    assert stored_progress(postgresql_url, ROWS).matches(progress_of(ROWS))
    for row in ROWS:
        assert stored_progress(postgresql_url, [row]).matches(progress_of([row])), row
    assert stored_progress(postgresql_url, []).matches(Progress())


def test_different_rows_have_different_digests() -> None:
    """NULL is not the empty text."""
    assert len({progress_of([row]).digest for row in ROWS}) == len(ROWS)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("ab", "c"), ("a", "bc")),
        (("a:", "b"), ("a", ":b")),
        ((None, "0:"), ("0:", None)),
        (("", None), (None, "")),
        (("1:a", ""), ("", "1:a")),
        ((None, ":"), (":", None)),
    ],
)
def test_values_in_other_columns_change_the_digest(one: Row, other: Row) -> None:
    assert progress_of([one], TEXTS).digest != progress_of([other], TEXTS).digest


def test_the_order_of_rows_does_not_matter_but_their_number_does() -> None:
    """PostgreSQL returns rows in any order. A duplicate row changes the digest."""
    assert progress_of(ROWS).matches(progress_of(ROWS[::-1]))
    assert not progress_of([ROWS[0]]).matches(progress_of([ROWS[0], ROWS[0]]))
    assert progress_of([ROWS[4]]).digest != progress_of([ROWS[4]] * 3).digest


def test_the_digest_may_be_computed_in_parts() -> None:
    """So an interrupted copy can be resumed."""
    parts = Progress()
    for row in ROWS:
        parts = parts.after(9, [(value,) for value in row], TABLE)
    assert parts.matches(progress_of(ROWS))
    assert parts.last_rowid == 9


UNSTORABLE: list[tuple[str, Any]] = [
    ("smallint", 2**15), ("smallint", -(2**15) - 1), ("integer", 2**31), ("integer", "7"), ("bigint", 7.0),
    ("bigint", True), ("bigint", b"7"), ("text", 7), ("text", b"a"), ("text", "a\0"), ("text", "\ud800"),
    ("bytea", "a"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "value"), UNSTORABLE)
def test_the_first_row_with_an_unstorable_value_is_found(kind: str, value: Any) -> None:
    table = Table("t", (Column("a", "bigint", False, False), Column("b", kind, True, False)), frozenset())
    good = {"text": "a", "bytea": b"a"}.get(kind, 1)
    assert first_unstorable(table, [(1, 2, 3, 4), (None, good, value, value)]) == 2
    assert first_unstorable(table, [(1, 2, 3), (None, good, good)]) is None


def test_null_is_unstorable_in_a_not_null_column() -> None:
    table = Table("t", (Column("a", "text", False, False),), frozenset())
    assert first_unstorable(table, [("", None)]) == 1


def test_an_unknown_type_is_named() -> None:
    """A migration that adds a type must add it to `_KINDS`."""
    assert unknown_kinds(TABLE) == set()
    assert unknown_kinds(Table("t", (Column("a", "jsonb", True, False),), frozenset())) == {"jsonb"}
