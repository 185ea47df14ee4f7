"""The order of tables, and which of them the two databases do not share."""

import pytest

from stoplist.maintenance.copy.contents import Column, Table
from stoplist.maintenance.copy.tables import differing, in_order, with_referrers


def table(name: str, *refers_to: str, columns: str = "a") -> Table:
    """One with columns of these letters."""
    return Table(name, tuple(Column(column, "text", False, False) for column in columns), frozenset(refers_to))


TABLES = [table("d", "c"), table("c", "a", "b", "c"), table("b", "a"), table("a"), table("e")]


def test_each_table_comes_after_those_that_it_refers_to() -> None:
    """Rows that refer to rows of their own table are no hindrance."""
    assert [one.name for one in in_order(TABLES)] == ["a", "e", "b", "c", "d"]
    assert in_order([]) == []


def test_a_circle_is_an_error() -> None:
    """Not a copy that never ends."""
    with pytest.raises(ValueError, match="circle"):
        in_order([table("a", "b"), table("b", "a")])


def test_what_refers_to_a_table_by_way_of_others_is_found_with_it() -> None:
    """And nothing else."""
    assert with_referrers(["b"], in_order(TABLES)) == {"b", "c", "d"}
    assert with_referrers(["e"], in_order(TABLES)) == {"e"}


def test_tables_and_columns_that_one_side_lacks_are_named() -> None:
    """Whichever side that is; the order of the columns is no difference."""
    here = {"a": {"x", "y"}, "b": {"x"}, "c": {"x"}, "d": {"x", "y"}}
    there = [table("a", columns="yx"), table("b", columns="xy"), table("d", columns="x"), table("e")]
    assert differing(here, there) == ["b", "c", "d", "e"]
    assert differing({}, []) == []
