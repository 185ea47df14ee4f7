"""Several processes as one server. Source: docs/interface.md section D1 (WORKERS, DRAIN_S, METRICS_LISTEN)."""

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from pathlib import Path

import psutil
import pytest
from prometheus_client.parser import text_string_to_metric_families

from stoplist.server.listening_sockets import open_sockets
from tests.constants import HIGH_LIMIT, PATIENCE_S
from tests.e2e import load
from tests.e2e.conftest import SECRET_KEY, own_limits_url, postgresql_installation, run_first, scaled_installation
from tests.e2e.server_process import (
    Installation,
    RunningServer,
    metrics_page,
    processes,
    reserved_address,
    workers,
)
from tests.keys import Key
from tests.server.serving import RawConnection, WireAnswer
from tests.services.managed_program import reserve_port, wait_until
from tests.services.proxy import Proxy
from tests.services.valkey import Valkey

READYZ = b"GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n"
HEALTHZ = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
_WAIT_FOR_GATE = """
import pathlib, sys, time

while "--multiprocessing-fork" in sys.orig_argv and not pathlib.Path({gate!r}).exists():
    time.sleep(0.005)
"""


@pytest.fixture(scope="module")
def proxied(scaled: Installation, valkey: Valkey) -> Iterator[tuple[Installation, Proxy]]:
    """Return an installation on the same database through a proxy."""
    with Proxy(scaled.database_url) as between:
        url = between.url(scaled.database_url)
        yield postgresql_installation(scaled.folder, url, LIMITS_URL=own_limits_url(valkey), WORKERS="2"), between


# Observing a server


def worker_of(server: RunningServer, line: RawConnection) -> psutil.Process:
    """Return the worker that serves this connection."""
    port = line.writer.get_extra_info("sockname")[1]

    def serving_workers() -> list[psutil.Process]:
        return [
            process
            for process in workers(server)
            if any(c.raddr and c.raddr.port == port for c in process.net_connections())
        ]

    wait_until(lambda: bool(serving_workers()), "a worker to accept the connection")
    return serving_workers()[0]


def assert_ended(server: RunningServer, earlier: list[psutil.Process]) -> None:
    """Assert that no process is left, and that every line of the log is complete and JSON."""
    gone, left = psutil.wait_procs(earlier, timeout=PATIENCE_S)
    assert (len(gone), left) == (len(earlier), [])
    for line in server.log.text.splitlines():
        try:
            json.loads(line)
        except ValueError:
            pytest.fail(f"A warning, a traceback or half a line: {server.log.text}")


def messages(server: RunningServer) -> list[str]:
    return [line["message"] for line in server.log.lines]


def counts(address: str) -> dict[str, float]:
    """Return every sample of the metrics page, by name and labels."""
    return {
        " ".join((sample.name.removeprefix("stoplist_"), *sample.labels.values())): sample.value
        for family in text_string_to_metric_families(metrics_page(address))
        for sample in family.samples
    }


def wait_for_count(address: str, name: str, count: float) -> dict[str, float]:
    """Wait for this count on the metrics page: a worker that is too busy to answer appears with its last values."""
    wait_until(lambda: counts(address).get(name) == count, f"{name} to be {count:g}", every_s=0.05)
    return counts(address)


def assert_no_count_decreased(before: dict[str, float], after: dict[str, float]) -> None:
    counters = {name for name in before if name.split(" ")[0].endswith(("_total", "_count", "_bucket", "_sum"))}
    assert counters
    assert {name: after.get(name) for name in counters if after.get(name, -1.0) < before[name]} == {}


@contextlib.contextmanager
def starting(installation: Installation, *flags: str, **variables: str) -> Iterator[RunningServer]:
    """Start a server and wait until its first worker process exists."""
    server = RunningServer(installation, flags, variables)
    try:
        wait_until(lambda: bool(workers(server)), "a worker process")
        yield server
    finally:
        server.kill()


def gated(installation: Installation, folder: Path) -> tuple[Installation, Path]:
    """Return the deployment with worker processes that do nothing until a file exists, and that file."""
    gate, held = folder / "gate", Installation(folder)
    held.variables = dict(installation.variables)
    return run_first(_WAIT_FOR_GATE.format(gate=str(gate)), held), gate


