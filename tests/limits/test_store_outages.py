"""The store is lost in every possible way and comes back: real servers, in real time."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

import pytest

from stoplist.clock import Clock
from stoplist.limits.limiter import StoreHealth
from stoplist.limits.opening import open_limiter
from stoplist.limits.shared import SharedLimiter
from stoplist.limits.store import LimitStore
from tests.builders import Run
from tests.deployment import in_own_loop
from tests.limits.counting import patience
from tests.limits.scripted_store import scripted_store
from tests.services.proxy import ANSWERS, REQUESTS, Proxy
from tests.services.valkey import Valkey

N = 5


class StoreUnderTest:
    """A store of our own, a proxy before it, and a user whose rights a test may revoke."""

    def __init__(self, server: Valkey, between: Proxy) -> None:
        self.server, self.between = server, between
        self.url = f"redis://partner:right@127.0.0.1:{between.port}/0"
        self.let_in()

    def let_in(self) -> None:
        self.server.execute("ACL", "SETUSER", "partner", "reset", "on", ">right", "~*", "+@all")

    def change_user(self, *how: str) -> None:
        """Change the user and end its connections, as a restart does."""
        self.server.execute("ACL", "SETUSER", "partner", *how)
        self.server.execute("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")

    def start(self) -> None:
        self.server.start()
        self.let_in()


@pytest.fixture(scope="module")
def store_under_test(valkey: Valkey) -> Iterator[StoreUnderTest]:
    """Yield a server of the test's own, as other tests need the session's unchanged; skip if there is none."""
    with Valkey(valkey.program) as own, Proxy(own.url) as between:
        yield StoreUnderTest(own, between)


Step = Callable[[StoreUnderTest], object]
# How the store is lost, and how it comes back.
OUTAGES: dict[str, tuple[Step, Step]] = {
    "cut": (lambda it: it.between.cut(), lambda it: it.between.mend()),
    "killed": (lambda it: it.server.kill(), lambda it: it.start()),
    "frozen": (lambda it: it.server.freeze(), lambda it: it.server.thaw()),
    "slow": (lambda it: it.between.delay(0.4), lambda it: it.between.delay(0)),
    "deaf": (lambda it: it.between.hold(REQUESTS), lambda it: it.between.release()),
    "mute": (lambda it: it.between.hold(ANSWERS), lambda it: it.between.release()),
    "cut after the decision": (
        lambda it: it.between.drop_answers_after(lambda piece: b"EVALSHA" in piece),
        lambda it: it.between.drop_answers_after(None),
    ),
    "full": (
        lambda it: it.server.execute("CONFIG", "SET", "maxmemory", "1"),
        lambda it: it.server.execute("CONFIG", "SET", "maxmemory", "0"),
    ),
    "a replica": (
        lambda it: it.server.execute("REPLICAOF", "127.0.0.1", "1"),
        lambda it: it.server.execute("REPLICAOF", "NO", "ONE"),
    ),
    "without permission": (lambda it: it.change_user("-evalsha"), lambda it: it.let_in()),
    "with another password": (lambda it: it.change_user("resetpass", ">another"), lambda it: it.let_in()),
    "without the user": (lambda it: it.server.execute("ACL", "DELUSER", "partner"), lambda it: it.let_in()),
}


@contextmanager
def outage(store_under_test: StoreUnderTest, name: str) -> Iterator[None]:
    """Lose the store in this way until the block ends."""
    begin, end = OUTAGES[name]
    begin(store_under_test)
    try:
        yield
    finally:
        end(store_under_test)


@asynccontextmanager
async def limiter_at(url: str) -> AsyncIterator[SharedLimiter]:
    limiter = SharedLimiter(LimitStore.at(url), Clock())
    with patience():
        await limiter.open()
    try:
        yield limiter
    finally:
        await limiter.close()


async def returned(limiter: SharedLimiter) -> None:
    """Reconnect every second, as the chore does, until the store is back."""
    async with asyncio.timeout(60):
        while limiter.health().is_lost:
            await limiter.reconnect()


async def accepted_at_once(limiter: SharedLimiter, client_id: str, asked: int) -> int:
    decisions = await asyncio.gather(*(limiter.api(client_id, limit=N) for _ in range(asked)))
    return sum(decision.accepted for decision in decisions)


def warnings_in(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.parametrize("name", OUTAGES)
def test_a_lost_store_leaves_n_per_process(
    run: Run, store_under_test: StoreUnderTest, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    """Section D8: no error, one warning, counts from the process's last minute, and an automatic return."""
    one, other, fresh = f"{name} one", f"{name} other", f"{name} fresh"

    async def main() -> None:
        async with limiter_at(store_under_test.url) as limiter:
            with patience():
                assert await accepted_at_once(limiter, one, 2) == 2
            assert limiter.health() == StoreHealth(is_lost=False, decided_alone=0)
            with outage(store_under_test, name):
                assert await accepted_at_once(limiter, one, 20) == N - 2
                assert limiter.health().is_lost
                assert await accepted_at_once(limiter, other, 20) == N
                await limiter.reconnect()
                assert limiter.health().is_lost
                # A store that only refuses writes still reports the wait of requests that are refused locally.
                alone = limiter.health().decided_alone
                assert N - 2 + N <= alone <= 40
                assert len(warnings_in(caplog)) == 1
            await returned(limiter)
            with patience():
                assert await accepted_at_once(limiter, one, 20) == await accepted_at_once(limiter, other, 20) == 0
                assert (await limiter.api(fresh, limit=N)).remaining == N - 1
            assert limiter.health() == StoreHealth(is_lost=False, decided_alone=alone)
            assert len(warnings_in(caplog)) == 1

    run(main())


