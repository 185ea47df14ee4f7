"""Connection pools: bounded waiting, and replacement of connections that failed.

No session settings are used, so a connection returns to its pool without a reset, which saves a round trip per
statement. Each pool is a list: asyncpg's own pool starts a task for each release and wraps each connection, which takes
as long as a short statement (docs/decisions/0019-cost-of-a-request.md).
"""

import asyncio
import contextlib
from types import TracebackType
from typing import Any, NamedTuple

import asyncpg

from stoplist.db.host_selection import Connector
from stoplist.db.postgresql_errors import DRIVER_ERRORS, STANDBY_STATE, Phase, sqlstate_of, translated_errors
from stoplist.errors import StoreUnavailable

ACQUIRE_TIMEOUT_S = 5.0
STATEMENT_TIMEOUT_S = 10.0
SETTLE_TIMEOUT_S = 1.0
IDLE_S = 300.0
"""Close a connection after this time without use."""
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


class _Idle(NamedTuple):
    connection: Any
    since_s: float


class Connections:
    """A pool that opens connections when they are needed, and lends the one that was used last."""

    def __init__(self, connector: Connector, size: int, *, prepared: bool) -> None:
        """Create a pool of at most `size` connections. None is opened yet."""
        self._connector = connector
        self._options = {
            "command_timeout": STATEMENT_TIMEOUT_S,
            "statement_cache_size": 256 if prepared else 0,
        }
        self._loop = asyncio.get_running_loop()
        self._idle: list[_Idle] = []  # the longest unused first
        self._lent: set[Any] = set()
        self._idle_timer: asyncio.TimerHandle | None = None
        self._is_closing = False
        self.size = size
        self.capacity = BoundedSemaphore(size)

    async def connect_once(self) -> None:
        """Open one connection, and raise the driver's own error if that fails."""
        self._keep(await self._open())

    def acquire(self, *, is_of_feed: bool = False) -> "Loan":
        """Lend a connection for this context. Raise StoreUnavailable if none is free in time.

        After a timeout all connections are dropped, except with `is_of_feed`: then one node may hang, and others not.
        """
        return Loan(self, is_of_feed=is_of_feed)

    async def close(self) -> None:
        """Close all connections and refuse further callers. Give up on a server that does not answer in time."""
        if self._is_closing:
            return
        self._is_closing = True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ACQUIRE_TIMEOUT_S):
                for _ in range(self.size):  # all that are lent have come back then
                    await self.capacity.acquire(is_bounded=False)
                while self._idle:
                    with contextlib.suppress(*DRIVER_ERRORS):
                        await self._idle[-1].connection.close()
                    self._idle.pop()
        for connection in (*self._lent, *(idle.connection for idle in self._idle)):
            end(connection)
        if self._idle_timer:
            self._idle_timer.cancel()

    async def take(self) -> Any:
        """Take a connection out of the pool, whose capacity is the caller's until `give_back`."""
        # This is on the path of every request, so a timeout is set only if the caller must wait for capacity. The
        # connector itself limits the time to open a connection.
        with translated_errors(Phase.CONNECT):
            if not self.capacity.is_full:
                connection = await self._take()
            else:
                async with asyncio.timeout(0 if self._is_closing else ACQUIRE_TIMEOUT_S):
                    connection = await self._take()
        self._lent.add(connection)
        return connection

    def give_back(self, connection: Any) -> None:
        """Keep the connection for the next caller, unless it was closed or is in no state to be used again."""
        self._lent.discard(connection)
        if connection.is_closed() or connection.is_in_transaction():
            end(connection)
        else:
            self._keep(connection)
        self.capacity.release()

    async def settle(self, connection: Any, failure: BaseException, *, is_of_feed: bool) -> None:
        """Bring a connection whose statement failed to its end, or close it; drop all if the server seems dead."""
        if isinstance(failure, asyncio.CancelledError | TimeoutError):
            await asyncio.shield(finish(connection, SETTLE_TIMEOUT_S))
        if isinstance(failure, asyncpg.InternalClientError):
            end(connection)
        elif (isinstance(failure, TimeoutError) and not is_of_feed) or sqlstate_of(failure) == STANDBY_STATE:
            # A healthy server would have timed the statement out first, so treat this one as dead.
            self._connector.invalidate_all()

    async def _take(self) -> Any:
        await self.capacity.acquire()
        try:
            while self._idle:
                connection = self._idle.pop().connection
                if not connection.is_closed() and connection.generation == self._connector.generation:
                    return connection
                end(connection)
            return await self._open()
        except BaseException:
            self.capacity.release()
            raise

    async def _open(self) -> Any:
        """Open a connection that is still valid once it is open."""
        while not self._is_closing:
            connection = await self._connector(**self._options)
            if connection.generation == self._connector.generation:
                return connection
            end(connection)
        raise asyncpg.InterfaceError("the pool is closing")

    def _keep(self, connection: Any) -> None:
        self._idle.append(_Idle(connection, self._loop.time()))
        if not self._idle_timer:
            self._idle_timer = self._loop.call_later(IDLE_S, self._close_idle)

    def _close_idle(self) -> None:
        """Close the connections that were unused for IDLE_S, and come again when the next may be."""
        self._idle_timer = None
        now_s = self._loop.time()
        while self._idle and self._idle[0].since_s + IDLE_S <= now_s:
            end(self._idle.pop(0).connection)
        if self._idle:
            self._idle_timer = self._loop.call_at(self._idle[0].since_s + IDLE_S, self._close_idle)


class Loan:
    """The context in which a connection is lent. A class, since a generator costs each statement some microseconds."""

    __slots__ = ("_connection", "_is_of_feed", "_pool")

    def __init__(self, pool: Connections, *, is_of_feed: bool) -> None:
        self._pool, self._is_of_feed = pool, is_of_feed

    async def __aenter__(self) -> Any:
        self._connection = await self._pool.take()
        return self._connection

    async def __aexit__(
        self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if failure is not None:
                await self._pool.settle(self._connection, failure, is_of_feed=self._is_of_feed)
        finally:
            self._pool.give_back(self._connection)


async def finish(connection: Any, timeout_s: float) -> None:
    """End a statement that was cancelled, so that a connection pooler can lend the server to other clients."""
    try:
        await connection.execute("", timeout=timeout_s)
    except Exception:
        end(connection)


def end(connection: Any) -> None:
    """Close the connection; the server rolls back an open transaction."""
    with contextlib.suppress(asyncpg.InterfaceError):  # asyncpg has released it already
        connection.terminate()
