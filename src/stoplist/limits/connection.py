"""A process's only connection to Valkey (or Redis): scripts are sent together, answers come back in order.

A connection on which a round trip did not complete is closed, so that no answer is taken for that of another call.
Why not a pool: docs/decisions/0011-shared-limits.md.
"""

import hashlib
import re
import ssl
from collections.abc import Sequence
from typing import Any
from urllib.parse import SplitResult, urlsplit

from redis.asyncio import Redis
from redis.asyncio.connection import AbstractConnection, SSLConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import AuthenticationError, NoScriptError, RedisError, ResponseError
from redis.exceptions import TimeoutError as StoreTimeout

from stoplist.errors import SettingsError

Call = tuple[Sequence[str], Sequence[int]]
"""The keys and arguments of one call of the script."""
_Command = tuple[str | int, ...]

# Transient errors; any other error of the store means a wrong setting. Before version 7.0 the code is in the text.
_TRANSIENT = re.compile(r"\b(BUSY|CLUSTERDOWN|LOADING|MASTERDOWN|MISCONF|NOREPLICAS|OOM|READONLY|TRYAGAIN)\b")
_DATABASE = re.compile(r"(?:/\d*)?")
_TIMEOUTS = (TimeoutError, StoreTimeout)
_CONNECTION_CUT = (ssl.SSLEOFError, ssl.SSLZeroReturnError)


def create_client(url: str) -> Redis:
    """Return a client for a `redis://`, `rediss://` or `unix://` URL; raise SettingsError if it is malformed."""
    try:
        if not _is_complete_address(urlsplit(url)):
            raise ValueError
        client = Redis.from_url(
            url,
            # The caller sets one timeout; these would apply again to every answer.
            socket_timeout=None,
            socket_connect_timeout=None,
            # A decision whose answer was lost is not requested again: it would count twice.
            retry=Retry(NoBackoff(), 0),
            # Sends nothing at the start that a user with few rights may not send.
            protocol=2,
        )
        connection = client.connection_pool.make_connection()  # type: ignore[no-untyped-call]  # validates the options
        if isinstance(connection, SSLConnection):
            connection.ssl_context.get()  # reads the files
    except (ValueError, TypeError, RedisError, OSError):
        raise SettingsError(
            "STOPLIST_LIMITS_URL is malformed: write redis://:PASSWORD@HOST:PORT/DATABASE, rediss://… for TLS or "
            "unix://:PASSWORD@/PATH, with special characters in the password percent-encoded. Options follow a ?, "
            "such as ssl_ca_certs=PATH, a file that this program can read."
        ) from None
    return client


def _is_complete_address(parts: SplitResult) -> bool:
    # For parts it does not understand, the client would use this machine, the standard port and database 0.
    if parts.scheme == "unix":
        return len(parts.path) > 1
    return bool(parts.hostname) and _DATABASE.fullmatch(parts.path) is not None


class StoreConnection:
    """Calls one script at the store. The caller waits for the answers before the next call."""

    def __init__(self, client: Redis, script: str) -> None:
        self._connection: AbstractConnection = client.connection_pool.make_connection()  # type: ignore[no-untyped-call]
        self._script = script
        self._sha = hashlib.sha1(script.encode(), usedforsecurity=False).hexdigest()

    async def call(self, calls: Sequence[Call]) -> list[Any]:
        """Return for each call the script's answer, or the ResponseError that it ended in; raise any other error."""
        commands: list[_Command] = [("EVALSHA", self._sha, len(keys), *keys, *arguments) for keys, arguments in calls]
        answers = await self._round_trip(commands)
        # A restarted server does not know the script, so all calls have failed.
        if isinstance(answers[0], NoScriptError):
            loaded, *answers = await self._round_trip([("SCRIPT", "LOAD", self._script), *commands])
            if isinstance(loaded, ResponseError):
                raise loaded
        return answers

    async def close(self) -> None:
        await self._connection.disconnect()

    async def _round_trip(self, commands: Sequence[_Command]) -> list[Any]:
        connection = self._connection
        try:
            # The server closed the connection meanwhile: reconnect before counting alone.
            if connection.is_connected and await connection.can_read():
                await connection.disconnect(nowait=True)
            await connection.connect()  # type: ignore[no-untyped-call]
            await connection.send_packed_command(connection.pack_commands(commands))
            return [await self._answer() for _ in commands]
        except BaseException:
            await connection.disconnect(nowait=True)
            raise

    async def _answer(self) -> Any:
        try:
            return await self._connection.read_response(disconnect_on_error=False)
        except ResponseError as error:
            return error


def configuration_error(error: BaseException | None) -> str | None:
    """Return what is wrong with the settings if the store will always answer with this error, else None."""
    if isinstance(_tls_error(error), ssl.SSLError):
        return (
            "The limit store of STOPLIST_LIMITS_URL cannot be verified by TLS: its port must speak TLS, and its "
            "certificate must be valid, for the host in that address, and from an authority that this machine trusts "
            "or that ?ssl_ca_certs=PATH names."
        )
    if isinstance(error, AuthenticationError) or (isinstance(error, ResponseError) and not _is_transient(error)):
        return (
            f"The limit store of STOPLIST_LIMITS_URL refuses ({failure_reason(error)}): check user, password and "
            "database in that address, that the user may run scripts (EVALSHA, SCRIPT LOAD, TIME, ZADD, ZCARD, ZRANGE, "
            "ZREMRANGEBYSCORE, DEL and PEXPIRE on stoplist:*), and that it is one primary, or a proxy before a cluster."
        )
    return None


def failure_reason(error: BaseException) -> str:
    """Return in a few words why there was no decision. The text of the error is not used: it may quote the address."""
    if isinstance(error, _TIMEOUTS):
        return "no answer within 250 ms"
    if tls_error := _tls_error(error):
        return f"TLS: {tls_error.reason}"
    return type(error).__name__


def _is_transient(error: ResponseError) -> bool:
    return _TRANSIENT.search(f"{error.status_code} {error}") is not None


def _tls_error(error: BaseException | None) -> ssl.SSLError | None:
    """Return the failed handshake, which the client's error only wraps."""
    cause = error and (error.__cause__ or error.__context__)
    return cause if isinstance(cause, ssl.SSLError) and not isinstance(cause, _CONNECTION_CUT) else None
