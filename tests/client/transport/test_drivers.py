"""How clients perform what flows ask: interruptions, timeouts, large answers, proxies, threads, tasks and forks."""

import asyncio
import itertools
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from stoplist_client import AsyncClient, ConfigurationError, NotUnderstood, TransportFailed
from stoplist_client.flows.flow import Flow, NoAnswer, Send, pause, send
from stoplist_client.transport import wire

from tests.client.connect_proxy import ConnectProxy, connect_proxy
from tests.client.partners import Blocking, Opener, Partner, patience
from tests.services.fault_kinds import DROP, Hold, Reply, is_any, is_api
from tests.services.faults import faults

pytestmark = pytest.mark.interpreter

ANN = "ann@example.com"
FORKING = """
import os, sys
from stoplist_client import Client
# A second attempt would cover up what a shared connection does to the first.
client = Client(sys.argv[1], client_id=sys.argv[2], client_secret=sys.argv[3], ca_file=sys.argv[4], attempts=1)
client.unsubscribe("email", ["before@example.com"])
child = os.fork()
for number in range(15):
    client.unsubscribe("email", [f"p{number}.{'parent' if child else 'child'}@example.com"])
if child:
    client.close()
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
else:
    os._exit(0)
"""


@pytest.fixture
def proxy() -> Iterator[ConnectProxy]:
    with connect_proxy() as get:
        yield get


class HeldToken:
    """A flow that holds something while it waits, and notes when it lets go."""

    def __init__(self) -> None:
        self.is_held = False

    def flow(self) -> Flow[str]:
        self.is_held = True
        try:
            yield from pause(3600)
            return "done"
        finally:
            self.is_held = False


def run(client: Any, flow: Flow[Any]) -> Any:
    """What the driver of this client makes of the flow."""
    if isinstance(client, Blocking):
        return client.runner.run(client.client._driver.run(flow))
    return client._driver.run(flow)


def test_a_flow_that_is_interrupted_lets_go(partner: Partner) -> None:
    """Ctrl-C during a wait comes out, and nothing stays held."""
    held = HeldToken()
    flow = held.flow()  # named, so that nothing but the driver ends it

    def interrupt(seconds: float) -> None:
        assert held.is_held
        raise KeyboardInterrupt

    with partner.client() as client:
        client._driver.sleep = interrupt
        with pytest.raises(KeyboardInterrupt):
            run(client, flow)
    assert not held.is_held


def test_a_flow_that_is_cancelled_lets_go(partner: Partner) -> None:
    """A cancelled task ends at once, and nothing stays held."""
    held = HeldToken()
    flow = held.flow()  # named, so that nothing but the driver ends it

    async def cancel() -> None:
        async with AsyncClient(**partner.access) as client:
            task = asyncio.create_task(client._driver.run(flow))
            await asyncio.sleep(0)
            assert held.is_held
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(cancel())
    assert not held.is_held


def test_a_flow_hears_that_there_was_no_answer(both: Opener, partner: Partner) -> None:
    """NoAnswer is thrown where the request was asked for, and the flow goes on as it likes."""

    def flow() -> Flow[str]:
        try:
            yield from send(Send(method="GET", url="/healthz", headers={}))
        except NoAnswer as failure:
            return str(failure)
        return "answered"

    with faults(partner.service.base_url, partner.service.server.ca.parent) as between:
        client = both(partner, base_url=between.base_url)
        between.next(DROP, when=is_any)
        assert run(client, flow()) == "the connection broke before the answer was complete"
        assert run(client, flow()) == "answered"


def test_a_closed_client_says_so(both: Opener, partner: Partner) -> None:
    """Whoever goes on using it is told; closing it again does nothing."""
    client = both(partner)
    client.unsubscribe("email", [ANN])
    client.close()
    client.close()
    with pytest.raises(ConfigurationError, match="closed"):
        client.unsubscribe("email", [ANN])


def test_clients_close_at_the_end_of_their_block(partner: Partner) -> None:
    """`with` and `async with` leave a closed client."""
    with partner.client() as client:
        pass
    with pytest.raises(ConfigurationError, match="closed"):
        list(client.changes("email"))

    async def use() -> None:
        async with AsyncClient(**partner.access) as client:
            assert [record async for record in client.changes("email")] == []
        with pytest.raises(ConfigurationError, match="closed"):
            await client.unsubscribe("email", [ANN])

    asyncio.run(use())


def test_an_answer_that_does_not_come_is_not_waited_for(both: Opener, partner: Partner) -> None:
    """After `timeout_s` the request counts as not answered."""
    held = Hold()
    with faults(partner.service.base_url, partner.service.server.ca.parent) as between:
        client = both(partner, base_url=between.base_url, timeout_s=0.5, attempts=1)
        with patience(client):
            list(client.changes("email"))  # from here on it has tokens and a connection
        between.next(held, when=is_api)
        with pytest.raises(TransportFailed, match="timeout_s"):
            list(client.changes("email"))
        held.release()


def test_a_service_that_is_not_there_is_told(both: Opener, partner: Partner) -> None:
    """With what the system says of it."""
    with pytest.raises(TransportFailed, match="no connection"):
        both(partner, base_url="https://localhost:9", attempts=1).unsubscribe("email", [ANN])


