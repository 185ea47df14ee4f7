"""Parsing of queries.sql: names, parameters, and lines for one database only."""

import re

import pytest

from stoplist.db.query import load_queries, only_for, parse_queries

TWO = """
-- A file begins with words of its own.

-- name: first
-- Why it is fast.
SELECT a, b  -- both of them
FROM t WHERE a = :a AND b = :b_of_it OR a = :a;

-- name: second_one
SELECT CAST(:a AS bigint), :b::text  -- only: postgresql
SELECT :a, :b  -- only: sqlite
FROM t
"""


def test_each_statement_has_its_name() -> None:
    """Text before the first name belongs to no statement."""
    queries = parse_queries(TWO)
    assert list(queries) == ["first", "second_one"]
    assert all(query.name == name for name, query in queries.items())


def test_comments_and_the_last_semicolon_are_not_sent() -> None:
    """They would be sent with every execution."""
    assert parse_queries(TWO)["first"].sqlite == "SELECT a, b\nFROM t WHERE a = :a AND b = :b_of_it OR a = :a"


def test_parameters_are_numbered_in_the_order_of_their_first_use() -> None:
    """PostgreSQL takes `$1`, `$2`, …; a name used twice is one parameter."""
    query = parse_queries(TWO)["first"]
    assert query.postgresql == "SELECT a, b\nFROM t WHERE a = $1 AND b = $2 OR a = $1"
    assert query.parameters == ("a", "b_of_it")


def test_a_cast_is_not_a_parameter() -> None:
    """`::text` is PostgreSQL's short form of CAST."""
    query = parse_queries(TWO)["second_one"]
    assert query.postgresql == "SELECT CAST($1 AS bigint), $2::text\nFROM t"
    assert query.parameters == ("a", "b")


def test_a_line_for_one_database_is_left_out_for_the_other() -> None:
    text = "a,\nb,  -- only: sqlite\nc  -- only: postgresql\n-- a remark"
    assert only_for("sqlite", text) == "a,\nb,"
    assert only_for("postgresql", text) == "a,\nc"


def test_a_name_used_twice_is_an_error() -> None:
    """The second would silently win."""
    with pytest.raises(ValueError, match="twice"):
        parse_queries("-- name: same\nSELECT 1\n-- name: same\nSELECT 2")


def test_an_unknown_dialect_is_an_error() -> None:
    """A line for an unknown database would be left out on both."""
    with pytest.raises(ValueError, match="postgres"):
        parse_queries("-- name: one\nSELECT 1  -- only: postgres")


def test_an_include_stands_for_its_fragment() -> None:
    """Values are filled in, lines for one database stay so, and the fragment is no statement of its own."""
    text = """-- fragment: newest
ORDER BY {column} DESC  -- only: sqlite
ORDER BY {column} DESC NULLS LAST  -- only: postgresql

-- name: one
SELECT 1
-- include: newest column=at_ms

-- name: other
SELECT 2
"""
    queries = parse_queries(text)
    assert list(queries) == ["one", "other"]
    assert queries["one"].sqlite == "SELECT 1\nORDER BY at_ms DESC"
    assert queries["one"].postgresql == "SELECT 1\nORDER BY at_ms DESC NULLS LAST"


def test_a_fragment_may_include_one_that_is_shared() -> None:
    shared = "-- fragment: newest\nORDER BY {column}\n"
    text = "-- fragment: page\n-- include: newest column=at_ms\nLIMIT 9\n-- name: one\nSELECT 1\n-- include: page\n"
    assert parse_queries(text, shared=shared)["one"].sqlite == "SELECT 1\nORDER BY at_ms\nLIMIT 9"


def test_an_unknown_fragment_is_an_error() -> None:
    """A condition that is left out without a word would show more than it should."""
    with pytest.raises(ValueError, match="no such fragment: newest"):
        parse_queries("-- name: one\nSELECT 1\n-- include: newest\n")


def test_a_text_without_names_has_no_statements() -> None:
    """An empty file is no error."""
    assert parse_queries("-- nothing yet\n") == {}


@pytest.mark.parametrize("package", ["stoplist.db", "stoplist.audit", "stoplist.organizations", "stoplist.oauth"])
def test_statements_have_the_same_parameters_on_both_databases(package: str) -> None:
    """Values are given by name: one that only one database needs would fail on the other."""
    for query in load_queries(package).values():
        assert set(re.findall(r"(?<![:\w]):([a-z_]+)", query.sqlite)) == set(query.parameters), query.name
