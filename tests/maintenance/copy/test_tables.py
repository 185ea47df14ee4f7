"""The order of tables, and the tables in which two databases differ."""

import pytest

from stoplist.maintenance.copy.contents import Column, Table
from stoplist.maintenance.copy.tables import dependency_order, differing_tables, with_referrers


def table(name: str, *refers_to: str, columns: str = "a") -> Table:
    """Return a table with a column per letter."""
    return Table(name, tuple(Column(column, "text", False, False) for column in columns), frozenset(refers_to))


TABLES = [table("d", "c"), table("c", "a", "b", "c"), table("b", "a"), table("a"), table("e")]


def test_each_table_comes_after_those_it_refers_to() -> None:
    """Rows may refer to rows of their own table."""
    assert [one.name for one in dependency_order(TABLES)] == ["a", "e", "b", "c", "d"]
    assert dependency_order([]) == []


def test_a_cycle_is_an_error() -> None:
    with pytest.raises(ValueError, match="cycle"):
        dependency_order([table("a", "b"), table("b", "a")])


def test_indirect_referrers_are_found() -> None:
    assert with_referrers(["b"], dependency_order(TABLES)) == {"b", "c", "d"}
    assert with_referrers(["e"], dependency_order(TABLES)) == {"e"}


def test_tables_and_columns_that_one_side_lacks_are_named() -> None:
    """Either side may lack them. The order of columns does not matter."""
    one_side = {"a": {"x", "y"}, "b": {"x"}, "c": {"x"}, "d": {"x", "y"}}
    other_side = [table("a", columns="yx"), table("b", columns="xy"), table("d", columns="x"), table("e")]
    assert differing_tables(one_side, other_side) == ["b", "c", "d", "e"]
    assert differing_tables({}, []) == []
