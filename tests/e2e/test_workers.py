"""Several processes as one server (docs/interface.md section D1: WORKERS, DRAIN_S, METRICS_LISTEN)."""

import asyncio
import contextlib
import json
import os
import signal
import ssl
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from prometheus_client.parser import text_string_to_metric_families

from stoplist.server.http_server import listen
from tests.e2e import load
from tests.e2e.conftest import SECRET_KEY, doing_first, own_limits_url, postgresql_place, scaled_place
from tests.e2e.running import PATIENCE_S, Key, Place, Server, reserved_address
from tests.server.serving import Answer, Connection
from tests.services.managed_program import reserve_port, wait_until
from tests.services.proxy import Proxy, proxy
from tests.services.valkey import Valkey

MANY = 1_000_000
READYZ = b"GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n"
HEALTHZ = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
_BEFORE_THE_GATE = """
import pathlib, sys, time

while "--multiprocessing-fork" in sys.orig_argv and not pathlib.Path({gate!r}).exists():
    time.sleep(0.005)
"""
_BROKEN = (ConnectionError, asyncio.IncompleteReadError, ssl.SSLError)


@pytest.fixture(scope="module")
def through(scaled: Place, valkey: Valkey) -> Iterator[tuple[Place, Proxy]]:
    """The same database by way of a proxy."""
    with proxy(scaled.database_url) as between:
        url = between.url(scaled.database_url)
        yield postgresql_place(scaled.folder, url, LIMITS_URL=own_limits_url(valkey), WORKERS="2"), between


# What the tests see of a server


def processes(server: Server) -> list[psutil.Process]:
    """Every process that belongs to the server, the parent first."""
    parent = psutil.Process(server.process.pid)
    return [parent, *parent.children(recursive=True)]


def workers(server: Server) -> list[psutil.Process]:
    return [it for it in processes(server)[1:] if "spawn_main" in " ".join(_command_line(it))]


def worker_of(server: Server, line: Connection) -> psutil.Process:
    """Who serves this connection."""
    port = line.writer.get_extra_info("sockname")[1]

    def found() -> list[psutil.Process]:
        return [it for it in workers(server) if any(c.raddr and c.raddr.port == port for c in it.net_connections())]

    wait_until(lambda: bool(found()), "a worker to accept the connection")
    return found()[0]


def assert_is_over(server: Server, were: list[psutil.Process]) -> None:
    """No process of it is left, and each line that one wrote was whole and meant for the log."""
    gone, left = psutil.wait_procs(were, timeout=PATIENCE_S)
    assert (len(gone), left) == (len(were), [])
    for line in server.log.text.splitlines():
        json.loads(line)  # a warning, a traceback, half a line


def messages(server: Server) -> list[str]:
    return [line["message"] for line in server.log.lines]