# Serving


def test_workers_share_port_limits_and_metrics(scaled: Installation) -> None:
    """The limit decides how many of 60 concurrent requests, over connections to each, are accepted; all are counted."""
    key = scaled.new_key(per_minute=30)

    async def ask_all(server: RunningServer) -> tuple[list[WireAnswer], set[int]]:
        async with _connections_to_both(server) as of, load.connections([server], 10) as more:
            serving, lines = set(of), [*of.values(), *more]
            asked = [[load.send_once(line, load.issue(key)) for line in lines] for _ in range(5)]
            return [answer for some in asked for answer in await asyncio.gather(*some)], serving

    with reserved_address() as metrics, scaled.serving(METRICS_LISTEN=metrics) as server:
        earlier = processes(server)
        answers, serving = asyncio.run(ask_all(server))
        assert serving == {process.pid for process in workers(server)}
        statuses = [answer.status for answer in answers]
        assert (statuses.count(200), statuses.count(429)) == (30, 30)
        serving_workers = wait_for_count(metrics, "request_seconds_count /oauth/token", 60)
        assert serving_workers["requests_total /oauth/token 200"] == serving_workers["tokens_issued_total"] == 30
        assert (serving_workers["workers"], serving_workers["workers_replaced_total"]) == (2, 0)
        assert_no_secret_is_visible(earlier)
        assert server.terminate() == 0
        assert_ended(server, earlier)
        assert messages(server)[-1] == "Stopped"


def assert_no_secret_is_visible(earlier: list[psutil.Process]) -> None:
    """Assert that no command line has a secret, and that nobody can attach to the processes' communication."""
    for process in earlier:
        assert SECRET_KEY not in " ".join(process.cmdline())
        assert "postgresql://" not in " ".join(process.cmdline())
        assert [pair.laddr for pair in process.net_connections(kind="unix") if pair.laddr] == []


# A worker dies


@pytest.mark.slow
def test_a_killed_worker_loses_only_its_current_requests(scaled: Installation) -> None:
    """Every 200 answer is stored, the worker is replaced, no metric decreases, and the parent keeps nothing of it."""
    key = scaled.new_key(per_minute=HIGH_LIMIT)
    with reserved_address() as metrics, scaled.serving(METRICS_LISTEN=metrics) as server:
        parent, known = processes(server)[0], workers(server)
        asyncio.run(_statuses(server, [READYZ] * 10))
        before, held = wait_for_count(metrics, "requests_total /readyz 200", 10), parent.num_fds()
        tokens, broken, in_hand = asyncio.run(_load_until_killed(server, key, known[0]))
        assert broken <= in_hand
        for replaced in (1, 2):
            wait_until(partial(_wait_until_serving, server, 2 + replaced), "the next worker")
            after = wait_for_count(metrics, "workers", 2)
            assert_no_count_decreased(before, after)
            assert (after["workers"], after["workers_replaced_total"]) == (2, replaced)
            before = after
            if replaced == 1:
                known[1].kill()
        assert before["requests_total /readyz 200"] == 10, "what both had counted that are gone"
        wait_until(lambda: parent.num_fds() <= held, "what belonged to the dead to be closed")
        assert asyncio.run(_statuses(server, [load.call(token) for token in tokens])) == {404}
        assert SECRET_KEY not in server.log.text


async def _load_until_killed(server: RunningServer, key: Key, victim: psutil.Process) -> tuple[list[str], int, int]:
    """Return the answered tokens, the number of broken requests, and the victim's connections when it was killed."""
    tokens: list[str] = []
    broken = in_hand = 0
    enough = asyncio.Event()
    request = load.issue(key)

    async def ask_on(line: RawConnection) -> None:
        nonlocal broken
        while len(tokens) < 400:
            try:
                answer = await load.send_once(line, request)
            except load.BROKEN:
                broken += 1
                async with load.connection(server) as next_line:
                    await ask_on(next_line)
                return
            assert answer.status == 200
            tokens.append(answer.json()["access_token"])
            if len(tokens) == 150:
                enough.set()

    async def kill() -> None:
        nonlocal in_hand
        await enough.wait()
        in_hand = sum(process.status == psutil.CONN_ESTABLISHED for process in victim.net_connections(kind="tcp"))
        victim.kill()

    async with load.connections([server], 8) as lines:
        await asyncio.gather(kill(), *map(ask_on, lines))
    return tokens, broken, in_hand


