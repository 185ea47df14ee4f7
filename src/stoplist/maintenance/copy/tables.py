"""In which order tables are filled, and whether the two databases have the same ones."""

from collections.abc import Iterable, Mapping

from stoplist.maintenance.copy.contents import Table


def in_order(tables: Iterable[Table]) -> list[Table]:
    """Each table after those that its rows refer to."""
    waiting, ordered = list(tables), list[Table]()
    while waiting:
        placed = {table.name for table in ordered}
        ready = [table for table in waiting if table.refers_to <= placed | {table.name}]
        if not ready:
            raise ValueError("tables refer to one another in a circle")
        ordered += ready
        waiting = [table for table in waiting if table not in ready]
    return ordered


def with_referrers(names: Iterable[str], ordered: Iterable[Table]) -> set[str]:
    """These tables and all that refer to one of them; `ordered` as `in_order` has them."""
    found = set(names)
    for table in ordered:
        if table.refers_to & found:
            found.add(table.name)
    return found


def differing(columns: Mapping[str, set[str]], tables: Iterable[Table]) -> list[str]:
    """The tables that only one side has, or with other columns: on the one side `columns` by table, there `tables`."""
    there = {table.name: {column.name for column in table.columns} for table in tables}
    return sorted(name for name in columns.keys() | there.keys() if columns.get(name) != there.get(name))
