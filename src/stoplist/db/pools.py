"""Connections that many share: who waits for one, how many may, and what becomes of one that failed.

Nothing is set for a session, so a connection is handed on without a reset, which saves a round trip a statement.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from typing import Any

import asyncpg

from stoplist.db.host_selection import Connector, PostgresqlConnection
from stoplist.db.postgresql_errors import RAISED, STANDBY_STATE, is_of_the_store, state_of, translated, unavailable
from stoplist.errors import StoreUnavailable

ACQUIRE_TIMEOUT_S = 5.0
STATEMENT_TIMEOUT_S = 10.0
SETTLE_TIMEOUT_S = 1.0
WAITING_ASKERS = 1_000
"""So many may wait for a connection of a pool: as many as ten slow connections (50 ms a statement) serve in 5 s."""


class BoundedSemaphore:
    """A semaphore whose queue is bounded: waiters are served in order, and refused at once where too many wait."""

    def __init__(self, size: int) -> None:
        self._free = asyncio.Semaphore(size)
        self._waiting = 0

    @property
    def is_full(self) -> bool:
        return self._free.locked()

    async def acquire(self, *, is_bounded: bool = True) -> None:
        """Raises StoreUnavailable at once where too many wait; those of a line are counted there."""
        if is_bounded and self._waiting >= WAITING_ASKERS:
            raise StoreUnavailable("Too many requests wait for the database at the moment: try again shortly.")
        self._waiting += 1
        try:
            await self._free.acquire()
        finally:
            self._waiting -= 1

    def release(self) -> None:
        self._free.release()

    @contextlib.asynccontextmanager
    async def taken(self) -> AsyncGenerator[None, None]:
        """There is room in the block. Raises StoreUnavailable where there is none in time."""
        with translated(is_certain=True):
            async with asyncio.timeout(ACQUIRE_TIMEOUT_S):
                await self.acquire()
        try:
            yield
        finally:
            self.release()


class Connections:
    """A pool of connections, made when they are needed."""

    def __init__(self, connector: Connector, pool: "asyncpg.Pool[asyncpg.Record]") -> None:
        self._connector, self._pool = connector, pool
        self._capacity = BoundedSemaphore(pool.get_max_size())

    @classmethod
    async def of(cls, connector: Connector, size: int, *, prepared: bool) -> "Connections":
        """At most `size` at a time; none is made yet."""
        pool = await asyncpg.create_pool(
            connect=connector,
            connection_class=PostgresqlConnection,
            min_size=0,
            max_size=size,
            reset=_keep,
            command_timeout=STATEMENT_TIMEOUT_S,
            statement_cache_size=256 if prepared else 0,
        )
        return cls(connector, pool)

    async def make_one(self) -> None:
        """One is there; raises what the database says instead."""
        await self._pool.release(await self._pool.acquire())

    @contextlib.asynccontextmanager
    async def one(self) -> AsyncGenerator[Any, None]:
        """A connection that nobody else uses meanwhile. Raises StoreUnavailable where there is none in time."""
        connection = await self._acquired()
        try:
            yield connection
        except BaseException as failure:
            if isinstance(failure, asyncio.CancelledError):
                await asyncio.shield(_finish(connection))
            elif isinstance(failure, asyncpg.InternalClientError):
                end(connection)
            elif isinstance(failure, TimeoutError) or state_of(failure) == STANDBY_STATE:
                # A server that lives would have ended the statement before: nobody else need find that out for himself.
                self._connector.give_up_all()
            raise
        finally:
            await self._release(connection)

    async def close(self) -> None:
        """Whoever still asks is refused; where the server does not say goodbye, it is left."""
        with contextlib.suppress(TimeoutError, OSError):
            await asyncio.wait_for(self._pool.close(), ACQUIRE_TIMEOUT_S)

    async def _acquired(self) -> Any:
        # Every request comes this way, so there is nothing here that those who need not wait could do without: how long
        # a new connection may take is the connector's to say. Whoever waits for room has no more than that for both.
        try:
            if not self._capacity.is_full:
                return await self._entered()
            async with asyncio.timeout(ACQUIRE_TIMEOUT_S):
                return await self._entered()
        except RAISED as error:
            if not is_of_the_store(error):
                raise
            raise unavailable(error, is_certain=True) from error

    async def _entered(self) -> Any:
        await self._capacity.acquire()
        try:
            return await self._current()
        except BaseException:
            self._capacity.release()
            raise

    async def _current(self) -> Any:
        """A connection that was made since others were given up."""
        while True:
            connection: Any = await self._pool.acquire()
            if connection.generation == self._connector.generation:
                return connection
            connection.terminate()

    async def _release(self, connection: Any) -> None:
        """It is back in the pool, or closed: what was answered stands, whatever becomes of the connection."""
        try:
            await self._pool.release(connection, timeout=SETTLE_TIMEOUT_S)
        except TimeoutError:
            # Not even an order to stop is confirmed: the others lead to the same host, where each would be waited for.
            self._connector.give_up_all()
        except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError):
            end(connection)
        finally:
            self._capacity.release()


async def _finish(connection: Any) -> None:
    """A statement that was given up before it was run is at its end, so that a pooler may lend the server to others."""
    try:
        await connection.execute("", timeout=SETTLE_TIMEOUT_S)
    except Exception:
        end(connection)


def end(connection: Any) -> None:
    """It is closed; the server undoes what was left in it."""
    with contextlib.suppress(asyncpg.InterfaceError):  # the library has let go of it already
        connection.terminate()


async def _keep(connection: Any) -> None:
    """Return a connection to the pool as it is."""
