"""Twenty thousand connections that strangers hold leave the server usable and small (docs/interface.md section D4)."""

import contextlib
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.constants import PATIENCE_S
from tests.e2e import held_connections
from tests.e2e.conftest import run_first
from tests.e2e.server_process import Installation, RunningServer
from tests.keys import CLIENT_CREDENTIALS

pytestmark = pytest.mark.slow

CONNECTIONS, MOST_MIB = 20_000, 600
# The server keeps 10 000 connections, and each of four clients holds 5 000.
OPEN_FILES = 12_000
# A busy machine takes minutes to open so many: meanwhile the server ends none because its time is over.
_LONG_DEADLINES = """
import sys
if "serve" in sys.orig_argv:
    from functools import partial
    from stoplist.server import lifecycle
    lifecycle.Bounds = partial(lifecycle.Bounds, head_s=3600.0, request_s=3600.0, handshake_s=3600.0)
"""


@pytest.fixture
def many_open_files() -> Iterator[None]:
    """Let the processes of the test open as many files as the system allows."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    if before[1] != resource.RLIM_INFINITY and before[1] < OPEN_FILES:
        pytest.skip(f"the system allows no {OPEN_FILES} open files in a process (ulimit -Hn)")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(before[0], OPEN_FILES), before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def memory_mib(server: RunningServer, field: str = "VmRSS") -> int:
    lines = Path(f"/proc/{server.process.pid}/status").read_text().splitlines()
    [kib] = [line.split()[1] for line in lines if line.startswith(f"{field}:")]
    return int(kib) // 1024


@contextlib.contextmanager
def holding(server: RunningServer, kind: str, number: int, network: int) -> Iterator[subprocess.Popen[str]]:
    """Hold connections of a kind, each from one of many sources, until the end of the context."""
    arguments = [held_connections.__file__, str(server.port), str(server.ca), kind, str(number), str(network)]
    command = [sys.executable, *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
        yield program


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has all of 127.0.0.0/8, and /proc")
@pytest.mark.usefixtures("many_open_files")
def test_strangers_hold_neither_the_server_nor_its_memory(installation: Installation) -> None:
    """They are idle, send no hello of TLS, and have begun a head of 64 KiB or a form to sign in."""
    run_first(_LONG_DEADLINES, installation)
    with installation.serving() as server, server.client() as client:
        key = installation.new_key(per_minute=1000)
        kinds = list(held_connections.KINDS)
        with contextlib.ExitStack() as stack:
            programs = [
                stack.enter_context(holding(server, kind, CONNECTIONS // len(kinds), 10 + network))
                for network, kind in enumerate(kinds)
            ]
            for program in programs:
                assert program.stdout is not None
                assert program.stdout.readline() == "held\n"
                assert client.get("/healthz").status_code == 200
            grant = client.post("/oauth/token", data=CLIENT_CREDENTIALS, auth=key)
            assert grant.status_code == 200
            with server.client() as newcomer:
                assert newcomer.get("/healthz").status_code == 200
            assert memory_mib(server, "VmHWM") < MOST_MIB
            most_mib = memory_mib(server)
        for _ in range(round(PATIENCE_S)):
            if memory_mib(server) < 0.8 * most_mib:
                break
            with contextlib.suppress(subprocess.TimeoutExpired):  # the server sees the end of its connections
                server.process.wait(1)
        assert memory_mib(server) < 0.8 * most_mib
        assert server.log.wait_for_line(lambda line: line["message"].startswith("Too many connections: "))
