"""Drivers: interruptions, timeouts, large answers, proxies, threads, tasks and forks."""

import asyncio
import contextlib
import itertools
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from stoplist_client import AsyncClient, ConfigurationError, NotUnderstood, TransportFailed
from stoplist_client.flows.flow import Flow, NoAnswer, Send, pause, send
from stoplist_client.transport import wire

from tests.client.connect_proxy import ConnectProxy
from tests.client.partners import BlockingAsyncClient, Opener, Partner, Service, no_timeout
from tests.services.fault_kinds import DROP, INTERIM, Hold, Reply, is_any, is_api
from tests.services.faults import Faults

pytestmark = pytest.mark.interpreter

ANN = "ann@example.com"
FORKING = """
import os, sys
from stoplist_client import Client
# A second attempt would hide the effect of a shared connection on the first.
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
    with ConnectProxy() as server:
        yield server


class HoldingFlow:
    """A flow that holds a lock while it waits."""

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
    """Run a flow with the driver of this client."""
    if isinstance(client, BlockingAsyncClient):
        return client.runner.run(client.client._driver.run(flow))
    return client._driver.run(flow)


def test_interrupted_flow_releases_its_locks(partner: Partner) -> None:
    """Ctrl+C during a wait is raised."""
    held = HoldingFlow()
    flow = held.flow()  # named, so that nothing but the driver ends it

    def interrupt(seconds: float) -> None:
        assert held.is_held
        raise KeyboardInterrupt

    with partner.client() as client:
        client._driver.sleep = interrupt
        with pytest.raises(KeyboardInterrupt):
            run(client, flow)
    assert not held.is_held


def test_cancelled_flow_releases_its_locks(partner: Partner) -> None:
    """The cancelled task ends at once."""
    held = HoldingFlow()
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


def test_no_answer_is_thrown_into_the_flow(open_client: Opener, partner: Partner) -> None:
    """The flow may handle it and go on."""

    def flow() -> Flow[str]:
        try:
            yield from send(Send(method="GET", url="/healthz", headers={}))
        except NoAnswer as failure:
            return str(failure)
        return "answered"

    with Faults(partner.service.base_url, partner.service.server.ca.parent) as between:
        client = open_client(partner, base_url=between.base_url)
        between.next(DROP, when=is_any)
        assert run(client, flow()) == "the connection broke before the answer was complete"
        assert run(client, flow()) == "answered"


def test_closed_client_is_refused(open_client: Opener, partner: Partner) -> None:
    """Closing it again does nothing."""
    client = open_client(partner)
    client.unsubscribe("email", [ANN])
    client.close()
    client.close()
    with pytest.raises(ConfigurationError, match="closed"):
        client.unsubscribe("email", [ANN])


def test_with_block_closes_the_client(partner: Partner) -> None:
    """`with` and `async with`."""
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


def test_request_times_out(open_client: Opener, partner: Partner) -> None:
    """A request that is not answered within `timeout_s` counts as not answered."""
    held = Hold()
    with Faults(partner.service.base_url, partner.service.server.ca.parent) as between:
        client = open_client(partner, base_url=between.base_url, timeout_s=0.5, attempts=1)
        with no_timeout(client):
            list(client.changes("email"))  # from here on it has tokens and a connection
        between.next(held, when=is_api)
        with pytest.raises(TransportFailed, match="timeout_s"):
            list(client.changes("email"))
        held.release()


def test_refused_connection_is_reported(open_client: Opener, partner: Partner) -> None:
    """The report has the host, and the message of the system."""
    with pytest.raises(TransportFailed, match=r"no connection to localhost:9 \("):
        open_client(partner, base_url="https://localhost:9", attempts=1).unsubscribe("email", [ANN])


def test_endless_body_is_not_read(open_client: Opener, partner: Partner, monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit is larger than any answer of Stoplist."""
    monkeypatch.setattr(wire, "MAX_ANSWER_BYTES", 1 << 20)
    with Faults(partner.service.base_url, partner.service.server.ca.parent) as between:
        client = open_client(partner, base_url=between.base_url)
        between.next(Reply(status=200, body=b" " * (1 << 20)), Reply(status=200, body=b" " * (2 << 20)), when=is_api)
        with pytest.raises(NotUnderstood, match="not one of Stoplist's"):
            list(client.changes("email"))
        with pytest.raises(NotUnderstood, match="more than 1 MiB"):
            list(client.changes("email"))


def test_untrusted_certificate_is_not_retried(open_client: Opener, partner: Partner) -> None:
    """The message says what to do."""
    client = open_client(partner, ca_file=None)
    core = client.client if isinstance(client, BlockingAsyncClient) else client
    core._driver.sleep = None
    with pytest.raises(TransportFailed, match="ca_file"):
        client.unsubscribe("email", [ANN])


