"""Rows reckoned up in Python and in PostgreSQL: the same rows to the same number, other rows to another."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from stoplist.maintenance.copy.contents import Column, Progress, Table, first_unfit, unknown_kinds
from stoplist.maintenance.copy.target import connected
from tests.migration_fixture import executed

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


def reckoned(rows: Sequence[Row], table: Table = TABLE) -> Progress:
    """The number and digest of these rows, as the source has them."""
    return Progress().after(0, list(zip(*rows, strict=True)), table)


def stored(url: str, rows: Sequence[Row], table: Table = TABLE) -> Progress:
    """The same of a table of PostgreSQL that holds these rows, by way of parameters of an INSERT."""

    async def body() -> Progress:
        columns = ", ".join(f"{column.name} {column.kind}" for column in table.columns)
        await executed(url, "DROP TABLE IF EXISTS t", f"CREATE TABLE t ({columns})")
        async with connected(url) as target:
            places = ", ".join(f"${number}" for number in range(1, len(table.columns) + 1))
            await target._connection.executemany(f"INSERT INTO t VALUES ({places})", rows)  # noqa: S608
            return await target.reckon_up(table)

    return asyncio.run(body())


def test_both_sides_reckon_alike(postgresql_url: str) -> None:
    """Whatever can be stored; also where nothing is."""
    assert stored(postgresql_url, ROWS).holds_the_same(reckoned(ROWS))
    for row in ROWS:
        assert stored(postgresql_url, [row]).holds_the_same(reckoned([row])), row
    assert stored(postgresql_url, []).holds_the_same(Progress())


def test_no_two_of_these_rows_look_alike() -> None:
    """NULL is not the empty text."""
    assert len({reckoned([row]).digest for row in ROWS}) == len(ROWS)


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
def test_values_that_change_places_or_run_together_are_another_row(one: Row, other: Row) -> None:
    """Which column holds what is part of the reckoning."""
    assert reckoned([one], TEXTS).digest != reckoned([other], TEXTS).digest


def test_the_order_of_the_rows_does_not_matter_and_their_number_does() -> None:
    """PostgreSQL returns them in any; a row that is there twice is not one that is there once."""
    assert reckoned(ROWS).holds_the_same(reckoned(ROWS[::-1]))
    assert not reckoned([ROWS[0]]).holds_the_same(reckoned([ROWS[0], ROWS[0]]))
    assert reckoned([ROWS[4]]).digest != reckoned([ROWS[4]] * 3).digest


def test_rows_are_reckoned_up_in_any_number_of_parts() -> None:
    """As they are read: what was stored of an interrupted copy is gone on with."""
    parts = Progress()
    for row in ROWS:
        parts = parts.after(9, [(value,) for value in row], TABLE)
    assert parts.holds_the_same(reckoned(ROWS))
    assert parts.last_rowid == 9


UNFIT: list[tuple[str, Any]] = [
    ("smallint", 2**15), ("smallint", -(2**15) - 1), ("integer", 2**31), ("integer", "7"), ("bigint", 7.0),
    ("bigint", True), ("bigint", b"7"), ("text", 7), ("text", b"a"), ("text", "a\0"), ("text", "\ud800"),
    ("bytea", "a"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "value"), UNFIT)
def test_a_value_that_does_not_fit_is_found_by_its_row(kind: str, value: Any) -> None:
    """Among others that do, and only there."""
    table = Table("t", (Column("a", "bigint", False, False), Column("b", kind, True, False)), frozenset())
    good = {"text": "a", "bytea": b"a"}.get(kind, 1)
    assert first_unfit(table, [(1, 2, 3, 4), (None, good, value, value)]) == 2
    assert first_unfit(table, [(1, 2, 3), (None, good, good)]) is None


def test_nothing_does_not_fit_where_something_must_be() -> None:
    """A column that is NOT NULL."""
    table = Table("t", (Column("a", "text", False, False),), frozenset())
    assert first_unfit(table, [("", None)]) == 1


def test_a_type_that_is_not_known_is_named() -> None:
    """A migration that brings one has to teach it here."""
    assert unknown_kinds(TABLE) == set()
    assert unknown_kinds(Table("t", (Column("a", "jsonb", True, False),), frozenset())) == {"jsonb"}
