"""The one connection of a process to Valkey (or Redis): scripts go out together, and their answers come back in order.

A connection on which a round trip did not end is given up: no answer can be taken for that of another question.
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
"""The keys and the arguments of one call of the script."""
_Command = tuple[str | int, ...]

# What passes by itself; whatever else the store says is a setting that is wrong. Servers before 7.0 say it in the text.
_PASSING = re.compile(r"\b(BUSY|CLUSTERDOWN|LOADING|MASTERDOWN|MISCONF|NOREPLICAS|OOM|READONLY|TRYAGAIN)\b")
_DATABASE = re.compile(r"(?:/\d*)?")
_TIMEOUTS = (TimeoutError, StoreTimeout)
_CUT_OFF = (ssl.SSLEOFError, ssl.SSLZeroReturnError)


def client_at(url: str) -> Redis:
    """A client for a `redis://`, `rediss://` or `unix://` address; SettingsError where it is malformed."""
    try:
        if not _names_a_place(urlsplit(url)):
            raise ValueError
        client = Redis.from_url(
            url,
            # Whoever asks sets the time; these would set it once more for every answer.
            socket_timeout=None,
            socket_connect_timeout=None,
            # A decision whose answer was lost is not asked again: it would count twice.
            retry=Retry(NoBackoff(), 0),
            # Nothing is asked at the start of a connection that a narrow user may not.
            protocol=2,
        )
        line = client.connection_pool.make_connection()  # type: ignore[no-untyped-call] # looks at the options
        if isinstance(line, SSLConnection):
            line.ssl_context.get()  # looks at the files
    except (ValueError, TypeError, RedisError, OSError):
        raise SettingsError(
            "STOPLIST_LIMITS_URL is malformed: write redis://:PASSWORD@HOST:PORT/DATABASE, rediss://… for TLS or "
            "unix://:PASSWORD@/PATH, with special characters in the password percent-encoded. What follows a ? are "
            "options such as ssl_ca_certs=PATH, a file that this program can read."
        ) from None
    return client


def _names_a_place(parts: SplitResult) -> bool:
    # The client would take this machine's standard port and database 0 for what it does not understand.
    if parts.scheme == "unix":
        return len(parts.path) > 1
    return bool(parts.hostname) and _DATABASE.fullmatch(parts.path) is not None


class StoreConnection:
    """Calls one script at the store; who calls waits for the answer before the next call."""

    def __init__(self, client: Redis, script: str) -> None:
        self._line: AbstractConnection = client.connection_pool.make_connection()  # type: ignore[no-untyped-call]
        self._script = script
        self._sha = hashlib.sha1(script.encode(), usedforsecurity=False).hexdigest()

    async def call(self, calls: Sequence[Call]) -> list[Any]:
        """What the script returned for each, or the ResponseError that it ended in; any other error ends them all."""
        commands: list[_Command] = [("EVALSHA", self._sha, len(keys), *keys, *arguments) for keys, arguments in calls]
        answers = await self._round_trip(commands)
        # A server that was started anew does not know the script, and then knows it for none of them.
        if isinstance(answers[0], NoScriptError):
            loaded, *answers = await self._round_trip([("SCRIPT", "LOAD", self._script), *commands])
            if isinstance(loaded, ResponseError):
                raise loaded
        return answers

    async def close(self) -> None:
        await self._line.disconnect()

    async def _round_trip(self, commands: Sequence[_Command]) -> list[Any]:
        line = self._line
        try:
            # Closed by the server meanwhile, which is no reason yet to count alone.
            if line.is_connected and await line.can_read():
                await line.disconnect(nowait=True)
            await line.connect()  # type: ignore[no-untyped-call]
            await line.send_packed_command(line.pack_commands(commands))
            return [await self._answer() for _ in commands]
        except BaseException:
            await line.disconnect(nowait=True)
            raise

    async def _answer(self) -> Any:
        try:
            return await self._line.read_response(disconnect_on_error=False)
        except ResponseError as error:
            return error


def refusal(error: BaseException | None) -> str | None:
    """What is wrong with the settings, if the store will go on to answer with this error; else None."""
    if isinstance(_tls_error(error), ssl.SSLError):
        return (
            "The limit store of STOPLIST_LIMITS_URL does not prove by TLS who it is: that port must speak TLS, and its "
            "certificate must be valid, for the host in that address, and from an authority that this machine trusts "
            "or that ?ssl_ca_certs=PATH names."
        )
    if isinstance(error, AuthenticationError) or (isinstance(error, ResponseError) and not _passes(error)):
        return (
            f"The limit store of STOPLIST_LIMITS_URL refuses ({reason(error)}): check user, password and database in "
            "that address, that the user may run scripts (EVALSHA, SCRIPT LOAD, TIME, ZADD, ZCARD, ZRANGE, "
            "ZREMRANGEBYSCORE, DEL and PEXPIRE on stoplist:*), and that it is one primary, or a proxy before a cluster."
        )
    return None


def reason(error: BaseException) -> str:
    """Why there was no decision, in a few words of ours: those of the error may quote the address."""
    if isinstance(error, _TIMEOUTS):
        return "no answer within 250 ms"
    if tls_error := _tls_error(error):
        return f"TLS: {tls_error.reason}"
    return type(error).__name__


def _passes(error: ResponseError) -> bool:
    return _PASSING.search(f"{error.status_code} {error}") is not None


def _tls_error(error: BaseException | None) -> ssl.SSLError | None:
    """The failed handshake, of which the client's error is only the wrapping."""
    cause = error and (error.__cause__ or error.__context__)
    return cause if isinstance(cause, ssl.SSLError) and not isinstance(cause, _CUT_OFF) else None
