"""To which PostgreSQL a connection goes: to the first of its hosts that answers, takes writes and keeps its word."""

import asyncio
import logging
import re
import ssl
from collections.abc import Iterator
from typing import Any

import asyncpg

from stoplist.db.postgresql_errors import state_of

MINIMUM_VERSION = 15
CONNECT_TIMEOUT_S = 5.0

_LOG = logging.getLogger(__name__)

_HOSTS = re.compile(r"(postgresql://(?:[^/?#]*@)?)([^/?#]*)(.*)", re.DOTALL)

# Asked of each connection, as one statement: a role may set its own defaults, and a host may have become a standby.
_CONDITIONS = {
    "NOT pg_is_in_recovery()": (
        "This PostgreSQL is a standby, and a standby is never read from. Name the primary in STOPLIST_DATABASE_URL, or "
        "all hosts with commas between (postgresql://USER@HOST,HOST/NAME): the one that takes writes is found."
    ),
    "current_setting('synchronous_commit') <> 'off'": (
        "PostgreSQL has synchronous_commit = off, so a crash could lose an answer already given. "
        "Set it to on for this database and role (ALTER DATABASE … SET synchronous_commit = on)."
    ),
}
# A pooler tells every client a process number of its own making.
_IS_DIRECT = "pg_backend_pid() = {}"
_POOLED = (
    "There is a connection pooler before PostgreSQL, and a statement that was prepared through it may meet another one "
    "of the same name: set STOPLIST_DATABASE_PREPARED=off, or connect to PostgreSQL itself."
)


class Unfit(asyncpg.InterfaceError):
    """A server that must not be used: refused at the start, and the store's trouble if it becomes so later."""


class PostgresqlConnection(asyncpg.Connection):
    """A connection that knows whether others have been given up since it was made."""

    generation = 0


class Connector:
    """Makes connections to the one of the hosts that is fit; begins with the one that was so last."""

    def __init__(self, url: str, *, prepared: bool) -> None:
        self._urls = list(_one_by_one(url))
        self._first = 0
        self._prepared = prepared
        self._told: str | None = None
        self.generation = 0

    def give_up_all(self) -> None:
        """Whatever is connected now must be replaced before it is used again."""
        self.generation += 1

    async def __call__(self, *_: Any, **options: Any) -> PostgresqlConnection:
        """A new connection. Raises what the last host answered, or Unfit if any host was."""
        failure: Exception | None = None
        count = len(self._urls)
        for at in [(self._first + step) % count for step in range(count)]:
            try:
                connection = await self._connect(self._urls[at], **options)
            except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
                if isinstance(error, ValueError):
                    raise
                failure = failure if isinstance(failure, Unfit) else error
                self._tell(error)
                # Before the next one is tried: whoever has no time left for it lets the others begin there.
                self._first = (at + 1) % count
            else:
                self._first, self._told = at, None
                return connection
        raise failure or AssertionError

    def _tell(self, error: Exception) -> None:
        """Say once why a server that answers is not used; whoever asks learns only that there is trouble."""
        if isinstance(error, Unfit) and str(error) != self._told:
            self._told = str(error)
            _LOG.warning("A PostgreSQL that answers is not used", extra={"fields": {"why": self._told}})

    async def _connect(self, url: str, **options: Any) -> PostgresqlConnection:
        # Each host has its share of the time, for one that is cut off answers nothing at all.
        timeout_s = CONNECT_TIMEOUT_S / len(self._urls)
        generation = self.generation
        # What the address asks of a host is asked below; the library trusts what a pooler remembers of it.
        asked: dict[str, Any] = {
            "connection_class": PostgresqlConnection,
            **options,
            "timeout": timeout_s,
            "target_session_attrs": "any",
        }
        async with asyncio.timeout(timeout_s):
            connection: PostgresqlConnection = await asyncpg.connect(url, **asked)
            try:
                await _check(connection, prepared=self._prepared, timeout_s=timeout_s)
            except BaseException:
                connection.terminate()
                raise
        connection.generation = generation
        return connection


async def _check(connection: Any, *, prepared: bool, timeout_s: float) -> None:
    """Refuse a server that is too old, is a standby, forgets commits, or is not the one that statements will reach."""
    version = connection.get_server_version().major
    if version < MINIMUM_VERSION:
        raise Unfit(f"This is PostgreSQL {version}; Stoplist needs {MINIMUM_VERSION} or newer.")
    conditions = dict(_CONDITIONS)
    if prepared:
        conditions[_IS_DIRECT.format(connection.get_server_pid())] = _POOLED
    if await _holds(connection, " AND ".join(conditions), timeout_s):
        return
    for condition, text in conditions.items():
        if not await _holds(connection, condition, timeout_s):
            raise Unfit(text)


async def _holds(connection: Any, condition: str, timeout_s: float) -> bool:
    # One round trip and nothing prepared: without values the library sends the text alone, and returns how many rows.
    return bool(await connection.execute(f"SELECT WHERE {condition}", timeout=timeout_s) == "SELECT 1")


def _one_by_one(url: str) -> Iterator[str]:
    """The same address once for each host that it names."""
    parts = _HOSTS.fullmatch(url)
    if parts is None:
        yield url
        return
    start, hosts, rest = parts.groups()
    for host in hosts.split(","):
        yield f"{start}{host}{rest}"


def reason(error: Exception) -> str:
    """Why a connection failed, in words that repeat no secret."""
    if isinstance(error, ssl.SSLError):
        why = getattr(error, "verify_message", "") or getattr(error, "reason", "") or type(error).__name__
        return f"TLS failed ({why}): sslrootcert in the address names the authority to trust"
    # The words about a malformed address quote it, and a password that is not encoded may lie anywhere in it.
    if isinstance(error, ValueError):
        return "the address is malformed (special characters in its password must be percent-encoded)"
    if isinstance(error, TimeoutError):
        return f"it does not answer within {CONNECT_TIMEOUT_S:g} s"
    return str(error) or f"{type(error).__name__} ({state_of(error)})"