def test_ssl_cert_file_is_used_without_ca_file(
    open_client: Opener, partner: Partner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", partner.service.ca_file)
    assert open_client(partner, ca_file=None).unsubscribe("email", [ANN]).created == 1


def test_proxy_sees_neither_tokens_nor_addresses(
    open_client: Opener, partner: Partner, proxy: ConnectProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is used as a tunnel, and the requests arrive."""
    monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{proxy.port}")
    client = open_client(partner)
    client.unsubscribe("email", [ANN])
    assert len(next(client.look_up("email", [ANN])).records) == 1
    assert proxy.heads
    for head in proxy.heads:
        assert head.startswith(f"CONNECT localhost:{partner.service.server.port} HTTP/1.1\r\n")
        assert "authorization" not in head.lower()
        assert "ann" not in head


def test_refusal_of_a_proxy_is_reported(
    open_client: Opener, partner: Partner, proxy: ConnectProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The report has its status."""
    monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{proxy.port}")
    proxy.refuses = True
    with pytest.raises(TransportFailed, match="407 Sign in"):
        open_client(partner, attempts=1).unsubscribe("email", [ANN])


@pytest.mark.parametrize(
    ("name", "value"),
    [("HTTPS_PROXY", "gopher://127.0.0.1"), ("ALL_PROXY", "ftp://127.0.0.1"), ("SSL_CERT_FILE", "/nowhere/ca.pem")],
)
def test_invalid_environment_is_refused(
    open_client: Opener, partner: Partner, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    """Creating the client fails, and not by an error of another library."""
    monkeypatch.setenv(name, value)
    with pytest.raises(ConfigurationError, match=name):
        open_client(partner, ca_file=None)


def test_threads_share_a_client(partner: Partner) -> None:
    """Eight threads at once get their own answers, with one pair of tokens."""
    with partner.client() as client, ThreadPoolExecutor(8) as threads:

        def work(number: int) -> list[str]:
            client.unsubscribe("email", [f"p{number}@example.com"])
            (found,) = client.look_up("email", [f"p{number}@example.com"])
            return [record.address or "" for record in found.records]

        assert list(threads.map(work, range(80))) == [[f"p{number}@example.com"] for number in range(80)]


def test_a_client_closed_during_a_request_writes_into_no_file(
    service: Service, partner: Partner, tmp_path: Path
) -> None:
    """The next file that is opened gets the descriptor of a closed connection, so a connection in use stays open."""
    held = Hold()
    files = [tmp_path / str(number) for number in range(20)]
    with (
        Faults(service.base_url, service.server.ca.parent) as between,
        ThreadPoolExecutor(1) as thread,
        contextlib.ExitStack() as opened,
    ):
        client = partner.client(base_url=between.base_url)
        list(client.changes("email"))  # from here on it has tokens and a connection
        between.next(held, when=is_api)
        request = thread.submit(client.unsubscribe, "email", [ANN])
        held.wait()
        client.close()
        for path in files:
            path.write_bytes(bytes(100))
            opened.enter_context(path.open("r+b", buffering=0))
        with pytest.raises(ConfigurationError, match="closed"):
            client.unsubscribe("email", [ANN])
        held.release()
        assert request.result(60).created == 1
        assert {path.read_bytes() for path in files} == {bytes(100)}


def test_a_held_request_ends_once_its_client_is_closed(service: Service, partner: Partner) -> None:
    """It would last as long as the service holds it, and its connection with it."""
    held = Hold()
    waiting = Send(method="GET", url="/healthz", headers={}, read_timeout_s=3600)

    with Faults(service.base_url, service.server.ca.parent) as between, ThreadPoolExecutor(1) as thread:
        client = partner.client(base_url=between.base_url)
        between.next(held, when=is_any)
        request = thread.submit(run, client, send(waiting))
        held.wait()
        client.close()
        with pytest.raises(NoAnswer):
            request.result(60)
        held.release()
        assert client._driver._connections._http is None


def test_tasks_share_a_client(partner: Partner) -> None:
    async def work(client: AsyncClient, number: int) -> list[str]:
        await client.unsubscribe("email", [f"p{number}@example.com"])
        return [
            record.address or ""
            async for found in client.look_up("email", [f"p{number}@example.com"])
            for record in found.records
        ]

    async def work_at_once() -> list[list[str]]:
        async with AsyncClient(**partner.access) as client:
            return await asyncio.gather(*(work(client, number) for number in range(40)))

    assert asyncio.run(work_at_once()) == [[f"p{number}@example.com"] for number in range(40)]


def test_second_event_loop_is_refused(partner: Partner) -> None:
    """The message says what to do, also when the client is closed there."""
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


def test_encoding_yields_to_the_event_loop(partner: Partner) -> None:
    """While a large batch is read and encoded, other tasks run at least once per thousand items."""
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


def test_forked_process_has_its_own_connections(partner: Partner) -> None:
    """A client that was used before a fork works in both processes at once."""
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


def test_a_request_ends_however_its_answer_arrives(service: Service, partner: Partner, open_client: Opener) -> None:
    """Each read of an endless stream of interim answers is in time. A later request has its own time."""
    with Faults(service.base_url, service.server.ca.parent) as between:
        client = open_client(partner, base_url=between.base_url, timeout_s=30, total_s=0.5, attempts=1)
        for _ in range(2):
            between.next(INTERIM, when=is_api)
            with pytest.raises(TransportFailed, match="no complete answer within total_s"):
                client.unsubscribe("email", [ANN])
        between.next(INTERIM, when=is_api)
        with pytest.raises(TransportFailed, match="no complete answer within total_s"):
            next(iter(client.look_up("email", [ANN])))
        assert open_client(partner, base_url=between.base_url).unsubscribe("email", [ANN]).created == 1