@in_own_loop
async def test_queued_calls_wait_no_longer_than_the_first(store_under_test: StoreUnderTest) -> None:
    """Several round trips' worth behind a stuck one, by the loop's clock; the bound allows for a slow machine."""
    async with limiter_at(store_under_test.url) as limiter:
        with outage(store_under_test, "frozen"), patience(2.0):
            begun_s = asyncio.get_running_loop().time()
            tasks = [asyncio.create_task(limiter.api("stuck", limit=N))]
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            tasks += [asyncio.create_task(limiter.api("stuck", limit=N)) for _ in range(2000)]
            decisions = await asyncio.gather(*tasks)
            # Eight consecutive round trips would take 16 s.
            assert asyncio.get_running_loop().time() - begun_s < 12
        assert sum(decision.accepted for decision in decisions) == N


def test_the_warning_names_the_reason_but_not_the_address(
    run: Run, store_under_test: StoreUnderTest, caplog: pytest.LogCaptureFixture
) -> None:
    """No address, no user, no password."""

    async def main() -> None:
        async with limiter_at(store_under_test.url) as limiter:
            with outage(store_under_test, "cut"), patience():
                await limiter.api("said", limit=N)

    run(main())
    (record,) = warnings_in(caplog)
    assert record.__dict__["fields"] == {"why": "ConnectionError"}


# As servers send it, or as something that is not a limit store sends it.
TRANSIENT = [
    b"-LOADING Redis is loading the dataset in memory\r\n",
    b"-BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.\r\n",
    b"-MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist on disk.\r\n",
    b"-CLUSTERDOWN The cluster is down\r\n",
    b"-NOREPLICAS Not enough good replicas to write.\r\n",
    b"-ERR Error running script (call to f_0): @user_script:20: @user_script: 20: -OOM command not allowed\r\n",
    b"-ERR max number of clients reached\r\n",
    b"*4\r\n:1\r\n:0",
    b"*4\r\n:1\r\n",
    b"*4\r\n:1\r\n:0\r\n$1\r\nx\r\n:0\r\n",
    b"*1\r\n:1\r\n",
    b"+OK\r\n",
    b"$-1\r\n",
    b"HTTP/1.1 400 Bad Request\r\n",
    b"",
]


@pytest.mark.parametrize("answer", TRANSIENT)
@in_own_loop
async def test_any_answer_of_the_store_leads_to_a_decision(answer: bytes) -> None:
    """A transient error stops no start, and no answer is an error for a request."""
    async with scripted_store(answer) as url:
        limiter = await open_limiter(url, Clock())
        assert isinstance(limiter, SharedLimiter)
        assert limiter.health().is_lost
        assert await accepted_at_once(limiter, "a", 20) == N
        await limiter.close()
        unopened = SharedLimiter(LimitStore.at(url), Clock())
        assert await accepted_at_once(unopened, "a", 20) == N
        assert unopened.health().is_lost
        await unopened.close()