def test_a_body_without_end_is_not_read(both: Opener, partner: Partner, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is larger than any answer of Stoplist fills nobody's memory."""
    monkeypatch.setattr(wire, "MAX_ANSWER_BYTES", 1 << 20)
    with faults(partner.service.base_url, partner.service.server.ca.parent) as between:
        client = both(partner, base_url=between.base_url)
        between.next(Reply(status=200, body=b" " * (1 << 20)), Reply(status=200, body=b" " * (2 << 20)), when=is_api)
        with pytest.raises(NotUnderstood, match="not one of Stoplist's"):
            list(client.changes("email"))
        with pytest.raises(NotUnderstood, match="more than 1 MiB"):
            list(client.changes("email"))


def test_a_certificate_that_is_not_trusted_is_told_at_once(both: Opener, partner: Partner) -> None:
    """With what would be right, and without trying again."""
    client = both(partner, ca_file=None)
    core = client.client if isinstance(client, Blocking) else client
    core._driver.sleep = None
    with pytest.raises(TransportFailed, match="ca_file"):
        client.unsubscribe("email", [ANN])


def test_the_authority_may_be_named_by_the_environment(
    both: Opener, partner: Partner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SSL_CERT_FILE is heeded where there is no `ca_file`."""
    monkeypatch.setenv("SSL_CERT_FILE", partner.service.ca_file)
    assert both(partner, ca_file=None).unsubscribe("email", [ANN]).created == 1


def test_a_proxy_of_the_environment_sees_nothing(
    both: Opener, partner: Partner, proxy: ConnectProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is asked for a tunnel to the host, and learns neither token nor address; the requests arrive."""
    monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{proxy.port}")
    client = both(partner)
    client.unsubscribe("email", [ANN])
    assert len(next(client.look_up("email", [ANN])).records) == 1
    assert proxy.heads
    for head in proxy.heads:
        assert head.startswith(f"CONNECT localhost:{partner.service.server.port} HTTP/1.1\r\n")
        assert "authorization" not in head.lower()
        assert "ann" not in head


def test_a_proxy_that_refuses_is_told(
    both: Opener, partner: Partner, proxy: ConnectProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With what it said."""
    monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{proxy.port}")
    proxy.refuses = True
    with pytest.raises(TransportFailed, match="407 Sign in"):
        both(partner, attempts=1).unsubscribe("email", [ANN])


@pytest.mark.parametrize(
    ("name", "value"),
    [("HTTPS_PROXY", "gopher://127.0.0.1"), ("ALL_PROXY", "ftp://127.0.0.1"), ("SSL_CERT_FILE", "/nowhere/ca.pem")],
)
def test_an_environment_that_cannot_be_right_is_told(
    both: Opener, partner: Partner, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    """When the client is made, and not by an error of another library."""
    monkeypatch.setenv(name, value)
    with pytest.raises(ConfigurationError, match=name):
        both(partner, ca_file=None)


def test_threads_share_a_client(partner: Partner) -> None:
    """Eight threads at once are answered each for itself, with one pair of tokens between them."""
    with partner.client() as client, ThreadPoolExecutor(8) as threads:

        def work(number: int) -> list[str]:
            client.unsubscribe("email", [f"p{number}@example.com"])
            (found,) = client.look_up("email", [f"p{number}@example.com"])
            return [record.address for record in found.records]

        assert list(threads.map(work, range(80))) == [[f"p{number}@example.com"] for number in range(80)]


def test_tasks_share_a_client(partner: Partner) -> None:
    """So do tasks of an event loop."""

    async def work(client: AsyncClient, number: int) -> list[str]:
        await client.unsubscribe("email", [f"p{number}@example.com"])
        return [
            record.address
            async for found in client.look_up("email", [f"p{number}@example.com"])
            for record in found.records
        ]

    async def work_at_once() -> list[list[str]]:
        async with AsyncClient(**partner.access) as client:
            return await asyncio.gather(*(work(client, number) for number in range(40)))

    assert asyncio.run(work_at_once()) == [[f"p{number}@example.com"] for number in range(40)]


def test_a_second_event_loop_is_refused(partner: Partner) -> None:
    """Connections are of one loop: in another one the client says what would be right, also to whoever closes it."""
    client = AsyncClient(**partner.access)
    with asyncio.Runner() as first, asyncio.Runner() as second:
        assert first.run(client.unsubscribe("email", [ANN])).created == 1
        with pytest.raises(ConfigurationError, match="event loop"):
            second.run(client.unsubscribe("email", [ANN]))
        assert first.run(client.unsubscribe("email", [ANN])).received == 1
        with pytest.raises(ConfigurationError, match="event loop"):
            second.run(client.aclose())
        first.run(client.aclose())
    assert AsyncClient(**partner.access)  # made outside of any


def test_the_event_loop_gets_its_turn(partner: Partner) -> None:
    """While a batch of many items is read and encoded, others run: at least once for every thousand."""
    turns: list[int] = []
    read = 0

    def addresses() -> Iterator[str]:
        nonlocal read
        for read in range(1, 10_001):
            yield f"p{read}@example.com"

    async def others() -> None:
        while True:
            turns.append(read)
            await asyncio.sleep(0)

    async def work() -> None:
        other = asyncio.create_task(others())
        async with AsyncClient(**partner.access) as client:
            await client.unsubscribe("email", addresses())
        other.cancel()

    asyncio.run(work())
    assert max(later - earlier for earlier, later in itertools.pairwise([0, *turns])) <= 1_000


def test_a_forked_process_has_connections_of_its_own(partner: Partner) -> None:
    """A client that was made, and used, before a fork works on both sides of it at once."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", FORKING, *map(str, _access(partner))],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "0\n", "")
    with partner.client() as client:
        assert sum(1 for _ in client.changes("email")) == 31


def _access(partner: Partner) -> tuple[str, ...]:
    return (partner.service.base_url, *partner.key, partner.service.ca_file)
