"""The TCP proxy does what the tests of store failures rely on, before either kind of store."""

import asyncio
import contextlib
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import asyncpg
import pytest
import redis

from tests.constants import PATIENCE_S
from tests.services import managed_program, valkey
from tests.services.postgresql import PostgresqlServer
from tests.services.proxy import ANSWERS, REQUESTS, Proxy

# The interpreter does not matter to the servers: once is enough.
pytestmark = pytest.mark.slow

SOON_S = 0.1


@pytest.fixture
def between(valkey: valkey.Valkey) -> Iterator[Proxy]:
    """Start a proxy before the session's Valkey."""
    with Proxy(valkey.url) as own:
        yield own


@contextlib.contextmanager
def client(server: valkey.Valkey, between: Proxy) -> Iterator[redis.Redis]:
    """Return a client without retries."""
    with redis.Redis.from_url(between.url(server.url), socket_timeout=PATIENCE_S, retry=valkey.NO_RETRY) as one:
        yield one


def test_it_forwards_both_ways(valkey: valkey.Valkey, between: Proxy) -> None:
    """An answer of many pieces arrives too."""
    with client(valkey, between) as one:
        assert one.echo("x" * 1_000_000) == b"x" * 1_000_000


def test_a_cut_breaks_connections_and_refuses_new_ones_until_mended(valkey: valkey.Valkey, between: Proxy) -> None:
    """The server's host seems to be gone."""
    with client(valkey, between) as one:
        assert one.ping()
        between.cut()
        with pytest.raises(redis.ConnectionError):
            one.ping()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", between.port))
        between.mend()
        assert one.ping()


@pytest.mark.parametrize("directions", [(), (REQUESTS,), (ANSWERS,)], ids=["both", "requests", "answers"])
def test_held_data_arrives_after_the_release(
    valkey: valkey.Valkey, between: Proxy, directions: tuple[str, ...]
) -> None:
    """Packets are lost for a while: the connection stays, and nothing is lost."""
    with socket.create_connection(("127.0.0.1", between.port), timeout=PATIENCE_S) as raw:
        between.hold(*directions)
        raw.sendall(b"PING\r\n")
        raw.settimeout(SOON_S)
        with pytest.raises(TimeoutError):
            raw.recv(100)
        raw.settimeout(PATIENCE_S)
        between.release()
        assert raw.recv(100).startswith(b"-NOAUTH")


def test_only_held_requests_do_not_reach_the_server(valkey: valkey.Valkey, between: Proxy) -> None:
    """The server executed the request whose answer was held, and not the request that was held."""
    for direction, reaches in ((REQUESTS, False), (ANSWERS, True)):
        key = f"held:{direction}:{between.port}"
        with client(valkey, between) as one, ThreadPoolExecutor(max_workers=1) as thread:
            assert one.ping()
            between.hold(direction)
            waiting = thread.submit(one.set, key, "there")
            with pytest.raises(TimeoutError):
                waiting.result(SOON_S)
            if reaches:
                managed_program.wait_until(partial(valkey.execute, "EXISTS", key), "the request to reach the server")
                assert not waiting.done()
            assert valkey.execute("EXISTS", key) == reaches
            between.release()
            assert waiting.result(PATIENCE_S)
        assert valkey.execute("EXISTS", key) == 1


def test_a_cut_ends_held_connections(between: Proxy) -> None:
    with socket.create_connection(("127.0.0.1", between.port), timeout=PATIENCE_S) as raw:
        between.hold()
        raw.sendall(b"PING\r\n")
        between.cut()
        with contextlib.suppress(ConnectionResetError):
            assert raw.recv(100) == b""


def test_a_delayed_answer_comes_later(valkey: valkey.Valkey, between: Proxy) -> None:
    with client(valkey, between) as one:
        assert one.ping()
        between.delay(SOON_S)
        began = time.monotonic()
        assert one.ping()
        assert time.monotonic() - began >= SOON_S


def test_an_answer_is_lost_after_the_commit(postgresql: PostgresqlServer, postgresql_url: str) -> None:
    """The server stored the value, although its client got no answer."""
    PostgresqlServer(postgresql_url).execute("CREATE TABLE stored (number int)")

    async def store(between: Proxy) -> None:
        connection = await asyncpg.connect(between.url(postgresql_url))
        await connection.execute("BEGIN; INSERT INTO stored VALUES (1)")
        between.drop_answers_after(lambda sent: b"COMMIT" in sent)
        with pytest.raises((asyncpg.PostgresConnectionError, OSError)):
            await connection.execute("COMMIT")

    with Proxy(postgresql_url) as between:
        asyncio.run(store(between))
        assert between.dropped == 1
        between.drop_answers_after(None)
        assert PostgresqlServer(between.url(postgresql_url)).value("SELECT count(*) FROM stored") == 1


def test_data_sent_before_a_close_arrives() -> None:
    """However slowly the client reads; then the connection ends."""
    last_words = b"x" * 5_000_000

    def speak_and_leave(server: socket.socket) -> None:
        accepted, _ = server.accept()
        with accepted:
            accepted.sendall(last_words)

    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        ThreadPoolExecutor(max_workers=1) as thread,
        Proxy(f"tcp://127.0.0.1:{server.getsockname()[1]}") as between,
        socket.socket() as raw,
    ):
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        raw.settimeout(PATIENCE_S)
        raw.connect(("127.0.0.1", between.port))
        thread.submit(speak_and_leave, server)
        received = 0
        while piece := raw.recv(2048):
            received += len(piece)
        assert received == len(last_words)


def test_a_cut_proxy_keeps_its_port(between: Proxy) -> None:
    between.cut()
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(("127.0.0.1", between.port))


def test_nobody_else_gets_a_reserved_port() -> None:
    """A stopped server finds its port free when it restarts."""
    with managed_program.reserve_port() as reserved:
        port = reserved.getsockname()[1]
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", port))
        with socket.create_server(("127.0.0.1", port)):
            pass
