"""Chooses the PostgreSQL host: the first that answers, is a primary, and commits durably."""

import asyncio
import logging
import re
import ssl
from collections.abc import Iterator
from typing import Any

import asyncpg

from stoplist.db.postgresql_errors import sqlstate_of

MINIMUM_VERSION = 15
CONNECT_TIMEOUT_S = 5.0

_LOG = logging.getLogger(__name__)

_HOSTS = re.compile(r"(postgresql://(?:[^/?#]*@)?)([^/?#]*)(.*)", re.DOTALL)

# Tested on each connection, in one statement: a role may set its own defaults, and a host may have become a standby.
# `{setting}` is the one that has the URL.
_CONDITIONS = {
    "NOT pg_is_in_recovery()": (
        "This PostgreSQL is a standby, and Stoplist never reads from a standby. Name the primary in "
        "{setting}, or all hosts, separated by commas (postgresql://USER@HOST,HOST/NAME): Stoplist then finds the "
        "primary."
    ),
    "current_setting('synchronous_commit') <> 'off'": (
        "PostgreSQL has synchronous_commit = off, so a crash could lose an answer already given. "
        "Set it to on for this database and role (ALTER DATABASE … SET synchronous_commit = on)."
    ),
}
# A pooler reports a process number of its own to each client.
_IS_DIRECT = "pg_backend_pid() = {}"
_POOLED = (
    "There is a connection pooler in front of PostgreSQL, and prepared statements of different clients may collide "
    "there: set STOPLIST_DATABASE_PREPARED=off, or connect to PostgreSQL directly."
)


class UnsuitableServer(asyncpg.InterfaceError):
    """The server must not be used. At startup this is a settings error, later StoreUnavailable."""


class PostgresqlConnection(asyncpg.Connection):
    """A connection with the connector's generation at the time it was opened."""

    generation = 0


class Connector:
    """Opens connections to the first suitable host, beginning with the one used last.

    `setting` is the one that errors name.
    """

    def __init__(self, url: str, *, prepared: bool, setting: str = "STOPLIST_DATABASE_URL") -> None:
        self._urls = list(_url_per_host(url))
        self._first_host = 0
        self._prepared, self._setting = prepared, setting
        self._logged_reason: str | None = None
        self.generation = 0

    def invalidate_all(self) -> None:
        """Invalidate all open connections: each is replaced before its next use."""
        self.generation += 1

    async def __call__(self, *_: Any, **options: Any) -> PostgresqlConnection:
        """Open a connection. Raise the error of the last host, or UnsuitableServer if any host was unsuitable."""
        failure: Exception | None = None
        count = len(self._urls)
        for at in [(self._first_host + step) % count for step in range(count)]:
            try:
                connection = await self._connect(self._urls[at], **options)
            except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
                if isinstance(error, ValueError):
                    raise
                failure = failure if isinstance(failure, UnsuitableServer) else error
                self._log_unsuitable(error)
                # Set before the next host is tried, so that after a timeout the next caller begins there.
                self._first_host = (at + 1) % count
            else:
                self._first_host, self._logged_reason = at, None
                return connection
        raise failure or AssertionError

    def _log_unsuitable(self, error: Exception) -> None:
        """Log once why a server that answers is not used; callers see only a generic error."""
        if isinstance(error, UnsuitableServer) and str(error) != self._logged_reason:
            self._logged_reason = str(error)
            _LOG.warning("PostgreSQL answers but is not used", extra={"fields": {"why": self._logged_reason}})

    async def _connect(self, url: str, **options: Any) -> PostgresqlConnection:
        # Each host gets a share of the time, because a host that is cut off never answers.
        timeout_s = CONNECT_TIMEOUT_S / len(self._urls)
        generation = self.generation
        # `_check` below tests the role of the host; asyncpg would trust what a pooler remembers.
        connect_options: dict[str, Any] = {
            "connection_class": PostgresqlConnection,
            **options,
            "timeout": timeout_s,
            "target_session_attrs": "any",
        }
        async with asyncio.timeout(timeout_s):
            connection: PostgresqlConnection = await asyncpg.connect(url, **connect_options)
            try:
                await _check(connection, prepared=self._prepared, setting=self._setting, timeout_s=timeout_s)
            except BaseException:
                connection.terminate()
                raise
        connection.generation = generation
        return connection


async def _check(connection: Any, *, prepared: bool, setting: str, timeout_s: float) -> None:
    """Raise UnsuitableServer if the server is too old, a standby, loses commits, or is an unexpected pooler."""
    version = connection.get_server_version().major
    if version < MINIMUM_VERSION:
        raise UnsuitableServer(f"This is PostgreSQL {version}; Stoplist needs {MINIMUM_VERSION} or newer.")
    conditions = dict(_CONDITIONS)
    if prepared:
        conditions[_IS_DIRECT.format(connection.get_server_pid())] = _POOLED
    if await _holds(connection, " AND ".join(conditions), timeout_s):
        return
    for condition, text in conditions.items():
        if not await _holds(connection, condition, timeout_s):
            raise UnsuitableServer(text.format(setting=setting))


async def _holds(connection: Any, condition: str, timeout_s: float) -> bool:
    # One round trip and nothing prepared: without values asyncpg sends the plain text and returns the row count.
    return bool(await connection.execute(f"SELECT WHERE {condition}", timeout=timeout_s) == "SELECT 1")


def _url_per_host(url: str) -> Iterator[str]:
    """Yield the URL once per host in it, with that host alone."""
    parts = _HOSTS.fullmatch(url)
    if parts is None:
        yield url
        return
    start, hosts, rest = parts.groups()
    for host in hosts.split(","):
        yield f"{start}{host}{rest}"


def failure_reason(error: Exception) -> str:
    """Return why a connection failed, without repeating a secret."""
    if isinstance(error, ssl.SSLError):
        why = getattr(error, "verify_message", "") or getattr(error, "reason", "") or type(error).__name__
        return f"TLS failed ({why}): sslrootcert in the URL names the authority to trust"
    # The message about a malformed URL quotes it, and an unencoded password may be anywhere in it.
    if isinstance(error, ValueError):
        return "the URL is malformed (special characters in its password must be percent-encoded)"
    if isinstance(error, TimeoutError):
        return f"no answer within {CONNECT_TIMEOUT_S:g} s"
    return str(error) or f"{type(error).__name__} ({sqlstate_of(error)})"
