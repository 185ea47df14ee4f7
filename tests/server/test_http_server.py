"""Starting, serving and stopping: sockets, signals, and the drain."""

import asyncio
import contextlib
import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from stoplist.clock import Clock
from stoplist.errors import SettingsError
from stoplist.server import http_server as server_module
from stoplist.server.bounds import Bounds
from stoplist.server.http_server import serve_http, serve_plain
from stoplist.server.stop_signals import stop_on_signals
from stoplist.server.tls import ensure_development_certificate, server_context
from stoplist.web.body import read_body
from tests.constants import PATIENCE_S
from tests.server.serving import RawConnection, Running, hello, in_uvloop, on_uvloop, respond, serving, trusting

pytestmark = pytest.mark.interpreter

GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


class HeldApplication:
    """An application that answers once it is released, and at `/at-once` immediately."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.released = asyncio.Event()
        self.was_cancelled = False

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == "/at-once":
            await respond(send, b"at once")
            return
        self.begun.set()
        try:
            body = await read_body(receive, scope["headers"], max_bytes=100)
            await self.released.wait()
        except asyncio.CancelledError:
            self.was_cancelled = True
            raise
        await respond(send, b"released " + body)


@asynccontextmanager
async def held_request(**options: Any) -> AsyncIterator[tuple[HeldApplication, Running, RawConnection]]:
    """Serve an application that holds the request of this connection."""
    application = HeldApplication()
    async with serving(application, **options) as server:
        connection = await server.connect()
        await connection.send(GET)
        await application.begun.wait()
        yield application, server, connection


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    return ensure_development_certificate(tmp_path, [], Clock().now_ms())


@in_uvloop
async def test_a_stop_answers_open_requests_and_accepts_no_others() -> None:
    """Source: docs/interface.md section D1, DRAIN_S."""
    async with held_request() as (application, server, connection):
        server.stop.set()
        await wait_until_refused(server.port)
        assert not server.done.done()
        application.released.set()
        answer = await connection.answer()
        assert (answer.body, answer.headers["connection"]) == (b"released ", "close")
        assert await connection.is_closed()
        await server.ended()


@pytest.mark.parametrize(
    ("before", "after"),
    [(GET[:5], GET[5:]), (GET[:-2], GET[-2:]), (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n", b"abc")],
)
@in_uvloop
async def test_a_request_that_arrives_during_the_stop_is_answered(before: bytes, after: bytes) -> None:
    """Part of a head, or a head without its body: the request is accepted, and it is the last one."""
    application = HeldApplication()
    application.released.set()
    async with serving(application, drain_s=600) as server:
        arriving, other = await server.connect(), await server.connect()
        await arriving.send(before)
        await other.send(GET)  # so that the server has read what the first one sent
        await other.answer()
        server.stop.set()
        await wait_until_refused(server.port)
        assert await asyncio.wait([server.done], timeout=0.6) == (set(), {server.done}), "it waits"
        await arriving.send(after)
        answer = await arriving.answer()
        assert answer.status == 200
        assert answer.headers["connection"] == "close"
        await server.ended()


@in_uvloop
async def test_a_new_connection_may_send_its_request_after_the_stop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A balancer opens a connection for each request, and must not send a token request twice."""
    monkeypatch.setattr(server_module, "_UNUSED_S", PATIENCE_S)  # a busy machine may take longer than a moment
    application = HeldApplication()
    application.released.set()
    async with serving(application, drain_s=600) as server:
        other, opened = await server.connect(), await server.connect()
        await other.send(GET)  # so that both were accepted
        await other.answer()
        server.stop.set()
        await wait_until_refused(server.port)
        await opened.send(GET)
        answer = await opened.answer()
        assert (answer.status, answer.headers["connection"]) == (200, "close")
        await server.ended()


@in_uvloop
async def test_accepted_pipelined_requests_are_all_answered() -> None:
    """The last answer ends the connection."""
    application = HeldApplication()
    async with serving(application) as server:
        connection = await server.connect()
        await connection.send(GET * 3)
        await application.begun.wait()
        server.stop.set()
        await wait_until_refused(server.port)
        application.released.set()
        answers = [await connection.answer() for _ in range(3)]
        assert ["connection" in answer.headers for answer in answers] == [False, False, True]
        await server.ended()


@pytest.mark.parametrize("is_tls", [False, True])
@in_uvloop
async def test_idle_connections_do_not_delay_the_stop(is_tls: bool, certificate: tuple[Path, Path]) -> None:
    """Clients with a connection pool do not notice that the server has closed a connection."""
    context = server_context(*certificate) if is_tls else None
    application = HeldApplication()
    async with serving(application, tls=context, drain_s=600) as server:
        fresh = await server.connect(trusting(certificate[0].parent) if is_tls else None)
        used = await server.connect(trusting(certificate[0].parent) if is_tls else None)
        await used.send(GET.replace(b"/ ", b"/at-once ", 1))
        assert (await used.answer()).body == b"at once"
        for connection in (fresh, used):
            cast("asyncio.Transport", connection.writer.transport).pause_reading()
        server.stop.set()
        await server.ended()


