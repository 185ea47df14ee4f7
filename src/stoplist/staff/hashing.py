"""Password hashing: argon2id, with a bound on concurrent hashes, and equal work for known and unknown accounts.

Each hash takes 19 MiB and about 50 ms of a core. A process computes two at a time and queues the next ones; further
requests are refused, since hashing would otherwise be a way to slow the whole server down.
Parameters: OWASP's Password Storage Cheat Sheet.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import TypeVar

import argon2
from argon2.exceptions import VerificationError

from stoplist.errors import RateLimited

T = TypeVar("T")

PARAMETERS = argon2.Parameters(
    type=argon2.Type.ID,
    version=19,
    salt_len=16,
    hash_len=32,
    time_cost=2,
    memory_cost=19_456,
    parallelism=1,
)
MAX_CONCURRENT = 2
MAX_WAITING = 40  # a second's work

_BUSY = "Too many people are signing in right now. Try again in a second."


class Hashing:
    """argon2id in threads of its own, since it releases the interpreter lock."""

    def __init__(
        self,
        parameters: argon2.Parameters = PARAMETERS,
        *,
        max_concurrent: int = MAX_CONCURRENT,
        max_waiting: int = MAX_WAITING,
    ) -> None:
        self._hasher = argon2.PasswordHasher.from_parameters(parameters)
        self._threads = ThreadPoolExecutor(max_concurrent, thread_name_prefix="argon2")
        self._capacity, self._in_progress = max_concurrent + max_waiting, 0

    async def hash(self, password: bytes) -> str:
        """Return the hash of `password`, as it is stored. RateLimited if too many requests wait."""
        return await self._in_thread(lambda: self._hasher.hash(password))

    async def is_correct(self, password: bytes, password_hash: str | None) -> bool:
        """Return whether `password_hash` is of this password.

        Without a hash the same work is done, and the result is False. RateLimited if too many requests wait.
        """
        return await self._in_thread(lambda: self._verify(password, password_hash))

    async def run(self, work: Callable[[], T]) -> T:
        """Return the result of other long work on a password, which releases the interpreter lock, too."""
        return await self._in_thread(work)

    def is_outdated(self, password_hash: str) -> bool:
        """Return whether `password_hash` was made with other parameters than the current ones."""
        return self._hasher.check_needs_rehash(password_hash)

    async def _in_thread(self, work: Callable[[], T]) -> T:
        if self._in_progress >= self._capacity:
            raise RateLimited(_BUSY, retry_after_s=1)
        self._in_progress += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        finally:
            self._in_progress -= 1

    def _verify(self, password: bytes, password_hash: str | None) -> bool:
        dummy_hash = self._dummy_hash  # computed at the first check of any account, so that timing reveals nothing
        try:
            is_equal = self._hasher.verify(dummy_hash if password_hash is None else password_hash, password)
            return is_equal and password_hash is not None
        except (VerificationError, ValueError):  # a wrong password, or a malformed hash
            return False

    @cached_property
    def _dummy_hash(self) -> str:
        return self._hasher.hash("the password of nobody")
