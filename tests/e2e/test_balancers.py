"""Two hosts' worth of servers behind a balancer, with the configurations given to operators.

Source: docs/interface.md section D1 (HTTPS, Scale-out, DRAIN_S); docs/operate.md.
"""

import asyncio
import contextlib
import itertools
import json
import os
import ssl
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from stoplist.server import development_ca
from tests.constants import HIGH_LIMIT, PATIENCE_S, ROOT
from tests.e2e import load
from tests.e2e.conftest import own_limits_url, postgresql_installation
from tests.e2e.partners import new_token
from tests.e2e.server_process import Installation, RunningServer
from tests.keys import Key
from tests.server.serving import RawConnection, WireAnswer
from tests.services import haproxy as balancers
from tests.services.valkey import Valkey

pytestmark = pytest.mark.slow

DEPLOY = ROOT / "deploy"
# A caller's pause between requests, many of which fall into each moment of a replacement.
CALLERS, PACE_S = 6, 0.2
# Half of it is the notice period: a balancer that checks every second needs two checks, on a busy machine more.
DRAIN_S = 12


class BalancedServers:
    """A balancer and the servers behind it, which are reached only through the balancer."""

    def __init__(self, balancer: balancers.Balancer) -> None:
        self.port, self.folder = balancer.port, balancer.folder
        self.tls = ssl.create_default_context(cafile=balancer.folder / "ca.pem")


def test_servers_behind_a_balancer_are_replaced_without_failures(
    balancer_name: balancers.Name, postgresql_url: str, valkey: Valkey, tmp_path: Path
) -> None:
    """Each of two servers with two workers is stopped and started while partners go on; all that was answered is there.

    The balancer's log has a line for each request, none of them with what stood behind the question mark.
    """
    installation = postgresql_installation(
        tmp_path,
        postgresql_url,
        LIMITS_URL=own_limits_url(valkey),
        WORKERS="2",
        TRUSTED_PROXIES="127.0.0.0/8",
        DRAIN_S=str(DRAIN_S),
    )
    installation.ok("migrate")
    key = installation.new_key(per_minute=HIGH_LIMIT)
    with contextlib.ExitStack() as running:
        servers = [running.enter_context(installation.serving()) for _ in range(2)]
        behind = running.enter_context(_start_balancer(balancer_name, servers))
        stored = asyncio.run(_replace_each(installation, running, servers, behind, key))
        asyncio.run(_all_there(behind, key, stored))
        log = _wait_for_log(balancer_name, behind, "/u/*")
    assert "/api/v1/unsubscribe/email" in log
    assert "POST" in log
    assert "?" not in log
    assert "example.org" not in log
    assert "tokenofalink" not in log


async def _replace_each(
    installation: Installation,
    running: contextlib.ExitStack,
    servers: list[RunningServer],
    behind: BalancedServers,
    key: Key,
) -> set[str]:
    """Replace one server after the other, and return what callers stored meanwhile without a pause."""
    callers = [_Caller(number) for number in range(CALLERS)]
    is_over = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        for caller in callers:
            group.create_task(caller.go_on(behind, key, is_over))
        for server in servers:
            await _wait_for_answers(callers, 5)
            assert await asyncio.to_thread(server.terminate) == 0
            await _wait_for_answers(callers, 5)
            again = await asyncio.to_thread(running.enter_context, installation.serving(PORT=str(server.port)))
            assert await asyncio.to_thread(again.log.wait_for_line, lambda line: line.get("path") == "/oauth/token")
        is_over.set()
    return set().union(*(caller.stored for caller in callers))


async def _wait_for_answers(callers: "list[_Caller]", answers: int) -> None:
    """Wait until every caller has so many more answers."""
    goal = [caller.answers + answers for caller in callers]
    async with asyncio.timeout(PATIENCE_S):
        while any(caller.answers < least for caller, least in zip(callers, goal, strict=True)):  # noqa: ASYNC110
            await asyncio.sleep(0.05)