@in_uvloop
async def test_an_unfinished_handshake_does_not_delay_the_stop(certificate: tuple[Path, Path]) -> None:
    async with serving(hello, tls=server_context(*certificate), drain_s=600) as server:
        silent = await server.connect()
        await (await server.connect(trusting(certificate[0].parent))).send(GET)  # so that the other was accepted
        server.stop.set()
        await server.ended()
        silent.close()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can ignore connections to a listening socket")
@in_uvloop
async def test_connections_that_no_process_accepted_are_served() -> None:
    """A balancer has sent its requests on them already, and does not send a POST to another server."""

    def connect_at_once() -> None:
        """Connect while the event loop cannot accept: the kernel alone completes the connections."""
        for _ in range(50):
            client = closing.enter_context(socket.create_connection(("127.0.0.1", server.port)))
            client.sendall(GET)
            client.setblocking(False)
            clients.append(client)

    clients: list[socket.socket] = []
    with contextlib.ExitStack() as closing:
        async with serving(hello, on_stop=connect_at_once) as server:
            server.stop.set()
            await server.ended()
            answers = [await asyncio.get_running_loop().sock_recv(client, 1000) for client in clients]
            assert [answer[:12] for answer in answers] == [b"HTTP/1.1 200"] * 50
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", server.port))


@in_uvloop
async def test_a_worker_that_stops_alone_leaves_the_socket_to_others() -> None:
    """They go on accepting, so this worker must not let the kernel ignore connections."""
    with socket.create_server(("127.0.0.1", 0)) as shared:
        stop = asyncio.Event()
        stop.set()
        await serve_http(
            hello,
            host="",
            port=0,
            tls=None,
            drain_s=1,
            stop=stop,
            whole_stop=asyncio.Event(),
            sockets=[shared.dup()],
        )
        with socket.create_connection(shared.getsockname()):
            shared.accept()[0].close()


def test_requests_unanswered_after_the_drain_are_cut_off(caplog: pytest.LogCaptureFixture) -> None:
    """One warning counts them; the application is cancelled and the connection closed."""

    async def main() -> None:
        async with held_request(drain_s=0.1) as (application, server, connection):
            server.stop.set()
            await server.ended()
            assert application.was_cancelled
            assert await connection.is_closed()

    with caplog.at_level(logging.WARNING):
        on_uvloop(main())
    assert [record.getMessage() for record in caplog.records] == [
        "Stopped with 1 unfinished requests, which were cut off."
    ]


@in_uvloop
async def test_during_the_notice_each_connection_gets_one_answer() -> None:
    """A new one, an idle one, and one with a request under way: the answer says `close`, and the connection ends."""
    application = HeldApplication()
    async with serving(application, drain_s=600, notice_s=500) as server:
        at_once = GET.replace(b"/ ", b"/at-once ", 1)
        kept, busy = await server.connect(), await server.connect()
        await kept.send(at_once)
        assert "connection" not in (await kept.answer()).headers
        await busy.send(GET)
        await application.begun.wait()
        server.stop.set()
        async with asyncio.timeout(PATIENCE_S):
            while (await server.ask(at_once)).headers.get("connection") != "close":
                pass
        application.released.set()
        new = await server.connect()
        for connection, request in ((kept, at_once), (new, at_once), (busy, b"")):
            await connection.send(request)
            answer = await connection.answer()
            assert (answer.status, answer.headers["connection"]) == (200, "close")
            assert await connection.is_closed()
        assert not server.done.done()


@in_uvloop
async def test_after_the_notice_only_open_requests_are_answered() -> None:
    """The drain is the same as without a notice; an idle connection is closed."""
    application = HeldApplication()
    async with serving(application, drain_s=600, notice_s=0.2) as server:
        resting, busy = await server.connect(), await server.connect()
        await busy.send(GET)
        await application.begun.wait()
        server.stop.set()
        await wait_until_refused(server.port)
        assert await resting.is_closed()
        application.released.set()
        assert (await busy.answer()).status == 200
        await server.ended()


@in_uvloop
async def test_the_notice_is_part_of_the_drain() -> None:
    """After both, unanswered requests are cut off."""
    async with held_request(drain_s=0.2, notice_s=0.1) as (application, server, _):
        server.stop.set()
        await server.ended()
        assert application.was_cancelled


