"""Passwords are hashed by argon2id, a few at a time, and strangers cost as much as anybody."""

import asyncio
import threading

import argon2
import pytest

from stoplist.errors import RateLimited
from stoplist.staff.hashing import AT_A_TIME, MOST_WAITING, PARAMETERS, Hashing
from tests.staff.staff_fixture import CHEAP

PASSWORD = "пароль, длинный".encode()


def test_the_parameters_are_those_that_owasp_names() -> None:
    """argon2id, 19 MiB, two rounds, one lane: about 50 ms."""
    assert (PARAMETERS.type, PARAMETERS.memory_cost) == (argon2.Type.ID, 19 * 1024)
    assert (PARAMETERS.time_cost, PARAMETERS.parallelism) == (2, 1)


def test_a_hash_is_of_one_password() -> None:
    """Salted, and by the parameters of the release."""

    async def main() -> None:
        hashing = Hashing()
        kept = await hashing.hash(PASSWORD)
        assert kept.startswith("$argon2id$v=19$m=19456,t=2,p=1$")
        assert await hashing.is_right(PASSWORD, kept)
        assert not await hashing.is_right(PASSWORD + b"!", kept)
        assert not hashing.is_outdated(kept)
        assert Hashing(CHEAP).is_outdated(kept)

    asyncio.run(main())


@pytest.mark.parametrize("kept", [None, "", "plain", "$argon2id$v=19$m=8,t=1,p=1$broken", "ü"])
def test_nothing_is_right_without_a_hash(kept: str | None) -> None:
    """The password of nobody included."""

    async def main() -> None:
        hashing = Hashing(CHEAP)
        for password in (PASSWORD, b"", b"the password of nobody"):
            assert not await hashing.is_right(password, kept)

    asyncio.run(main())


def test_a_few_at_a_time_and_no_more_wait_than_a_second_can_do() -> None:
    """Whoever comes then is told to come again."""
    running, most_at_once, lock = 0, 0, threading.Lock()
    all_are_at_it, go = threading.Event(), threading.Event()

    class Watched(Hashing):
        def _verify(self, password: bytes, password_hash: str | None) -> bool:
            nonlocal running, most_at_once
            with lock:
                running += 1
                most_at_once = max(most_at_once, running)
                if running == AT_A_TIME:
                    all_are_at_it.set()
            go.wait()
            with lock:
                running -= 1
            return super()._verify(password, password_hash)

    async def main() -> None:
        hashing = Watched(CHEAP)
        waiting = [asyncio.ensure_future(hashing.is_right(PASSWORD, None)) for _ in range(AT_A_TIME + MOST_WAITING)]
        await asyncio.sleep(0)
        with pytest.raises(RateLimited) as failure:
            await hashing.is_right(PASSWORD, None)
        assert failure.value.retry_after_s == 1
        # Let go before, the first could be through before the second thread has begun.
        assert await asyncio.to_thread(all_are_at_it.wait, 60)
        go.set()
        await asyncio.gather(*waiting)
        assert not await hashing.is_right(PASSWORD, None)

    asyncio.run(main())
    assert most_at_once == AT_A_TIME