class _Caller:
    """A partner's program that requests tokens, submits and looks up, each time on a new connection."""

    def __init__(self, number: int) -> None:
        self._number = number
        self.answers = 0
        self.stored: set[str] = set()

    async def go_on(self, behind: BalancedServers, key: Key, is_over: asyncio.Event) -> None:
        for nth in itertools.count():
            if is_over.is_set():
                return
            address = f"p{self._number}-{nth}@example.org"
            token = json.loads((await self._ask(behind, load.issue(key))).body)["access_token"]
            await self._ask(behind, load.submit(token, "email", [{"address": address}]))
            self.stored.add(address)
            found = await self._ask(behind, load.look_up(token, "email", address))
            assert [record["address"] for record in json.loads(found.body)["items"]] == [address]

    async def _ask(self, behind: BalancedServers, request: bytes) -> WireAnswer:
        async with _connected(behind) as line:
            answer = await load.send_once(line, request)
        assert answer.status == 200, answer
        self.answers += 1
        await asyncio.sleep(PACE_S)
        return answer


async def _all_there(behind: BalancedServers, key: Key, stored: set[str]) -> None:
    async with _connected(behind) as line:
        token = await new_token(line, load.issue(key))
    async with _connected(behind) as line:
        page = json.loads((await load.send_once(line, load.follow(token, "email", limit=10_000, cursor=None))).body)
    assert {record["address"] for record in page["items"]} == stored
    async with _connected(behind) as line:
        request = b"GET /u/tokenofalink HTTP/1.1\r\nHost: localhost\r\n\r\n"
        assert (await load.send_once(line, request)).status == 404


@contextlib.asynccontextmanager
async def _connected(behind: BalancedServers) -> AsyncIterator[RawConnection]:
    line = RawConnection(*await asyncio.open_connection("localhost", behind.port, ssl=behind.tls))
    try:
        yield line
    finally:
        line.writer.transport.abort()
        with contextlib.suppress(OSError):
            await line.writer.wait_closed()


@contextlib.contextmanager
def _start_balancer(name: balancers.Name, servers: list[RunningServer]) -> Iterator[BalancedServers]:
    """Start the balancer with the configuration of `deploy/`, but with addresses, files and logs of the test."""
    file = DEPLOY / ("haproxy.cfg" if name == "haproxy" else "nginx.conf")
    text = file.read_text()
    for number, server in enumerate(servers, 11):
        text = _replaced(text, f"10.0.0.{number}:8080", f"127.0.0.1:{server.port}")
    for folder in ("/etc/haproxy/", "/etc/nginx/", "/var/log/nginx/"):
        text = text.replace(folder, "")
    issued = development_ca.issue(["localhost"], now_s=int(time.time()), known_authority=None)
    own, private_key = issued.server.certificate, issued.server.key
    files = {
        "stoplist.pem": own + private_key if name == "haproxy" else own,
        "stoplist-key.pem": private_key,
        "ca.pem": issued.authority.certificate,
    }
    with balancers.Balancer(name, lambda port: _listening_on(port, name, text), files=files) as balancer:
        yield BalancedServers(balancer)


def _listening_on(port: int, name: balancers.Name, text: str) -> str:
    if name == "haproxy":
        text = _replaced(text, "bind :443 ", f"bind 127.0.0.1:{port} ")
        # Relative names are resolved in the folder of the configuration.
        return _replaced(text, "\nglobal\n", "\nglobal\n    default-path config\n")
    return "user root;\npid nginx.pid;\n" * (os.geteuid() == 0) + _replaced(
        text, "listen 443 ssl", f"listen 127.0.0.1:{port} ssl"
    )


def _replaced(text: str, old: str, new: str) -> str:
    assert old in text
    return text.replace(old, new)


def _wait_for_log(name: balancers.Name, behind: BalancedServers, last: str) -> str:
    """Return the log once it holds `last`: a balancer writes the line of a request after the answer."""
    file = behind.folder / ("output.log" if name == "haproxy" else "stoplist.log")
    deadline_s = time.monotonic() + PATIENCE_S
    while last not in (log := file.read_text()):
        assert time.monotonic() < deadline_s, log
        time.sleep(0.02)
    return log