@in_uvloop
async def test_force_ends_the_notice_and_the_drain() -> None:
    async with held_request(drain_s=600, notice_s=500) as (application, server, _):
        server.stop.set()
        server.force.set()
        await server.ended()
        await wait_until_refused(server.port)
        assert application.was_cancelled


@in_uvloop
async def test_deadlines_hold_during_the_notice() -> None:
    async with serving(hello, drain_s=600, notice_s=500, bounds=Bounds(sweep_s=0.02, head_s=0.1)) as server:
        server.stop.set()
        silent = await server.connect()
        assert await silent.is_closed()
        assert not server.done.done()


@in_uvloop
async def test_force_ends_the_drain() -> None:
    async with held_request(drain_s=600) as (application, server, _):
        server.stop.set()
        await wait_until_refused(server.port)
        server.force.set()
        await server.ended()
        assert application.was_cancelled


@in_uvloop
async def test_a_cancelled_server_closes_connections_and_port() -> None:
    async with held_request(drain_s=600) as (_, server, connection):
        server.done.cancel()
        await asyncio.wait([server.done])
        assert await connection.is_closed()
        await wait_until_refused(server.port)


@pytest.mark.parametrize("settings_text", ["STOPLIST_HOST and STOPLIST_PORT", "STOPLIST_METRICS_LISTEN"])
@in_uvloop
async def test_a_taken_port_is_a_settings_error(settings_text: str) -> None:
    """The error names the settings to change."""
    async with serving(hello) as server:
        starting = {
            "STOPLIST_HOST and STOPLIST_PORT": serve_http(
                hello, host="127.0.0.1", port=server.port, tls=None, drain_s=1, stop=asyncio.Event()
            ),
            "STOPLIST_METRICS_LISTEN": serve_plain(hello, host="127.0.0.1", port=server.port, stop=asyncio.Event()),
        }
        with pytest.raises(SettingsError) as refused:
            await starting.pop(settings_text)
        starting.popitem()[1].close()
        assert refused.value.text == (
            f"Cannot listen on 127.0.0.1 port {server.port} ({settings_text}): "
            "another process listens there already: stop it, or choose another port."
        )


@pytest.mark.parametrize(
    ("host", "reason"),
    [("192.0.2.1", "this machine has no such address"), ("no.such.host.invalid", "Name or service not known|not")],
)
@in_uvloop
async def test_a_foreign_host_is_a_settings_error(host: str, reason: str) -> None:
    """Another machine's address, or a name without one."""
    with pytest.raises(SettingsError, match=reason):
        await serve_http(hello, host=host, port=0, tls=None, drain_s=1, stop=asyncio.Event())


@in_uvloop
async def test_a_name_is_served_on_all_its_addresses() -> None:
    """`localhost` often has two, which share one port."""
    found = socket.getaddrinfo("localhost", 0, type=socket.SOCK_STREAM)
    expected = {info[4][0] for info in found}
    stop = asyncio.Event()
    addresses: list[tuple[str, int]] = []

    def started(found: list[tuple[str, int]]) -> None:
        addresses.extend(found)
        stop.set()

    await serve_http(hello, host="localhost", port=0, tls=None, drain_s=1, stop=stop, on_started=started)
    assert {address for address, _ in addresses} == expected
    assert len({port for _, port in addresses}) == 1


@in_uvloop
async def test_the_metrics_listener_stops_with_the_main_server() -> None:
    """It serves plain HTTP and shares the stop event."""
    started: asyncio.Future[list[tuple[str, int]]] = asyncio.get_running_loop().create_future()
    async with serving(hello) as server:
        metrics = asyncio.create_task(
            serve_plain(hello, host="127.0.0.1", port=0, stop=server.stop, on_started=started.set_result)
        )
        [(host, port)] = await started
        connection = RawConnection(*await asyncio.open_connection(host, port))
        await connection.send(GET)
        assert (await connection.answer()).body == b"hello"
        server.stop.set()
        async with asyncio.timeout(PATIENCE_S):
            await metrics
        assert await connection.is_closed()
        connection.close()


def test_plain_http_on_the_tls_port_gets_no_data(
    certificate: tuple[Path, Path], caplog: pytest.LogCaptureFixture
) -> None:
    """Source: docs/interface.md section D1, HTTPS. Nor does other data that is not TLS; nothing is logged."""

    async def main() -> None:
        async with serving(hello, tls=server_context(*certificate)) as server:
            for data in (GET, b"\x00" * 100, b"\x16\x03\x01\x00\x05hello"):
                connection = await server.connect()
                await connection.send(data)
                assert not (await connection.rest()).startswith(b"HTTP")
            plain = await server.connect()
            await plain.send(GET)
            assert await plain.is_closed()
            connection = await server.connect(trusting(certificate[0].parent))
            await connection.send(GET)
            assert (await connection.answer()).body == b"hello"

    on_uvloop(main())
    assert not caplog.records


