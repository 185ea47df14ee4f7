"""Connection pools: bounded waiting, and replacement of connections that failed.

No session settings are used, so a connection returns to its pool without a reset, which saves a round trip per
statement.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from typing import Any

import asyncpg

from stoplist.db.host_selection import Connector, PostgresqlConnection
from stoplist.db.postgresql_errors import (
    DRIVER_ERRORS,
    STANDBY_STATE,
    is_store_failure,
    sqlstate_of,
    store_unavailable,
    translated_errors,
)
from stoplist.errors import StoreUnavailable

ACQUIRE_TIMEOUT_S = 5.0
STATEMENT_TIMEOUT_S = 10.0
SETTLE_TIMEOUT_S = 1.0
MAX_WAITING_REQUESTS = 1_000
"""The most requests that wait for a connection of one pool: what ten slow ones (50 ms a statement) serve in 5 s."""


class BoundedSemaphore:
    """A semaphore with a bounded queue: waiters are served in order, and refused at once if too many wait."""

    def __init__(self, size: int) -> None:
        self._free = asyncio.Semaphore(size)
        self._waiting = 0

    @property
    def is_full(self) -> bool:
        return self._free.locked()

    async def acquire(self, *, is_bounded: bool = True) -> None:
        """Raise StoreUnavailable at once if too many wait. With `is_bounded` False the caller bounds its own queue."""
        if is_bounded and self._waiting >= MAX_WAITING_REQUESTS:
            raise StoreUnavailable("Too many requests are waiting for the database: try again shortly.")
        self._waiting += 1
        try:
            await self._free.acquire()
        finally:
            self._waiting -= 1

    def release(self) -> None:
        self._free.release()

    @contextlib.asynccontextmanager
    async def slot(self) -> AsyncGenerator[None, None]:
        """Hold one slot within this context. Raise StoreUnavailable if none is free in time."""
        with translated_errors(is_certain=True):
            async with asyncio.timeout(ACQUIRE_TIMEOUT_S):
                await self.acquire()
        try:
            yield
        finally:
            self.release()


class Connections:
    """A pool that opens connections when they are needed."""

    def __init__(self, connector: Connector, pool: "asyncpg.Pool[asyncpg.Record]") -> None:
        self._connector, self._pool = connector, pool
        self._capacity = BoundedSemaphore(pool.get_max_size())

    @classmethod
    async def create(cls, connector: Connector, size: int, *, prepared: bool) -> "Connections":
        """Create a pool of at most `size` connections. None is opened yet."""
        pool = await asyncpg.create_pool(
            connect=connector,
            connection_class=PostgresqlConnection,
            min_size=0,
            max_size=size,
            reset=_no_reset,
            command_timeout=STATEMENT_TIMEOUT_S,
            statement_cache_size=256 if prepared else 0,
        )
        return cls(connector, pool)

    async def connect_once(self) -> None:
        """Open one connection, and raise the driver's own error if that fails."""
        await self._pool.release(await self._pool.acquire())

    @contextlib.asynccontextmanager
    async def acquire(self) -> AsyncGenerator[Any, None]:
        """Lend a connection for this context. Raise StoreUnavailable if none is free in time."""
        connection = await self._acquire_in_time()
        try:
            yield connection
        except BaseException as failure:
            if isinstance(failure, asyncio.CancelledError):
                await asyncio.shield(_finish(connection))
            elif isinstance(failure, asyncpg.InternalClientError):
                end(connection)
            elif isinstance(failure, TimeoutError) or sqlstate_of(failure) == STANDBY_STATE:
                # A healthy server would have timed the statement out first, so treat this one as dead and drop all
                # connections.
                self._connector.invalidate_all()
            raise
        finally:
            await self._release(connection)

    async def close(self) -> None:
        """Close all connections and refuse further callers. Give up on a server that does not answer in time."""
        with contextlib.suppress(TimeoutError, OSError):
            await asyncio.wait_for(self._pool.close(), ACQUIRE_TIMEOUT_S)

    async def _acquire_in_time(self) -> Any:
        # This is on the path of every request, so a timeout is set only if the caller must wait for capacity. The
        # connector itself limits the time to open a connection.
        try:
            if not self._capacity.is_full:
                return await self._acquire()
            async with asyncio.timeout(ACQUIRE_TIMEOUT_S):
                return await self._acquire()
        except DRIVER_ERRORS as error:
            if not is_store_failure(error):
                raise
            raise store_unavailable(error, is_certain=True) from error

    async def _acquire(self) -> Any:
        await self._capacity.acquire()
        try:
            return await self._acquire_current()
        except BaseException:
            self._capacity.release()
            raise

    async def _acquire_current(self) -> Any:
        """Acquire a connection of the current generation, and close older ones."""
        while True:
            connection: Any = await self._pool.acquire()
            if connection.generation == self._connector.generation:
                return connection
            connection.terminate()

    async def _release(self, connection: Any) -> None:
        """Return a connection to the pool, or close it if that fails. The result of its statement stands either way."""
        try:
            await self._pool.release(connection, timeout=SETTLE_TIMEOUT_S)
        except TimeoutError:
            # The server does not even confirm a cancel. The other connections lead to the same host and would hang too.
            self._connector.invalidate_all()
        except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError):
            end(connection)
        finally:
            self._capacity.release()


async def _finish(connection: Any) -> None:
    """End a statement that was cancelled, so that a connection pooler can lend the server to other clients."""
    try:
        await connection.execute("", timeout=SETTLE_TIMEOUT_S)
    except Exception:
        end(connection)


def end(connection: Any) -> None:
    """Close the connection; the server rolls back an open transaction."""
    with contextlib.suppress(asyncpg.InterfaceError):  # asyncpg has released it already
        connection.terminate()


async def _no_reset(connection: Any) -> None:
    """Reset nothing when a connection returns to the pool."""