async def _statuses(server: RunningServer, requests: list[bytes]) -> set[int]:
    async with load.connection(server) as line:
        return {(await load.send_once(line, request)).status for request in requests}


def _wait_until_serving(server: RunningServer, number: int) -> bool:
    return messages(server).count("A worker serves") == number


@pytest.mark.slow
def test_a_worker_is_restarted_until_the_database_is_back(proxied: tuple[Installation, Proxy]) -> None:
    """The error is logged without an address, and nobody needs to intervene."""
    installation, between = proxied
    with installation.serving(DRAIN_S="1") as server:
        known = workers(server)
        between.cut()
        try:
            known[0].kill()
            wait_until(lambda: messages(server).count("A worker has ended and is replaced") > 1, "an attempt")
            assert processes(server)[0].is_running()
        finally:
            between.mend()
        wait_until(lambda: _wait_until_serving(server, 3), "the worker to be there")
        with server.client() as client:
            assert client.get("/readyz").status_code == 200
        replaced = [line for line in server.log.lines if line["message"] == "A worker has ended and is replaced"]
        whys = [line["why"] for line in replaced]
        assert whys[0] == "exit status -9"
        assert "STOPLIST_DATABASE_URL" in whys[1]
        assert installation.database_url.rpartition("@")[0].rpartition(":")[2] not in server.log.text
        earlier = processes(server)
        assert server.terminate() == 0
        assert_ended(server, earlier)


@pytest.mark.slow
def test_workers_finish_and_end_when_the_parent_dies(scaled: Installation) -> None:
    """A request in flight is answered; then the port is free, and a new server starts on it."""
    key = scaled.new_key()
    with scaled.serving(DRAIN_S="60") as server:
        earlier = processes(server)
        answer = asyncio.run(load.answer_across_stop(server, key, server.process.kill))
        assert answer.status == 200
        assert_ended(server, earlier)
        with scaled.serving(PORT=str(server.port)) as next_one:
            assert asyncio.run(_statuses(next_one, [READYZ])) == {200}


# Stopping


def _group(number: signal.Signals) -> Callable[[RunningServer], None]:
    return lambda server: os.killpg(server.process.pid, number)


STOPS: dict[str, Callable[[RunningServer], None]] = {
    "SIGTERM to the parent": lambda server: server.process.send_signal(signal.SIGTERM),
    "SIGTERM to all, as systemd does": _group(signal.SIGTERM),
    "SIGINT to all, as Ctrl+C does": _group(signal.SIGINT),
}


@pytest.mark.parametrize("stop", STOPS.values(), ids=STOPS)
def test_all_workers_finish_requests_in_flight(scaled: Installation, stop: Callable[[RunningServer], None]) -> None:
    """Nothing else is accepted; the exit status is 0 and the last message "Stopped"."""
    key = scaled.new_key()
    with scaled.serving(DRAIN_S="60") as server:
        earlier = processes(server)
        answer = asyncio.run(load.answer_across_stop(server, key, lambda: stop(server)))
        assert (answer.status, answer.headers["connection"]) == (200, "close")
        assert server.wait_for_exit() == 0
        assert_ended(server, earlier)
        assert messages(server)[-1] == "Stopped"
        assert messages(server).count("A worker has stopped") == 2


def test_readiness_announces_a_stop_before_connections_are_refused(scaled: Installation) -> None:
    """Asked of one worker, answered by both: 503 on new and on old connections, each of which is then closed."""

    async def announcement(server: RunningServer, metrics: str) -> list[WireAnswer]:
        async with _connections_to_both(server) as kept:
            first, second = kept.values()
            assert (await load.send_once(first, READYZ)).status == 200
            # Once the parent has reported the other worker's counts, it has passed on before that this one was asked.
            await asyncio.to_thread(wait_for_count, metrics, "requests_total /readyz 200", 1)
            assert (await load.send_once(second, HEALTHZ)).status == 200
            await asyncio.to_thread(wait_for_count, metrics, "requests_total /healthz 200", 1)
            server.process.send_signal(signal.SIGTERM)
            told = await _wait_for_not_ready(server, set(kept))
            told += [await load.send_once(line, READYZ) for line in (second, first)]
        # The rest of the notice period need not pass.
        server.process.send_signal(signal.SIGINT)
        await load.wait_until_refused(server)
        return told

    # Half of it is the notice period: enough on a busy machine.
    with reserved_address() as metrics, scaled.serving(DRAIN_S="120", METRICS_LISTEN=metrics) as server:
        told = asyncio.run(announcement(server, metrics))
        assert server.wait_for_exit() == 0
    assert {(answer.status, answer.headers["connection"]) for answer in told} == {(503, "close")}


