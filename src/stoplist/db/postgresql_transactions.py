"""Transactions on PostgreSQL: their timeouts, which travel with BEGIN, and their commit."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from typing import Any

from stoplist.db import Row
from stoplist.db.pools import SETTLE_TIMEOUT_S, STATEMENT_TIMEOUT_S, end
from stoplist.db.postgresql_errors import CommitTimeout, Phase, translated_errors
from stoplist.db.query import Query, statements
from stoplist.slicing import yield_to_loop

LOCK_TIMEOUT_S = 5.0
# Shorter than the client timeout, so that the server reports the timeout: then it is certain that nothing is stored,
# and the connection is still good. A statement of the biggest batch takes a tenth of this.
SERVER_STATEMENT_TIMEOUT_S = 0.9 * STATEMENT_TIMEOUT_S
# For a host that freezes in the middle of a unit and keeps a feed locked. The heaviest unit computes for less than a
# second between two statements; another host that waits for the feed tries twice.
IDLE_TIMEOUT_S = 10.0
MIGRATION_TIMEOUT_S = 3600.0


class PostgresqlTransaction:
    """A transaction on one connection of the pool."""

    outbox_feed_id: int | None = None

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def one(self, query: Query, **values: Any) -> Row | None:
        return await self._connection.fetchrow(query.postgresql, *arguments(query, values))

    async def all(self, query: Query, **values: Any) -> list[Row]:
        return await self._connection.fetch(query.postgresql, *arguments(query, values))  # type: ignore[no-any-return]

    async def run(self, query: Query, **values: Any) -> int:
        status: str = await self._connection.execute(query.postgresql, *arguments(query, values))
        return int(status.rsplit(" ", 1)[-1])

    async def pause(self) -> None:
        await yield_to_loop()

    @contextlib.asynccontextmanager
    async def savepoint(self) -> AsyncGenerator[None, None]:
        """Roll back to this point on an exception in the context; the transaction goes on."""
        await self._connection.execute("SAVEPOINT unit")
        try:
            yield
        except BaseException:
            if not self._connection.is_closed():
                await self._connection.execute("ROLLBACK TO SAVEPOINT unit; RELEASE SAVEPOINT unit")
            raise
        await self._connection.execute("RELEASE SAVEPOINT unit")


class PostgresqlSchemaChange(PostgresqlTransaction):
    """The transaction of a migration."""

    async def script(self, text: str) -> None:
        # One by one: Citus accepts no index of a distributed table in a message with other statements.
        for statement in statements(text):
            await self._connection.execute(statement, timeout=MIGRATION_TIMEOUT_S)

    async def keep_copy(self, name: str) -> str | None:
        return None  # PostgreSQL's own tools make backups


FOR_MIGRATION = {"lock_s": MIGRATION_TIMEOUT_S, "statement_s": MIGRATION_TIMEOUT_S, "idle_s": MIGRATION_TIMEOUT_S}


@contextlib.asynccontextmanager
async def open_transaction(connection: Any, **timeouts: float) -> AsyncGenerator[None, None]:
    """Open a transaction that the server ends if it waits too long for a lock, a statement or the client.

    SET LOCAL ends with the transaction, so a pooler passes no setting on to the next client.
    """
    try:
        await connection.execute(_begin(**timeouts))
        yield
        with translated_errors(Phase.COMMIT):
            answer = await _commit(connection)
        if answer != "COMMIT":
            raise RuntimeError("a unit of work continued after one of its statements failed, so nothing is stored")
    except BaseException:
        await _roll_back(connection)
        raise


async def _commit(connection: Any) -> str:
    """Send COMMIT and return the server's answer.

    COMMIT is never cancelled: a server that waits for its standby would stop waiting and make rows visible that the
    standby may never receive, and a client that resends them would be told they exist. On a timeout the connection is
    closed instead: the server goes on waiting, shows nothing, and keeps the feed locked.
    """
    answer = asyncio.ensure_future(connection.execute("COMMIT", timeout=MIGRATION_TIMEOUT_S))
    done, _ = await asyncio.wait({answer}, timeout=STATEMENT_TIMEOUT_S)
    if not done:
        end(connection)
        await asyncio.wait({answer})
        answer.exception()
        raise CommitTimeout("no answer to COMMIT in time")
    return str(answer.result())


def _begin(lock_s: float | None = None, statement_s: float | None = None, idle_s: float | None = None) -> str:
    """Return BEGIN with its timeouts, sent in one round trip."""
    return (
        "BEGIN ISOLATION LEVEL READ COMMITTED; "
        f"SET LOCAL lock_timeout = {_ms(lock_s or LOCK_TIMEOUT_S)}; "
        f"SET LOCAL statement_timeout = {_ms(statement_s or SERVER_STATEMENT_TIMEOUT_S)}; "
        f"SET LOCAL idle_in_transaction_session_timeout = {_ms(idle_s or IDLE_TIMEOUT_S)}"
    )


def _ms(seconds: float) -> int:
    return round(seconds * 1000)


async def _roll_back(connection: Any) -> None:
    """Roll back, or close the connection, so that its next user does not write into this transaction."""
    try:
        await connection.execute("ROLLBACK", timeout=SETTLE_TIMEOUT_S)
    except BaseException:
        end(connection)


def arguments(query: Query, values: dict[str, Any]) -> list[Any]:
    """Return the parameters of the statement in its order."""
    return [values[name] for name in query.parameters]