def counts(address: str) -> dict[str, float]:
    """Every sample of the metrics page, by name and labels."""
    text = httpx.get(f"http://{address}/metrics", timeout=PATIENCE_S, trust_env=False).text
    return {
        " ".join((sample.name.removeprefix("stoplist_"), *sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def counted(address: str, name: str, count: float) -> dict[str, float]:
    """The metrics page that says so: one whom a busy machine keeps from answering stands there as it last was."""
    wait_until(lambda: counts(address).get(name) == count, f"{name} to be {count:g}")
    return counts(address)


def assert_none_went_back(before: dict[str, float], after: dict[str, float]) -> None:
    counters = {name for name in before if name.split(" ")[0].endswith(("_total", "_count", "_bucket", "_sum"))}
    assert counters
    assert {name: after.get(name) for name in counters if after.get(name, -1.0) < before[name]} == {}


def _command_line(process: psutil.Process) -> list[str]:
    with contextlib.suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
        return process.cmdline()
    return []


@contextlib.contextmanager
def starting(place: Place, *flags: str, **variables: str) -> Iterator[Server]:
    """A server whose first worker process has just been made."""
    server = Server(place, flags, variables)
    try:
        wait_until(lambda: bool(workers(server)), "a worker process")
        yield server
    finally:
        server.kill()


def gated(place: Place, folder: Path) -> tuple[Place, Path]:
    """The same deployment, where no worker process does anything before this file is there."""
    gate, held = folder / "gate", Place(folder)
    held.variables = dict(place.variables)
    return doing_first(_BEFORE_THE_GATE.format(gate=str(gate)), held), gate


# Serving


def test_they_serve_one_port_count_together_and_show_one_page_of_metrics(scaled: Place) -> None:
    """Of 60 requests at once, over connections to each, as many are accepted as the limit says; all are counted."""
    key = scaled.new_key(per_minute=30)

    async def ask_all(server: Server) -> tuple[list[Answer], set[int]]:
        async with _lines_to_both(server) as of, load.connections([server], 10) as more:
            serving, lines = set(of), [*of.values(), *more]
            asked = [[load.acquire(line, load.issue(key)) for line in lines] for _ in range(5)]
            return [answer for some in asked for answer in await asyncio.gather(*some)], serving

    with reserved_address() as metrics, scaled.serving(METRICS_LISTEN=metrics) as server:
        were = processes(server)
        answers, serving = asyncio.run(ask_all(server))
        assert serving == {it.pid for it in workers(server)}
        statuses = [answer.status for answer in answers]
        assert (statuses.count(200), statuses.count(429)) == (30, 30)
        found = counted(metrics, "request_seconds_count /oauth/token", 60)
        assert found["requests_total /oauth/token 200"] == found["tokens_issued_total"] == 30
        assert (found["workers"], found["workers_replaced_total"]) == (2, 0)
        assert_nothing_is_given_away(were)
        assert server.terminate() == 0
        assert_is_over(server, were)
        assert messages(server)[-1] == "Stopped"


def assert_nothing_is_given_away(were: list[psutil.Process]) -> None:
    """No secret stands in a command line, and nobody can attach to what the processes say to each other."""
    for it in were:
        assert SECRET_KEY not in " ".join(it.cmdline())
        assert "postgresql://" not in " ".join(it.cmdline())
        assert [pair.laddr for pair in it.net_connections(kind="unix") if pair.laddr] == []


# One of them dies


def test_one_that_dies_under_load_loses_only_what_it_had_in_hand(scaled: Place) -> None:
    """Whatever was answered 200 is there, it is replaced, no metric goes back, and the parent keeps no trace of it."""
    key = scaled.new_key(per_minute=MANY)
    with reserved_address() as metrics, scaled.serving(METRICS_LISTEN=metrics) as server:
        parent, known = processes(server)[0], workers(server)
        asyncio.run(_statuses(server, [READYZ] * 10))
        before, held = counted(metrics, "requests_total /readyz 200", 10), parent.num_fds()
        tokens, broken, in_hand = asyncio.run(_under_load(server, key, known[0]))
        assert broken <= in_hand
        for replaced in (1, 2):
            wait_until(partial(_have_served, server, 2 + replaced), "the next worker")
            after = counts(metrics)
            assert_none_went_back(before, after)
            assert (after["workers"], after["workers_replaced_total"]) == (2, replaced)
            before = after
            if replaced == 1:
                known[1].kill()
        assert before["requests_total /readyz 200"] == 10, "what both had counted that are gone"
        wait_until(lambda: parent.num_fds() <= held, "what belonged to the dead to be closed")
        assert asyncio.run(_statuses(server, [load.call(token) for token in tokens])) == {404}
        assert SECRET_KEY not in server.log.text


async def _under_load(server: Server, key: Key, victim: psutil.Process) -> tuple[list[str], int, int]:
    """The tokens answered, how many requests broke, and how many connections the victim had when it was killed."""
    tokens: list[str] = []
    broken = in_hand = 0
    enough = asyncio.Event()
    request = load.issue(key)

    async def ask_on(line: Connection) -> None:
        nonlocal broken
        while len(tokens) < 400:
            try:
                answer = await load.acquire(line, request)
            except _BROKEN:
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
        in_hand = sum(it.status == psutil.CONN_ESTABLISHED for it in victim.net_connections(kind="tcp"))
        victim.kill()

    async with load.connections([server], 8) as lines:
        await asyncio.gather(kill(), *map(ask_on, lines))
    return tokens, broken, in_hand


async def _statuses(server: Server, requests: list[bytes]) -> set[int]:
    async with load.connection(server) as line:
        return {(await load.acquire(line, request)).status for request in requests}


def _have_served(server: Server, number: int) -> bool:
    return messages(server).count("A worker serves") == number


def test_while_the_database_is_away_a_worker_is_tried_again_until_it_is_back(through: tuple[Place, Proxy]) -> None:
    """The error is said without an address, and nobody need lend a hand."""
    place, between = through
    with place.serving(DRAIN_S="1") as server:
        known = workers(server)
        between.cut()
        try:
            known[0].kill()
            wait_until(lambda: messages(server).count("A worker has ended and is replaced") > 1, "an attempt")
            assert processes(server)[0].is_running()
        finally:
            between.mend()
        wait_until(lambda: _have_served(server, 3), "the worker to be there")
        with server.client() as client:
            assert client.get("/readyz").status_code == 200
        replaced = [line for line in server.log.lines if line["message"] == "A worker has ended and is replaced"]
        whys = [line["why"] for line in replaced]
        assert whys[0] == "exit status -9"
        assert "STOPLIST_DATABASE_URL" in whys[1]
        assert place.database_url.rpartition("@")[0].rpartition(":")[2] not in server.log.text
        were = processes(server)
        assert server.terminate() == 0
        assert_is_over(server, were)


def test_when_the_parent_dies_the_workers_finish_and_end(scaled: Place) -> None:
    """A request in flight is answered; then the port is free, and a new server starts on it."""
    key = scaled.new_key()
    with scaled.serving(DRAIN_S="60") as server:
        were = processes(server)
        answer = asyncio.run(_answer_across(server, key, server.process.kill))
        assert answer.status == 200
        assert_is_over(server, were)
        with scaled.serving(PORT=str(server.port)) as next_one:
            assert asyncio.run(_statuses(next_one, [READYZ])) == {200}


# The stop


def _group(number: signal.Signals) -> Callable[[Server], None]:
    return lambda server: os.killpg(server.process.pid, number)


STOPS: dict[str, Callable[[Server], None]] = {
    "SIGTERM to the parent": lambda server: server.process.send_signal(signal.SIGTERM),
    "SIGTERM to all, as systemd does": _group(signal.SIGTERM),
    "SIGINT to all, as Ctrl+C does": _group(signal.SIGINT),
}


@pytest.mark.parametrize("stop", STOPS.values(), ids=STOPS)
def test_all_finish_what_is_in_flight(scaled: Place, stop: Callable[[Server], None]) -> None:
    """Nothing else is accepted; the exit status is 0 and the last word "Stopped"."""
    key = scaled.new_key()
    with scaled.serving(DRAIN_S="60") as server:
        were = processes(server)
        answer = asyncio.run(_answer_across(server, key, lambda: stop(server)))
        assert (answer.status, answer.headers["connection"]) == (200, "close")
        assert server.ended() == 0
        assert_is_over(server, were)
        assert messages(server)[-1] == "Stopped"
        assert messages(server).count("A worker has stopped") == 2


async def _answer_across(server: Server, key: Key, stop: Callable[[], Any]) -> Answer:
    async with load.in_flight(server, key) as (line, body):
        stop()
        await load.refuses_connections(server)
        await line.send(body)
        return await line.answer()


def test_whoever_asks_for_readiness_hears_of_the_stop_before_connections_are_refused(scaled: Place) -> None:
    """Asked of one worker, said by both: 503 to new connections and on old ones, each of which that ends."""

    async def said(server: Server, metrics: str) -> list[Answer]:
        async with _lines_to_both(server) as kept:
            first, second = kept.values()
            assert (await load.acquire(first, READYZ)).status == 200
            # When the parent has said what the other counts, it has passed on before that this one was asked.
            await asyncio.to_thread(counted, metrics, "requests_total /readyz 200", 1)
            assert (await load.acquire(second, HEALTHZ)).status == 200
            await asyncio.to_thread(counted, metrics, "requests_total /healthz 200", 1)
            server.process.send_signal(signal.SIGTERM)
            told = await _told_by_each(server, set(kept))
            told += [await load.acquire(line, READYZ) for line in (second, first)]
        # Nobody waits for the rest of the notice.
        server.process.send_signal(signal.SIGINT)
        await load.refuses_connections(server)
        return told

    # Half of it is the notice: enough for a busy machine to be heard.
    with reserved_address() as metrics, scaled.serving(DRAIN_S="120", METRICS_LISTEN=metrics) as server:
        told = asyncio.run(said(server, metrics))
        assert server.ended() == 0
    assert {(answer.status, answer.headers["connection"]) for answer in told} == {(503, "close")}


@contextlib.asynccontextmanager
async def _lines_to_both(server: Server) -> AsyncIterator[dict[int, Connection]]:
    """A connection to each of two workers, by process id."""
    found: dict[int, Connection] = {}
    async with contextlib.AsyncExitStack() as lines:
        while len(found) < 2:
            line = await lines.enter_async_context(load.connection(server))
            found.setdefault(worker_of(server, line).pid, line)
        yield found


async def _told_by_each(server: Server, pids: set[int]) -> list[Answer]:
    """Each of these workers has answered a new connection that it is not ready: all such answers."""
    told: list[Answer] = []
    async with asyncio.timeout(PATIENCE_S):
        while pids:
            async with load.connection(server) as line:
                pid = worker_of(server, line).pid
                answer = await load.acquire(line, READYZ)
            # Until it has heard of the stop it is as ready as ever.
            assert answer.status in (200, 503)
            if answer.status == 503:
                told.append(answer)
                pids = pids - {pid}
    return told


def test_ctrl_c_once_more_does_not_wait(scaled: Place) -> None:
    """What is in flight is cut off."""
    key = scaled.new_key()

    async def hurried(server: Server) -> bool:
        async with load.in_flight(server, key) as (line, _):
            _group(signal.SIGINT)(server)
            await load.refuses_connections(server)
            _group(signal.SIGINT)(server)
            return await line.is_closed()

    with scaled.serving(DRAIN_S="600") as server:
        were = processes(server)
        assert asyncio.run(hurried(server))
        assert server.ended() == 0
        assert_is_over(server, were)
        assert messages(server)[-1] == "Stopped"
        assert messages(server).count("A worker has stopped") == 2


def test_a_worker_leaves_ctrl_c_to_its_parent(scaled: Place) -> None:
    """A terminal tells them all: neither one that starts nor one that serves takes it for a word to itself."""
    with starting(scaled) as server:
        for _ in range(2):
            for it in workers(server):
                it.send_signal(signal.SIGINT)
            assert server.log.seen(lambda line: line["message"] == "Serving")
        assert asyncio.run(_statuses(server, [READYZ])) == {200}
        # The line of the request comes when it comes.
        assert set(messages(server)) - {"request"} == {"A worker serves", "Serving"}


def test_one_that_hangs_holds_up_neither_the_metrics_nor_the_stop(scaled: Place) -> None:
    """What it had counted is on the page; a few seconds after the others it is ended, and the status is 0."""
    with reserved_address() as metrics, scaled.serving(METRICS_LISTEN=metrics, DRAIN_S="0") as server:
        were = processes(server)
        asyncio.run(_statuses(server, [READYZ] * 5))
        before = counts(metrics)
        hanging = workers(server)[0]
        hanging.suspend()
        after = counts(metrics)
        assert_none_went_back(before, after)
        assert after["workers"] == 2
        assert server.terminate() == 0
        assert_is_over(server, were)
        assert messages(server)[-2:] == ["Workers that do not stop are killed", "Stopped"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_before_all_have_started_is_quiet(scaled: Place, number: signal.Signals) -> None:
    """To the whole group, while they are being made: no traceback, status 0."""
    with starting(scaled, WORKERS="2") as server:
        were = processes(server)
        _group(number)(server)
        assert server.ended() == 0
        assert_is_over(server, were)
        assert messages(server)[-1] == "Stopped"


def test_a_stop_while_a_worker_is_being_replaced_is_a_stop(scaled: Place) -> None:
    """No other is made after it."""
    with scaled.serving() as server:
        were = processes(server)
        workers(server)[0].kill()
        wait_until(lambda: "A worker has ended and is replaced" in messages(server), "the end to be seen")
        assert server.terminate() == 0
        assert_is_over(server, were)
        assert messages(server).count("A worker serves") == 2


# What cannot start


def test_a_worker_that_cannot_start_ends_the_others_and_the_server(scaled: Place, tmp_path: Path) -> None:
    """It dies while it starts: one error, exit status 1, no process left."""
    place, _ = gated(scaled, tmp_path)
    with starting(place, WORKERS="3") as server:
        were = processes(server)
        workers(server)[0].kill()
        assert server.ended() == 1
        assert "stoplist: A server process could not start: exit status -9\n" in server.log.text
        assert server.log.text.count("stoplist: ") == 1
        _, left = psutil.wait_procs(were, timeout=PATIENCE_S)
        assert left == []


def test_a_database_that_goes_away_amid_the_start_is_one_clear_error(
    through: tuple[Place, Proxy], tmp_path: Path
) -> None:
    """After the parent has looked at it and before the workers do."""
    place, between = through
    held, gate = gated(place, tmp_path)
    try:
        with starting(held) as server:
            were = processes(server)
            between.cut()
            gate.touch()
            assert server.ended() == 1
            lines = [line for line in server.log.text.splitlines() if not line.startswith("{")]
            (line,) = lines
            assert line.startswith("stoplist: A server process could not start: ")
            assert "STOPLIST_DATABASE_URL" in line
            _, left = psutil.wait_procs(were, timeout=PATIENCE_S)
            assert left == []
    finally:
        between.mend()


def test_a_port_that_is_taken_is_one_clear_error(scaled: Place) -> None:
    """The server's, or that of its metrics; nobody is started."""
    [taken] = listen("127.0.0.1", 0)
    with taken:
        port = str(taken.getsockname()[1])
        assert "STOPLIST_HOST and STOPLIST_PORT" in scaled.refused("serve", PORT=port)
        with reserve_port() as free:
            own = str(free.getsockname()[1])
            metrics = scaled.refused("serve", PORT=own, METRICS_LISTEN=f"127.0.0.1:{port}")
        assert "STOPLIST_METRICS_LISTEN" in metrics


def test_an_empty_database_is_one_clear_error(tmp_path: Path, postgresql_url: str, valkey: Valkey) -> None:
    """Said by the parent, once for all."""
    assert "`stoplist migrate`" in scaled_place(tmp_path, postgresql_url, valkey).refused("serve")


# What only one of them does


def test_a_demo_is_shown_once_and_a_certificate_made_once(scaled: Place, tmp_path: Path, valkey: Valkey) -> None:
    """On the first start in a folder, with two workers; both of them serve that certificate."""
    place = scaled_place(tmp_path, scaled.database_url, valkey)

    async def both_answer(server: Server) -> None:
        async with _lines_to_both(server):
            pass

    with place.serving("--demo", "--workers", "2", WORKERS="1") as server:
        assert server.out.holds("Stop with Ctrl+C.")
        asyncio.run(both_answer(server))
        were = processes(server)
        assert server.terminate() == 0
        assert_is_over(server, were)
        assert server.out.text.count("Stop with Ctrl+C.") == 1


def test_a_server_of_one_process_loads_nothing_of_this(place: Place) -> None:
    """Its start takes no longer: neither what starts processes nor the client of the limit store is loaded."""
    place.variables["PYTHONPROFILEIMPORTTIME"] = "1"
    with place.serving() as server:
        imported = {line.rpartition("|")[2].strip() for line in server.log.text.splitlines() if "|" in line}
        assert "stoplist.server.lifecycle" in imported
        unwanted = {"stoplist.server.supervisor", "multiprocessing.resource_tracker", "stoplist.limits.shared", "redis"}
        assert imported & unwanted == set()
