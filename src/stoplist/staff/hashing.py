"""Passwords as they are kept: argon2id, a few at a time, and as much work for a stranger as for a known account.

Each hash takes 19 MiB and about 50 ms of a core: two at a time in a process, the next ones wait, and beyond those
nobody is let in, for it would be a lever to hold up everything else. Parameters: OWASP's Password Storage Cheat Sheet.
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
AT_A_TIME = 2
MOST_WAITING = 40  # a second's work

_BUSY = "Too many people sign in at this moment: try again in a second."


class Hashing:
    """argon2id with these parameters, in threads of its own: it gives up the interpreter lock."""

    def __init__(
        self,
        parameters: argon2.Parameters = PARAMETERS,
        *,
        at_a_time: int = AT_A_TIME,
        most_waiting: int = MOST_WAITING,
    ) -> None:
        self._hasher = argon2.PasswordHasher.from_parameters(parameters)
        self._threads = ThreadPoolExecutor(at_a_time, thread_name_prefix="argon2")
        self._most, self._under_way = at_a_time + most_waiting, 0

    async def hash(self, password: bytes) -> str:
        """What is kept of `password`. RateLimited where too many wait."""
        return await self._in_thread(lambda: self._hasher.hash(password))

    async def is_right(self, password: bytes, password_hash: str | None) -> bool:
        """Whether that hash is of this password; without a hash the same work is done, and the answer is no."""
        return await self._in_thread(lambda: self._verify(password, password_hash))

    def is_outdated(self, password_hash: str) -> bool:
        """Whether it was made with other parameters than these."""
        return self._hasher.check_needs_rehash(password_hash)

    async def _in_thread(self, work: Callable[[], T]) -> T:
        if self._under_way >= self._most:
            raise RateLimited(_BUSY, retry_after_s=1)
        self._under_way += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        finally:
            self._under_way -= 1

    def _verify(self, password: bytes, password_hash: str | None) -> bool:
        nobodys = self._nobodys  # made at the first password, whoever's that is: so that time does not tell
        try:
            is_equal = self._hasher.verify(nobodys if password_hash is None else password_hash, password)
            return is_equal and password_hash is not None
        except (VerificationError, ValueError):  # wrong, or no hash at all
            return False

    @cached_property
    def _nobodys(self) -> str:
        return self._hasher.hash("the password of nobody")
