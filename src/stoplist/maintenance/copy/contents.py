"""Row counts and digests of a table, the same in Python and in PostgreSQL; and values that PostgreSQL cannot store.

The digest of a table is the sum of its rows' digests, so it does not depend on their order. The digest of a row is the
first 64 bits of SHA-256 over its values as one text: an integer and a semicolon; a text or hexadecimal bytes after
their length and a colon; for NULL the semicolon or colon alone. So different rows have different texts. This takes 2
to 3 µs a row on each side.
"""

import sys
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import sha256
from typing import Any, NamedTuple

Values = Sequence[Any]

FIRST_ROWID = -(2**63)
_MODULUS = 2**63


class Column(NamedTuple):
    """A column of the target; `kind` is PostgreSQL's name for its type."""

    name: str
    kind: str
    may_be_null: bool
    is_identity: bool


class Table(NamedTuple):
    """A table of the target, and the tables that its rows refer to."""

    name: str
    columns: tuple[Column, ...]
    refers_to: frozenset[str]


class Progress(NamedTuple):
    """The progress of a table: the last rowid copied from the source, and the count and digest of the rows up to it."""

    last_rowid: int = FIRST_ROWID
    rows: int = 0
    digest: int = 0

    def after(self, last_rowid: int, columns: Sequence[Values], table: Table) -> "Progress":
        """Return the progress after more rows, given by column."""
        digest = (self.digest + _digest(table, columns)) % _MODULUS
        return Progress(last_rowid, self.rows + len(columns[0]), digest)

    def matches(self, other: "Progress") -> bool:
        """Return whether count and digest of the rows are the same."""
        return (self.rows, self.digest) == (other.rows, other.digest)


def first_unstorable(table: Table, columns: Sequence[Values]) -> int | None:
    """Return the index of the first row that PostgreSQL would refuse or change; None if there is none.

    SQLite allows any value in any column.
    """
    if all(map(_is_storable, table.columns, columns)):
        return None
    return next(
        index
        for index, row in enumerate(zip(*columns, strict=True))
        if not all(_is_storable(column, (value,)) for column, value in zip(table.columns, row, strict=True))
    )


def unknown_kinds(table: Table) -> set[str]:
    """Return the column types that cannot be copied because `_KINDS` lacks them."""
    return {column.kind for column in table.columns} - set(_KINDS)


def digest_in_postgresql(table: Table) -> str:
    """Return the statement that selects `copied_rows` and `digest` of a table in the target."""
    row = ", ".join(_KINDS[column.kind].in_postgresql.format(quote_name(column.name)) for column in table.columns)
    bits = f"CAST('x' || substr(encode(sha256(textsend(concat({row}))), 'hex'), 1, 16) AS bit(64))"
    return (
        f"SELECT count(*) AS copied_rows, CAST(mod(mod(coalesce(sum(CAST({bits} AS bigint)), 0), {_MODULUS})"  # noqa: S608
        f" + {_MODULUS}, {_MODULUS}) AS bigint) AS digest FROM {quote_name(table.name)}"
    )


def quote_name(name: str) -> str:
    """Quote a name from the catalogue for a statement of either database."""
    return '"' + name.replace('"', '""') + '"'


class _Kind(NamedTuple):
    """A column type: its Python type, which values are storable, and its text in a row, in Python and in PostgreSQL.

    `parts` fill the template: each is a function of the value, or None for the value itself.
    """

    python: type
    fits: Callable[[Values], bool]
    template: str
    parts: tuple[Callable[[Any], Any] | None, ...]
    in_postgresql: str


def _integer(bits: int) -> _Kind:
    bound = 2 ** (bits - 1)
    return _Kind(int, lambda values: -bound <= min(values) and max(values) < bound, "%s;", (None,), "{0}, ';'")


def _is_text(values: Values) -> bool:
    joined = "".join(values)
    try:
        joined.encode()
    except UnicodeEncodeError:
        return False
    return "\0" not in joined


_KINDS = {
    "smallint": _integer(16),
    "integer": _integer(32),
    "bigint": _integer(64),
    "text": _Kind(str, _is_text, "%s:%s", (len, None), "char_length({0}), ':', {0}"),
    "bytea": _Kind(bytes, lambda values: True, "%s:%s", (len, bytes.hex), "octet_length({0}), ':', encode({0}, 'hex')"),
}


def _is_storable(column: Column, values: Values) -> bool:
    kind = _KINDS[column.kind]
    if column.may_be_null:
        values = [value for value in values if value is not None]
    return not values or (set(map(type, values)) == {kind.python} and kind.fits(values))


def _digest(table: Table, columns: Sequence[Values]) -> int:
    template = "".join(_KINDS[column.kind].template for column in table.columns)
    rows = map(template.__mod__, zip(*_parts(table, columns), strict=True))
    heads = array("q", b"".join([sha256(row.encode()).digest()[:8] for row in rows]))
    if sys.byteorder == "little":
        heads.byteswap()
    return sum(heads)


def _parts(table: Table, columns: Sequence[Values]) -> Iterator[Iterable[Any]]:
    """Yield the parts of the row templates, column-wise for all rows: 1.5 µs a row, against 2.2 row by row."""
    for column, values in zip(table.columns, columns, strict=True):
        for part in _KINDS[column.kind].parts:
            if column.may_be_null:
                yield ["" if value is None else value if part is None else part(value) for value in values]
            else:
                yield values if part is None else map(part, values)