@contextlib.asynccontextmanager
async def _connections_to_both(server: RunningServer) -> AsyncIterator[dict[int, RawConnection]]:
    """Open a connection to each of two workers, by process id."""
    serving_workers: dict[int, RawConnection] = {}
    async with contextlib.AsyncExitStack() as lines:
        while len(serving_workers) < 2:
            line = await lines.enter_async_context(load.connection(server))
            serving_workers.setdefault(worker_of(server, line).pid, line)
        yield serving_workers


async def _wait_for_not_ready(server: RunningServer, pids: set[int]) -> list[WireAnswer]:
    """Wait until each worker has answered on a new connection that it is not ready, and return these answers."""
    told: list[WireAnswer] = []
    async with asyncio.timeout(PATIENCE_S):
        while pids:
            async with load.connection(server) as line:
                pid = worker_of(server, line).pid
                answer = await load.send_once(line, READYZ)
            # Until the stop reaches this worker, it is ready.
            assert answer.status in (200, 503)
            if answer.status == 503:
                told.append(answer)
                pids = pids - {pid}
    return told


@pytest.mark.slow
def test_a_second_ctrl_c_does_not_wait(scaled: Installation) -> None:
    """Requests in flight are cut off."""
    key = scaled.new_key()

    async def stopped_at_once(server: RunningServer) -> bool:
        async with load.in_flight(server, key) as (line, _):
            _group(signal.SIGINT)(server)
            await load.wait_until_refused(server)
            _group(signal.SIGINT)(server)
            return await line.is_closed()

    with scaled.serving(DRAIN_S="600") as server:
        earlier = processes(server)
        assert asyncio.run(stopped_at_once(server))
        assert server.wait_for_exit() == 0
        assert_ended(server, earlier)
        assert messages(server)[-1] == "Stopped"
        assert messages(server).count("A worker has stopped") == 2


def test_a_worker_leaves_ctrl_c_to_its_parent(scaled: Installation) -> None:
    """A terminal sends it to all processes: neither a starting nor a serving worker reacts to it."""
    with starting(scaled) as server:
        for _ in range(2):
            for process in workers(server):
                process.send_signal(signal.SIGINT)
            assert server.log.wait_for_line(lambda line: line["message"] == "Serving")
        assert asyncio.run(_statuses(server, [READYZ])) == {200}
        # The log line of the request may come later.
        assert set(messages(server)) - {"request"} == {"A worker serves", "Serving"}


