"""Valkey (or Redis) as the one place where all processes of a deployment count.

Each decision is one script at the server; those that are asked while an answer is under way go together in the next
round trip. Source: docs/interface.md section D8.
"""

import asyncio
from collections import deque
from contextlib import suppress
from importlib import resources
from typing import Any, NamedTuple

from redis.asyncio import Redis

from stoplist.errors import SettingsError
from stoplist.limits.connection import Call, StoreConnection, client_at, reason, refusal
from stoplist.limits.decision import RateDecision
from stoplist.limits.limiter import Log

ANSWER_TIMEOUT_S = 0.25
MAX_CALLS_PER_ROUND_TRIP = 256
SCRIPT = resources.files(__package__).joinpath("decide.lua").read_text("utf-8")

_SECOND_US = 1_000_000
_MANY = 1_000_000_000


class StoreLost(Exception):
    """The store did not decide, or not in time; the text says why, without a word of the address."""


class _Asked(NamedTuple):
    call: Call
    limit: int
    by_s: float
    answer: "asyncio.Future[RateDecision]"


class LimitStore:
    """The logs of all clients, at a server that every process reaches."""

    def __init__(self, client: Redis, *, script: str = SCRIPT) -> None:
        self._connection = StoreConnection(client, script)
        self._waiting: deque[_Asked] = deque()
        self._sending: asyncio.Task[None] | None = None

    @classmethod
    def at(cls, url: str) -> "LimitStore":
        """The store of a `redis://`, `rediss://` or `unix://` address; SettingsError where it is malformed."""
        return cls(client_at(url))

    async def acquire(self, own: Log, other: Log | None, *, limit: int, is_recorded: bool = True) -> RateDecision:
        """The decision, within 250 ms; else StoreLost, and nobody knows whether the request was recorded.

        With `is_recorded` false it is only looked whether the request would be accepted.
        """
        loop = asyncio.get_running_loop()
        keys = (store_key(own),) if other is None else (store_key(own), store_key(other))
        asked = _Asked((keys, (limit, int(is_recorded))), limit, loop.time() + ANSWER_TIMEOUT_S, loop.create_future())
        self._waiting.append(asked)
        if self._sending is None:
            self._sending = loop.create_task(self._send_waiting())
        return await asked.answer

    async def check(self) -> None:
        """StoreLost unless it answers and decides now; SettingsError where it answers that it never will."""
        try:
            await self.acquire(("check", "check"), None, limit=_MANY)
        except StoreLost as lost:
            if wrong := refusal(lost.__cause__):
                raise SettingsError(wrong) from None
            raise

    async def close(self) -> None:
        """Whoever still waits gets StoreLost."""
        if self._sending is not None:
            self._sending.cancel()
            with suppress(asyncio.CancelledError):
                await self._sending
        await self._connection.close()

    async def _send_waiting(self) -> None:
        try:
            while self._waiting:
                asked = [self._waiting.popleft() for _ in range(min(MAX_CALLS_PER_ROUND_TRIP, len(self._waiting)))]
                # Whoever has hung up meanwhile does not count.
                if together := [it for it in asked if not it.answer.done()]:
                    await self._settle(together)
        finally:
            self._sending = None
            while self._waiting:
                _lose(self._waiting.popleft(), asyncio.CancelledError())

    async def _settle(self, together: list[_Asked]) -> None:
        """Each of them has its decision, or knows that there is none."""
        try:
            async with asyncio.timeout_at(together[0].by_s):
                answers = await self._connection.call([asked.call for asked in together])
        except BaseException as error:  # whatever it is: those who wait must hear of it, and then count alone
            for asked in together:
                _lose(asked, error)
            if not isinstance(error, Exception):
                raise
        else:
            for asked, answer in zip(together, answers, strict=True):
                _deliver(asked, answer)


def store_key(log: Log) -> str:
    """`stoplist:kind:{client}:…`: of what stands in braces a cluster decides which machine holds the key.

    No two logs have the same, whatever a source looks like; a client's name has no braces.
    """
    kind, name, *rest = log
    return ":".join((f"stoplist:{kind}:{{{name}}}", *rest))


def _deliver(asked: _Asked, answer: Any) -> None:
    if isinstance(answer, BaseException):
        _lose(asked, answer)
        return
    try:
        accepted, counted, reset_us, retry_us = map(int, answer)
    except (TypeError, ValueError) as error:  # by something that is no such store
        _lose(asked, error)
        return
    remaining = max(0, asked.limit - counted - accepted)
    if not asked.answer.done():  # else whoever asked has hung up
        # Rounded up: a client that comes back after a whole number of seconds must not be a moment early.
        asked.answer.set_result(
            RateDecision(bool(accepted), asked.limit, remaining, -(-reset_us // _SECOND_US), -(-retry_us // _SECOND_US))
        )


def _lose(asked: _Asked, error: BaseException) -> None:
    if not asked.answer.done():
        lost = StoreLost(reason(error))
        lost.__cause__ = error
        asked.answer.set_exception(lost)
