"""The driver seam: one way to read and write, over SQLite or PostgreSQL.

An operation is given a `Database` and never learns which one. A unit of work is a function, not a block: the driver
may queue it, commit it together with others or run it again after a deadlock, and a client that hangs up cannot
cancel it half-way. It awaits nothing but its transaction and *returns* a refusal that must leave a mark.
Reasons and figures: docs/decisions/0003-units-of-work.md.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from stoplist.db.query import Query

T = TypeVar("T")
Row = Any
"""What a statement returned: values by column name, as in `row["client_id"]`."""


class Transaction(Protocol):
    """What a unit of work is given: its statements see one another and commit together."""

    async def one(self, query: Query, **values: Any) -> Row | None: ...
    async def all(self, query: Query, **values: Any) -> list[Row]: ...
    async def run(self, query: Query, **values: Any) -> int:
        """Execute and return the number of rows touched."""
        ...

    async def pause(self) -> None:
        """Let others run, where a unit can be suspended: for decisions that take more than a millisecond."""
        ...


# A unit or a read of more rows than this is heavy: it is kept out of the way of the many small ones.
HEAVY_ROWS = 100
# So many rows of a long read are handed on at a time: well below a millisecond of work.
SLICE_ROWS = 200

Unit = Callable[[Transaction], Awaitable[T]]


@dataclass
class Counts:
    """What a driver counts since its start: units written, commits, the time their askers waited, who waits now."""

    writes: int = 0
    commits: int = 0
    write_wait_ns: int = 0
    waiting: int = 0


class Database(Protocol):
    """A database that is open. Every method may raise StoreUnavailable: then nothing was promised."""

    kind: str
    """`sqlite` or `postgresql`."""

    counts: Counts

    async def one(self, query: Query, **values: Any) -> Row | None:
        """The first row of a read, or None."""
        ...

    async def one_large(self, query: Query, **values: Any) -> Row | None:
        """The one row of a read that goes through more than HEAVY_ROWS rows; others do not wait for it."""
        ...

    async def all(self, query: Query, **values: Any) -> list[Row]:
        """Every row of a read, from one snapshot."""
        ...

    def slices(self, query: Query, **values: Any) -> AsyncGenerator[list[Row], None]:
        """Every row of a read, from one snapshot, a few hundred at a time while others run in between."""
        ...

    async def write(self, unit: Unit[T], *, queue_key: int | None = None, rows: int = 1) -> T:
        """Run a unit of work; what it did is durable when this returns. An exception it raises undoes it all.

        Units of one `line` (a feed) wait for one another here, not in the database. `rows` is about how many it
        writes: a heavy one lets the small ones that wait go first, and may await `Transaction.pause`.
        """
        ...

    async def write_one(self, query: Query, **values: Any) -> Row | None:
        """A unit of work of one statement, which is atomic by itself: the cheapest durable write."""
        ...

    async def clock_ms(self) -> int | None:
        """The database's own time in milliseconds since 1970 UTC; None where it is this machine's."""
        ...

    async def under_schema_lock(self, change: Callable[["SchemaChange"], Awaitable[T]]) -> T:
        """Run `change` in one transaction that no other migration can enter meanwhile; again after a deadlock."""
        ...

    async def close(self) -> None:
        """Finish the units that wait, then let go of the database."""
        ...


class SchemaChange(Transaction, Protocol):
    """What a migration is given."""

    async def script(self, text: str) -> None:
        """Execute the statements of a migration."""
        ...

    async def keep_copy(self, name: str) -> str | None:
        """Copy the database as it is beside itself; returns where, or None where the database cannot do it."""
        ...
