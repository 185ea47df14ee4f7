"""The interface of the database drivers: reads and writes, the same over SQLite and PostgreSQL.

An operation receives a `Database` and never learns which one. A unit of work is a function, not a block: the driver
may queue it, commit it together with others or run it again after a deadlock, and a client that disconnects cannot
cancel it half-way. A unit awaits nothing but its transaction. A refusal that must be stored (a counted failure, say)
is *returned*, because an exception undoes the unit. Reasons and figures: docs/decisions/0003-units-of-work.md.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from stoplist.db.query import Query

T = TypeVar("T")
Row = Any
"""A row of a result: values by column name, as in `row["client_id"]`."""


class Transaction(Protocol):
    """The transaction passed to a unit of work. Its statements see one another's changes and commit together."""

    outbox_feed_id: int | None
    """The feed in whose outbox an entry for the accounts is kept; None where the transaction reaches the accounts."""

    async def one(self, query: Query, **values: Any) -> Row | None: ...
    async def all(self, query: Query, **values: Any) -> list[Row]: ...
    async def run(self, query: Query, **values: Any) -> int:
        """Execute the statement and return the number of rows affected."""
        ...

    async def pause(self) -> None:
        """Yield to the event loop if the driver can suspend a unit. For computations of more than a millisecond."""
        ...


# A unit or a read of more rows than this is heavy: it is scheduled so that small ones do not wait for it.
HEAVY_ROWS = 100
# Rows per slice of a long read: well below a millisecond of work.
SLICE_ROWS = 200

# Stands for several feeds where a unit names its feed.
ALL_FEEDS = 0

Unit = Callable[[Transaction], Awaitable[T]]


def ignore_feed(_feed_id: int) -> None:
    """Ignore that a feed was written: for a process in which nobody waits for changes."""


@dataclass
class Counts:
    """A driver's counts since its start (units written, commits, time waited for writes) and of now.

    Of now are the units that wait, and the feeds whose reads or writes are refused because they hang.
    """

    writes: int = 0
    commits: int = 0
    write_wait_ns: int = 0
    waiting: int = 0
    hanging_feeds: int = 0


class Database(Protocol):
    """An open database. Every method may raise StoreUnavailable; a write then has not been confirmed."""

    kind: str
    """`sqlite` or `postgresql`."""

    feeds_are_apart: bool
    """True if the feeds are in a database of their own, so that no transaction reaches both feeds and accounts."""

    @property
    def counts(self) -> Counts: ...

    on_feed_written: Callable[[int], None]
    """Called with the `queue_key` of each unit that has one, once it is committed."""

    async def one(self, query: Query, **values: Any) -> Row | None:
        """Return the first row of a read, or None."""
        ...

    async def rows(self, query: Query, *values: Any) -> Sequence[Sequence[Any]]:
        """Return the few rows of a read on the path of every request; the cheapest read.

        Values are in the order of `query.parameters`, and columns are read by position.
        """
        ...

    async def one_large(self, query: Query, **values: Any) -> Row | None:
        """Return the only row of a read that scans more than HEAVY_ROWS rows, without delaying other reads."""
        ...

    async def all(self, query: Query, **values: Any) -> list[Row]:
        """Return every row of a read, from one snapshot."""
        ...

    def slices(self, query: Query, **values: Any) -> AsyncGenerator[list[Row], None]:
        """Yield every row of a read, from one snapshot, in slices of SLICE_ROWS; other tasks run in between."""
        ...

    async def write(
        self, unit: Unit[T], *, queue_key: int | None = None, feed_id: int | None = None, rows: int = 1
    ) -> T:
        """Run a unit of work and return its result once its changes are durable. An exception in the unit undoes them.

        Units with the same `queue_key` (a feed) wait for one another here, not in the database. A unit that writes
        tables of feeds without waiting for others names its feed as `feed_id` (ALL_FEEDS if there are several): it may
        use no other tables, but for entries in the audit and notices. `rows` estimates how many rows the unit writes: a
        heavy unit runs after the small ones that wait, and may await `Transaction.pause`.
        """
        ...

    async def write_one(self, query: Query, **values: Any) -> Row | None:
        """Run a unit of work of a single statement, which is atomic by itself: the cheapest durable write."""
        ...

    async def clock_ms(self) -> int | None:
        """Return the database's time in milliseconds since 1970 UTC; None if the database uses this machine's clock."""
        ...

    async def under_schema_lock(self, change: Callable[["SchemaChange"], Awaitable[T]]) -> T:
        """Run `change` in a transaction that excludes other migrations, and run it again after a deadlock."""
        ...

    async def close(self) -> None:
        """Finish the waiting units, then close the database."""
        ...


class SchemaChange(Transaction, Protocol):
    """The transaction passed to a migration."""

    async def script(self, text: str) -> None:
        """Execute the statements of a script."""
        ...

    async def keep_copy(self, name: str) -> str | None:
        """Copy the database to a file beside it and return the path; None if the driver does not support this."""
        ...
