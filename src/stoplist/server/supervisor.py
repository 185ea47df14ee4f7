"""The supervisor of several server processes: listens, starts the workers, replaces dead ones, and stops them all.

The supervisor holds the listening sockets and serves no request itself: a connection that arrives while a worker is
being replaced waits in the same backlog as all others.
Source: docs/interface.md section D1 (WORKERS, DRAIN_S, METRICS_LISTEN).
"""

import asyncio
import contextlib
import logging
import multiprocessing
import os
import signal
import socket
from collections.abc import Iterable, Iterator
from itertools import count
from multiprocessing import resource_tracker
from multiprocessing.process import BaseProcess
from typing import NamedTuple

from prometheus_client import CollectorRegistry

from stoplist.clock import Clock
from stoplist.db.clock import follow_clock
from stoplist.errors import SettingsError
from stoplist.server.aggregated_metrics import AggregatedMetrics, SupervisorMetrics
from stoplist.server.control_channel import ControlChannel, ControlMessage
from stoplist.server.lifecycle import OnReady
from stoplist.server.listening_sockets import open_sockets
from stoplist.server.metrics_listener import metrics_listener
from stoplist.server.start_checks import check_limiter, open_checked, prepare_start
from stoplist.server.stop_signals import stop_on_signals
from stoplist.server.tls import server_tls
from stoplist.server.worker import main as worker_main
from stoplist.settings import Settings
from stoplist.web.metrics_page import send_page
from stoplist.web.request_context import Receive, Scope, Send

_LOG = logging.getLogger(__name__)
_METRICS_TIMEOUT_S = 1.0
_START_TIMEOUT_S = 60.0
_STEADY_S = 10.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 5.0
# In addition to DRAIN_S: for writing the last key usage and closing the database.
_END_TIMEOUT_S = 5.0

_spawn = multiprocessing.get_context("spawn")


async def serve_workers(settings: Settings, *, on_ready: OnReady | None = None) -> None:
    """Serve in `settings.workers` processes until a signal says stop; SettingsError if they cannot start.

    `on_ready` runs once all of them accept connections.
    """
    stop, force = asyncio.Event(), asyncio.Event()
    with stop_on_signals(stop, force):
        await _check_start(settings)
        with _listening(settings) as sockets:
            supervisor = _Supervisor(settings, sockets, stop, force)
            async with metrics_listener(settings, supervisor.metrics_page, stop):
                await supervisor.serve(on_ready)
    _LOG.info("Stopped")


def next_pause_s(pause_s: float, *, was_steady: bool) -> float:
    """Return the pause before a worker is replaced: doubled each time, reset if the worker had served for a while."""
    return _FIRST_PAUSE_S if was_steady else min(2 * pause_s, _LONGEST_PAUSE_S)


class _Worker:
    """A worker process, and the control channel to it."""

    def __init__(self, number: int, process: BaseProcess, channel: ControlChannel) -> None:
        self.number, self.process, self.channel = number, process, channel
        self.started_s: float | None = None
        self.failure: str | None = None
        self.metrics_received = asyncio.Event()

    @classmethod
    async def start(cls, number: int, settings: Settings, sockets: list[socket.socket]) -> "_Worker":
        """Start a worker process; OSError if the system cannot start another process."""
        ours, theirs = socket.socketpair()
        try:
            with theirs, _sigint_blocked():
                process = _spawn.Process(target=worker_main, args=(settings, sockets, theirs), name=f"worker-{number}")
                process.start()
            return cls(number, process, await ControlChannel.over(ours))
        except BaseException:
            ours.close()
            raise

    async def join(self) -> int | None:
        """Return the exit status of a process that has closed its channel; kill it if it does not end soon."""
        loop, gone = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(self.process.sentinel, gone.set)
        timeout = loop.call_later(_END_TIMEOUT_S, self.signal, signal.SIGKILL)
        try:
            await gone.wait()
        finally:
            timeout.cancel()
            loop.remove_reader(self.process.sentinel)
        self.process.join()
        return self.process.exitcode

    def signal(self, number: signal.Signals) -> None:
        if self.process.pid is not None and self.process.is_alive():
            os.kill(self.process.pid, number)


class _WorkerEnd(NamedTuple):
    """The reason why a worker ended, and whether it had served for a while."""

    reason: str
    was_steady: bool


