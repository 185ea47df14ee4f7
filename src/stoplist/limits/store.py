"""Valkey (or Redis) as the store in which all processes of a deployment count.

Each decision is one script at the server. Decisions requested while an answer is awaited are sent together in the next
round trip. Source: docs/interface.md section D8.
"""

import asyncio
from collections import deque
from contextlib import suppress
from importlib import resources
from typing import Any, NamedTuple

from redis.asyncio import Redis

from stoplist.errors import SettingsError
from stoplist.limits.answer_timeout import answer_timeout
from stoplist.limits.connection import Call, StoreConnection, configuration_error, create_client, failure_reason
from stoplist.limits.decision import RateDecision
from stoplist.limits.limiter import Log, Wider

ANSWER_TIMEOUT_S = 0.25
MAX_CALLS_PER_ROUND_TRIP = 256
SCRIPT = resources.files(__package__).joinpath("decide.lua").read_text("utf-8")

_SECOND_US = 1_000_000
_UNLIMITED = 1_000_000_000


class StoreLost(Exception):
    """The store did not decide, or not in time. The text says why, without any part of the address."""


class _PendingCall(NamedTuple):
    call: Call
    limit: int
    answer: "asyncio.Future[RateDecision]"


class LimitStore:
    """The logs of all clients, at a server that every process reaches."""

    def __init__(self, client: Redis, *, script: str = SCRIPT) -> None:
        self._connection = StoreConnection(client, script)
        self._waiting: deque[_PendingCall] = deque()
        self._send_task: asyncio.Task[None] | None = None

    @classmethod
    def at(cls, url: str) -> "LimitStore":
        """Return the store of a `redis://`, `rediss://` or `unix://` URL; raise SettingsError if it is malformed."""
        return cls(create_client(url))

    async def acquire(
        self, own: Log, other: Log | None, *, limit: int, wider: Wider | None = None, is_recorded: bool = True
    ) -> RateDecision:
        """Return the decision, or raise StoreLost if the store takes 250 ms, delays of this process not counted.

        After StoreLost the request may or may not be recorded. With `is_recorded` false, only report whether the
        request would be accepted.
        """
        loop = asyncio.get_running_loop()
        keys = (store_key(own),) if other is None else (store_key(own), store_key(other))
        arguments: tuple[int, ...] = (limit, int(is_recorded))
        if wider is not None:
            keys, arguments = (*keys, store_key(wider.log)), (*arguments, wider.limit)
        pending = _PendingCall((keys, arguments), limit, loop.create_future())
        self._waiting.append(pending)
        if self._send_task is None:
            self._send_task = loop.create_task(self._send_waiting())
        return await pending.answer

    async def check(self) -> None:
        """Raise StoreLost unless the store decides now, or SettingsError if it refuses for good."""
        try:
            await self.acquire(("check", "check"), None, limit=_UNLIMITED)
        except StoreLost as lost:
            if error_text := configuration_error(lost.__cause__):
                raise SettingsError(error_text) from None
            raise

    async def close(self) -> None:
        """Close the connection; every pending call gets StoreLost."""
        if self._send_task is not None:
            self._send_task.cancel()
            with suppress(asyncio.CancelledError):
                await self._send_task
        await self._connection.close()

    async def _send_waiting(self) -> None:
        try:
            while self._waiting:
                batch = [self._waiting.popleft() for _ in range(min(MAX_CALLS_PER_ROUND_TRIP, len(self._waiting)))]
                # Requests whose client has disconnected are not sent, so they do not count.
                if live := [pending for pending in batch if not pending.answer.done()]:
                    await self._send(live)
        finally:
            self._send_task = None
            while self._waiting:
                _fail(self._waiting.popleft(), asyncio.CancelledError())

    async def _send(self, batch: list[_PendingCall]) -> None:
        """Send the calls and resolve each with its decision, or with the reason why there is none."""
        try:
            async with answer_timeout(ANSWER_TIMEOUT_S):
                answers = await self._connection.call([pending.call for pending in batch])
        except BaseException as error:  # every waiting request must be told, and then counts alone
            # Those that waited for this round trip have waited as long as its own calls.
            for pending in (*batch, *self._waiting):
                _fail(pending, error)
            self._waiting.clear()
            if not isinstance(error, Exception):
                raise
        else:
            for pending, answer in zip(batch, answers, strict=True):
                _resolve(pending, answer)


def store_key(log: Log) -> str:
    """Return `stoplist:kind:{client}:…`: a cluster chooses the machine of a key by the text in braces.

    Different logs have different keys, whatever the source looks like; a client's name has no braces.
    """
    kind, name, *rest = log
    return ":".join((f"stoplist:{kind}:{{{name}}}", *rest))


def _resolve(pending: _PendingCall, answer: Any) -> None:
    if isinstance(answer, BaseException):
        _fail(pending, answer)
        return
    try:
        accepted, counted, reset_us, retry_us = map(int, answer)
    except (TypeError, ValueError) as error:  # the answer is not from a limit store
        _fail(pending, error)
        return
    remaining = max(0, pending.limit - counted - accepted)
    if not pending.answer.done():  # otherwise the client has disconnected
        # Rounded up: a client that returns after this whole number of seconds must not be too early.
        pending.answer.set_result(
            RateDecision(
                bool(accepted), pending.limit, remaining, -(-reset_us // _SECOND_US), -(-retry_us // _SECOND_US)
            )
        )


def _fail(pending: _PendingCall, error: BaseException) -> None:
    if not pending.answer.done():
        lost = StoreLost(failure_reason(error))
        lost.__cause__ = error
        pending.answer.set_exception(lost)