@pytest.mark.slow
def test_a_frozen_worker_delays_neither_metrics_nor_stop(scaled: Installation) -> None:
    """Its counts stay on the page; it is killed a few seconds after the others end, and the status is 0."""
    with reserved_address() as metrics, scaled.serving(METRICS_LISTEN=metrics, DRAIN_S="0") as server:
        earlier = processes(server)
        asyncio.run(_statuses(server, [READYZ] * 5))
        before = counts(metrics)
        hanging = workers(server)[0]
        hanging.suspend()
        after = counts(metrics)
        assert_no_count_decreased(before, after)
        assert after["workers"] == 2
        assert server.terminate() == 0
        assert_ended(server, earlier)
        assert messages(server)[-2:] == ["Workers that do not stop are killed", "Stopped"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_while_workers_start_is_quiet(scaled: Installation, number: signal.Signals) -> None:
    """Sent to the whole process group: no traceback, status 0."""
    with starting(scaled, WORKERS="2") as server:
        earlier = processes(server)
        _group(number)(server)
        assert server.wait_for_exit() == 0
        assert_ended(server, earlier)
        assert messages(server)[-1] == "Stopped"


@pytest.mark.slow
def test_a_stop_while_a_worker_is_replaced_stops(scaled: Installation) -> None:
    """No other worker is started."""
    with scaled.serving() as server:
        earlier = processes(server)
        workers(server)[0].kill()
        wait_until(lambda: "A worker has ended and is replaced" in messages(server), "the end to be seen")
        assert server.terminate() == 0
        assert_ended(server, earlier)
        assert messages(server).count("A worker serves") == 2


# Failed starts


def test_a_worker_that_cannot_start_ends_the_server(scaled: Installation, tmp_path: Path) -> None:
    """It dies while starting: one error, exit status 1, no process left."""
    installation, _ = gated(scaled, tmp_path)
    with starting(installation, WORKERS="3") as server:
        earlier = processes(server)
        workers(server)[0].kill()
        assert server.wait_for_exit() == 1
        assert "stoplist: A server process could not start: exit status -9\n" in server.log.text
        assert server.log.text.count("stoplist: ") == 1
        _, left = psutil.wait_procs(earlier, timeout=PATIENCE_S)
        assert left == []


@pytest.mark.slow
def test_a_database_lost_during_the_start_is_one_error(proxied: tuple[Installation, Proxy], tmp_path: Path) -> None:
    """It is lost between the checks of the parent and of the workers."""
    installation, between = proxied
    held, gate = gated(installation, tmp_path)
    try:
        with starting(held) as server:
            earlier = processes(server)
            between.cut()
            gate.touch()
            assert server.wait_for_exit() == 1
            lines = [line for line in server.log.text.splitlines() if not line.startswith("{")]
            (line,) = lines
            assert line.startswith("stoplist: A server process could not start: ")
            assert "STOPLIST_DATABASE_URL" in line
            _, left = psutil.wait_procs(earlier, timeout=PATIENCE_S)
            assert left == []
    finally:
        between.mend()


def test_a_port_in_use_is_one_error(scaled: Installation) -> None:
    """The port of the server, or of its metrics; no worker is started."""
    [taken] = open_sockets("127.0.0.1", 0)
    with taken:
        port = str(taken.getsockname()[1])
        assert "STOPLIST_HOST and STOPLIST_PORT" in scaled.refused("serve", PORT=port)
        with reserve_port() as free:
            own = str(free.getsockname()[1])
            metrics = scaled.refused("serve", PORT=own, METRICS_LISTEN=f"127.0.0.1:{port}")
        assert "STOPLIST_METRICS_LISTEN" in metrics


def test_an_empty_database_is_one_error(tmp_path: Path, postgresql_url: str, valkey: Valkey) -> None:
    """Reported by the parent, once for all workers."""
    assert "`stoplist migrate`" in scaled_installation(tmp_path, postgresql_url, valkey).refused("serve")


# Done by one process only


@pytest.mark.slow
def test_the_demo_and_the_certificate_are_created_once(scaled: Installation, tmp_path: Path, valkey: Valkey) -> None:
    """Two workers start first in the folder; both serve that certificate."""
    installation = scaled_installation(tmp_path, scaled.database_url, valkey)

    async def both_answer(server: RunningServer) -> None:
        async with _connections_to_both(server):
            pass

    with installation.serving("--demo", "--workers", "2", WORKERS="1") as server:
        assert server.out.wait_for("Stop with Ctrl+C.")
        asyncio.run(both_answer(server))
        earlier = processes(server)
        assert server.terminate() == 0
        assert_ended(server, earlier)
        assert server.out.text.count("Stop with Ctrl+C.") == 1


def test_a_single_process_does_not_load_worker_code(installation: Installation) -> None:
    """Neither the supervisor nor the client of the limit store is loaded, so its start takes no longer."""
    installation.variables["PYTHONPROFILEIMPORTTIME"] = "1"
    with installation.serving() as server:
        imported = {line.rpartition("|")[2].strip() for line in server.log.text.splitlines() if "|" in line}
        assert "stoplist.server.lifecycle" in imported
        unwanted = {"stoplist.server.supervisor", "multiprocessing.resource_tracker", "stoplist.limits.shared", "redis"}
        assert imported & unwanted == set()