class _Supervisor:
    """All workers of one server."""

    def __init__(
        self, settings: Settings, sockets: list[socket.socket], stop: asyncio.Event, force: asyncio.Event
    ) -> None:
        self._settings, self._sockets, self._stop, self._force = settings, sockets, stop, force
        self._numbers = count(1)
        self._live: dict[int, _Worker] = {}
        self._failure: str | None = None
        self._started: set[int] = set()
        self._all_started = asyncio.Event()
        self._metrics = AggregatedMetrics()
        self._registry = CollectorRegistry()
        self._registry.register(self._metrics)
        self._own_metrics = SupervisorMetrics(lambda: len(self._serving()), configured=settings.workers)
        self._registry.register(self._own_metrics)

    async def serve(self, on_ready: OnReady | None) -> None:
        """Run the workers until the stop; SettingsError if one of them cannot start in the first place."""
        slots = asyncio.gather(*(self._keep_running(slot) for slot in range(self._settings.workers)))
        ready = asyncio.create_task(self._run_on_ready(on_ready))
        stopping = asyncio.create_task(self._stop.wait())
        await asyncio.wait((stopping, slots), return_when=asyncio.FIRST_COMPLETED)
        for task in (stopping, ready):
            task.cancel()
        # The workers have their own copies: connections are refused once the last worker has closed its listeners.
        _close(self._sockets)
        await self._end_workers(slots)
        await asyncio.wait((stopping, ready))
        if self._failure is not None:
            raise SettingsError(self._failure)

    async def metrics_page(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, as an ASGI application, with the metrics of all workers: for a stuck worker, its last ones."""
        workers = self._serving()
        for worker in workers:
            worker.metrics_received.clear()
            worker.channel.send(ControlMessage("metrics"))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_METRICS_TIMEOUT_S):
                await asyncio.gather(*(worker.metrics_received.wait() for worker in workers))
        await send_page(send, self._registry)

    def _serving(self) -> list[_Worker]:
        return [worker for worker in self._live.values() if worker.started_s is not None]

    async def _keep_running(self, slot: int) -> None:
        """Run a worker in this slot, and replace it whenever it ends, until the stop."""
        pause_s = _FIRST_PAUSE_S
        while not self._stop.is_set():
            end = await self._run_worker(slot)
            if self._stop.is_set():
                return
            if slot not in self._started:
                self._failure = f"A server process could not start: {end.reason}"
                self._stop.set()
                return
            _LOG.warning("A worker has ended and is replaced", extra={"fields": {"why": end.reason}})
            self._own_metrics.replaced += 1
            pause_s = next_pause_s(pause_s, was_steady=end.was_steady)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), pause_s)

    async def _run_worker(self, slot: int) -> _WorkerEnd:
        """Start a worker, handle its messages, and return why it ended."""
        loop = asyncio.get_running_loop()
        try:
            worker = await _Worker.start(next(self._numbers), self._settings, self._sockets)
        except OSError as error:
            return _WorkerEnd(f"the system cannot start another process ({error.strerror})", was_steady=False)
        self._live[worker.number] = worker
        if self._stop.is_set():  # the stop was signalled before this worker was in `_live`
            worker.signal(signal.SIGTERM)
        timeout = loop.call_later(_START_TIMEOUT_S, _kill_unless_started, worker)
        try:
            async for message in worker.channel.messages():
                self._handle(slot, worker, message)
            status = await worker.join()
        finally:
            timeout.cancel()
            worker.signal(signal.SIGKILL)  # after an error here nothing else would end the process
            del self._live[worker.number]
            self._metrics.end(worker.number)
            worker.metrics_received.set()
            await worker.channel.close()
        was_steady = worker.started_s is not None and loop.time() - worker.started_s > _STEADY_S
        return _WorkerEnd(worker.failure or f"exit status {status}", was_steady)

    def _handle(self, slot: int, worker: _Worker, message: ControlMessage) -> None:
        match message.about:
            case "started":
                worker.started_s = asyncio.get_running_loop().time()
                self._started.add(slot)
                if len(self._started) == self._settings.workers:
                    self._all_started.set()
            case "failed":
                worker.failure = message.text
            case "readiness_probe":
                for other in self._live.values():
                    other.channel.send(message)
            case "metrics":
                self._metrics.update(worker.number, message.metrics)
                worker.metrics_received.set()

    async def _run_on_ready(self, on_ready: OnReady | None) -> None:
        await self._all_started.wait()
        address = self._sockets[0].getsockname()[:2]
        fields = {"address": address, "base_url": self._settings.base_url, "workers": self._settings.workers}
        _LOG.info("Serving", extra={"fields": fields})
        if on_ready is None:
            return
        try:
            async with open_checked(self._settings) as database:
                clock = Clock()
                await follow_clock(clock, database)
                await on_ready(database, clock)
        except Exception:
            _LOG.exception("A task that follows the start failed")

    async def _end_workers(self, slots: "asyncio.Future[list[None]]") -> None:
        """Tell every worker to stop, and kill those that have not stopped in time."""
        for worker in self._live.values():
            worker.channel.send(ControlMessage("stop"))
        self._signal(signal.SIGTERM)  # for those that do not read messages yet
        force_stop = asyncio.create_task(self._force.wait())
        await asyncio.wait((slots, force_stop), timeout=self._settings.drain_s, return_when=asyncio.FIRST_COMPLETED)
        force_stop.cancel()
        if self._force.is_set():
            for worker in self._live.values():
                worker.channel.send(ControlMessage("force_stop"))
        await asyncio.wait((slots,), timeout=_END_TIMEOUT_S)
        if not slots.done():
            _LOG.warning("Workers that do not stop are killed", extra={"fields": {"workers": len(self._live)}})
            self._signal(signal.SIGKILL)
        await slots

    def _signal(self, number: signal.Signals) -> None:
        for worker in self._live.values():
            worker.signal(number)


async def _check_start(settings: Settings) -> None:
    """Open everything that a worker opens, so that errors are reported once and keys and certificates made once."""
    async with open_checked(settings) as database:
        await prepare_start(settings, database)
    await check_limiter(settings)
    server_tls(settings, Clock())


@contextlib.contextmanager
def _listening(settings: Settings) -> Iterator[list[socket.socket]]:
    sockets = open_sockets(settings.host, settings.port)
    try:
        yield sockets
    finally:
        _close(sockets)


@contextlib.contextmanager
def _sigint_blocked() -> Iterator[None]:
    """Block SIGINT in processes started within the context.

    A terminal sends Ctrl+C to all processes, and the supervisor passes the stop on. Of two pending signals a worker
    might handle SIGTERM first and take SIGINT for a second Ctrl+C.
    """
    # The start of multiprocessing's resource tracker unblocks the signal, so start the tracker first.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _kill_unless_started(worker: _Worker) -> None:
    if worker.started_s is None:
        worker.failure = f"it did not start within {_START_TIMEOUT_S:g} s"
        worker.signal(signal.SIGKILL)


def _close(sockets: Iterable[socket.socket]) -> None:
    for sock in sockets:
        sock.close()