def test_no_proxy_is_trusted_and_no_server_header_sent(certificate: tuple[Path, Path]) -> None:
    """Peer and scheme are those of the connection; the answer has `Date` and no `Server`."""
    seen: list[tuple[Any, str]] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append((scope["client"][0], scope["scheme"]))
        await respond(send, b"")

    async def main() -> None:
        async with serving(app, tls=server_context(*certificate)) as server:
            connection = await server.connect(trusting(certificate[0].parent))
            claims = b"X-Forwarded-For: 192.0.2.1\r\nX-Forwarded-Proto: http\r\nForwarded: for=192.0.2.1\r\n\r\n"
            await connection.send(GET[:-2] + claims)
            answer = await connection.answer()
            assert answer.headers.keys() == {"date", "content-type", "content-length", "x-content-type-options"}

    on_uvloop(main())
    assert seen == [("127.0.0.1", "https")]


@pytest.mark.parametrize("is_https_only", [True, False])
@in_uvloop
async def test_every_answer_has_the_headers_of_the_server(is_https_only: bool) -> None:
    """The answers of the application, a 500 for its failure, and a 400 that it never saw (RFC 6797)."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == "/failing":
            raise ZeroDivisionError
        await respond(send, b"hello")

    async with serving(app, is_https_only=is_https_only) as server:
        for data, status in (
            (b"GET / HTTP/1.1\r\nhost: x\r\n\r\n", 200),
            (b"GET /failing HTTP/1.1\r\nhost: x\r\n\r\n", 500),
            (b"GET / HTTP/1.1\r\nhost: x\r\nbad header\r\n\r\n", 400),
        ):
            answer = await server.ask(data)
            assert answer.status == status
            assert answer.headers["x-content-type-options"] == "nosniff"
            expected = "max-age=31536000" if is_https_only else None
            assert answer.headers.get("strict-transport-security") == expected


@in_uvloop
async def test_the_date_header_is_renewed_by_every_sweep() -> None:
    async with serving(hello, bounds=Bounds(sweep_s=0.05)) as server:
        connection = await server.connect()
        dates: set[str] = set()
        async with asyncio.timeout(PATIENCE_S):
            while len(dates) < 2:
                await connection.send(GET)
                dates.add((await connection.answer()).headers["date"])


SCRIPT = """
import asyncio, sys, uvloop
from stoplist.server.http_server import serve_http
from stoplist.server.stop_signals import stop_on_signals

async def app(scope, receive, send):
    print("begun", flush=True)
    await asyncio.Event().wait()

async def main():
    stop, force = asyncio.Event(), asyncio.Event()
    with stop_on_signals(stop, force):
        await serve_http(
            app, host="127.0.0.1", port=0, tls=None, drain_s=float(sys.argv[1]), stop=stop, force=force,
            on_started=lambda addresses: print(addresses[0][1], flush=True),
        )
        print("released", flush=True)

uvloop.run(main())
"""


def start(drain_s: float) -> tuple["subprocess.Popen[str]", int]:
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(drain_s)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    return process, int(process.stdout.readline())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_the_process_release_its_resources(number: signal.Signals) -> None:
    """It ends with status 0, not by the signal, and without a traceback."""
    process, _ = start(drain_s=10)
    process.send_signal(number)
    output, errors = process.communicate(timeout=PATIENCE_S)
    assert (output, errors, process.returncode) == ("released\n", "", 0)


def test_a_second_sigint_forces_the_stop() -> None:
    """A second SIGTERM changes nothing."""
    process, port = start(drain_s=600)
    assert process.stdout is not None
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(GET)
        assert process.stdout.readline() == "begun\n"
        process.send_signal(signal.SIGTERM)
        # Wait until it is handled: of two pending signals, which one is handled first is not certain.
        on_uvloop(wait_until_refused(port))
        process.send_signal(signal.SIGTERM)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(timeout=0.4)
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=PATIENCE_S)
    assert (output, process.returncode) == ("released\n", 0)
    assert "cut off" in errors


@in_uvloop
async def test_signal_handlers_are_restored() -> None:
    before = signal.getsignal(signal.SIGTERM)
    stop, force = asyncio.Event(), asyncio.Event()
    with stop_on_signals(stop, force):
        os.kill(os.getpid(), signal.SIGTERM)
        async with asyncio.timeout(PATIENCE_S):
            await stop.wait()
    assert not force.is_set()
    assert signal.getsignal(signal.SIGTERM) == before


async def wait_until_refused(port: int) -> None:
    """Wait until connections to this port are refused."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except ConnectionError:
                return
            writer.close()
