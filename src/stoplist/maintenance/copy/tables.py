"""The order in which tables are filled, and the differences between the tables of two databases."""

from collections.abc import Iterable, Mapping, Sequence

from stoplist.errors import Refused
from stoplist.maintenance.copy.contents import Table, unknown_kinds

OWN_TABLES = frozenset(("deployment", "copy_progress"))
"""The tables in which each database has rows of its own."""


def dependency_order(tables: Iterable[Table]) -> list[Table]:
    """Sort the tables so that each comes after those that its rows refer to. Raise ValueError on a cycle."""
    waiting, ordered = list(tables), list[Table]()
    while waiting:
        placed = {table.name for table in ordered}
        ready = [table for table in waiting if table.refers_to <= placed | {table.name}]
        if not ready:
            raise ValueError("tables refer to one another in a cycle")
        ordered += ready
        waiting = [table for table in waiting if table not in ready]
    return ordered


def with_referrers(names: Iterable[str], ordered: Iterable[Table]) -> set[str]:
    """Return `names` and all tables that refer to them, directly or not; `ordered` by `dependency_order`."""
    result = set(names)
    for table in ordered:
        if table.refers_to & result:
            result.add(table.name)
    return result


def differing_tables(columns: Mapping[str, set[str]], tables: Iterable[Table]) -> list[str]:
    """Return the names of tables that only one side has, or that have other columns there."""
    other = {table.name: {column.name for column in table.columns} for table in tables}
    return sorted(name for name in columns.keys() | other.keys() if columns.get(name) != other.get(name))


def require_same_tables(columns: Mapping[str, set[str]], tables: Sequence[Table]) -> None:
    """Raise Refused unless both sides have the same tables and columns, whose types this release can compare."""
    differing = differing_tables(columns, tables)
    if differing:
        raise Refused(
            f"The two databases do not have the same tables and columns ({', '.join(differing)}), though both "
            "should be as `stoplist migrate` created them: remove what is not Stoplist's."
        )
    unknown = [table.name for table in tables if unknown_kinds(table)]
    if unknown:
        raise Refused(f"This release cannot copy all columns of the tables {', '.join(unknown)}.")
