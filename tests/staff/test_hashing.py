"""Passwords are hashed by argon2id, a few at a time, with the same work for unknown accounts."""

import asyncio
import threading

import argon2
import pytest

from stoplist.errors import RateLimited
from stoplist.staff.hashing import MAX_CONCURRENT, MAX_WAITING, PARAMETERS, Hashing
from tests.deployment import in_own_loop
from tests.staff.staff_fixture import CHEAP

pytestmark = pytest.mark.interpreter

PASSWORD = "пароль, длинный".encode()


def test_the_parameters_are_those_of_owasp() -> None:
    """argon2id, 19 MiB, two rounds, one lane: about 50 ms."""
    assert (PARAMETERS.type, PARAMETERS.memory_cost) == (argon2.Type.ID, 19 * 1024)
    assert (PARAMETERS.time_cost, PARAMETERS.parallelism) == (2, 1)


@in_own_loop
async def test_a_hash_matches_only_its_password() -> None:
    """Hashes are made with the parameters of the release."""
    hashing = Hashing()
    kept = await hashing.hash(PASSWORD)
    assert kept.startswith("$argon2id$v=19$m=19456,t=2,p=1$")
    assert await hashing.is_correct(PASSWORD, kept)
    assert not await hashing.is_correct(PASSWORD + b"!", kept)
    assert not hashing.is_outdated(kept)
    assert Hashing(CHEAP).is_outdated(kept)


@pytest.mark.parametrize("kept", [None, "", "plain", "$argon2id$v=19$m=8,t=1,p=1$broken", "ü"])
@in_own_loop
async def test_no_password_matches_a_missing_or_malformed_hash(kept: str | None) -> None:
    """The password of the dummy hash does not match either."""
    hashing = Hashing(CHEAP)
    for password in (PASSWORD, b"", b"the password of nobody"):
        assert not await hashing.is_correct(password, kept)


def test_concurrent_and_waiting_hashes_are_bounded() -> None:
    """Beyond both bounds a request is refused, with the time after which to try again."""
    running, most_running, lock = 0, 0, threading.Lock()
    all_are_running, go = threading.Event(), threading.Event()

    class Watched(Hashing):
        def _verify(self, password: bytes, password_hash: str | None) -> bool:
            nonlocal running, most_running
            with lock:
                running += 1
                most_running = max(most_running, running)
                if running == MAX_CONCURRENT:
                    all_are_running.set()
            go.wait()
            with lock:
                running -= 1
            return super()._verify(password, password_hash)

    async def main() -> None:
        hashing = Watched(CHEAP)
        waiting = [
            asyncio.ensure_future(hashing.is_correct(PASSWORD, None)) for _ in range(MAX_CONCURRENT + MAX_WAITING)
        ]
        await asyncio.sleep(0)
        with pytest.raises(RateLimited) as failure:
            await hashing.is_correct(PASSWORD, None)
        assert failure.value.retry_after_s == 1
        # Without this wait, the first thread could finish before the second one has begun.
        assert await asyncio.to_thread(all_are_running.wait, 60)
        go.set()
        await asyncio.gather(*waiting)
        assert not await hashing.is_correct(PASSWORD, None)

    asyncio.run(main())
    assert most_running == MAX_CONCURRENT
