"""Several server processes as one: a parent that listens, starts the workers, replaces a dead one, ends them all.

The parent holds the listening sockets and serves no request itself: what arrives while a worker is replaced waits in
the same queue as everything else. Source: docs/interface.md section D1 (WORKERS, DRAIN_S, METRICS_LISTEN).
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
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from stoplist import chores
from stoplist.clock import Clock
from stoplist.errors import SettingsError
from stoplist.secret_key import secret_keys
from stoplist.server import worker
from stoplist.server.aggregated_metrics import AggregatedMetrics
from stoplist.server.control_channel import ControlChannel, ControlMessage
from stoplist.server.http_server import listen, stop_on_signals
from stoplist.server.lifecycle import OnReady, check_limiter, metrics_listener, open_checked, server_tls
from stoplist.settings import Settings
from stoplist.web.metrics import send_page
from stoplist.web.request_context import Receive, Scope, Send

_LOG = logging.getLogger(__name__)
_METRICS_WITHIN_S = 1.0
_START_WITHIN_S = 60.0
_STEADY_S = 10.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 5.0
# Beyond DRAIN_S, for writing down what is left and letting go of the database.
_END_WITHIN_S = 5.0

_spawn = multiprocessing.get_context("spawn")


async def serve_workers(settings: Settings, *, on_ready: OnReady | None = None) -> None:
    """Serve in `settings.workers` processes until a signal says stop; SettingsError when they cannot start.

    `after_start` is done once all of them accept connections.
    """
    stop, force = asyncio.Event(), asyncio.Event()
    with stop_on_signals(stop, force):
        await _refuse_what_each_would(settings)
        with _listening(settings) as sockets:
            parent = _Parent(settings, sockets, stop, force)
            async with metrics_listener(settings, parent.page, stop):
                await parent.serve(on_ready)
    _LOG.info("Stopped")


def next_pause_s(pause_s: float, *, was_steady: bool) -> float:
    """How long to wait before a worker is replaced: longer each time, unless this one had served for a while."""
    return _FIRST_PAUSE_S if was_steady else min(2 * pause_s, _LONGEST_PAUSE_S)


class _Worker:
    """A process that serves, and the line to it."""

    def __init__(self, number: int, process: BaseProcess, channel: ControlChannel) -> None:
        self.number, self.process, self.channel = number, process, channel
        self.started_s: float | None = None
        self.failure: str | None = None
        self.said_metrics = asyncio.Event()

    @classmethod
    async def start(cls, number: int, settings: Settings, sockets: list[socket.socket]) -> "_Worker":
        """Raises OSError where the system has no room for another process."""
        ours, theirs = socket.socketpair()
        try:
            with theirs, _deaf_to_ctrl_c():
                process = _spawn.Process(target=worker.main, args=(settings, sockets, theirs), name=f"worker-{number}")
                process.start()
            return cls(number, process, await ControlChannel.over(ours))
        except BaseException:
            ours.close()
            raise

    async def ended(self) -> int | None:
        """The exit status, once the process is gone; one that has left and is not gone soon is ended."""
        loop, gone = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(self.process.sentinel, gone.set)
        too_late = loop.call_later(_END_WITHIN_S, self.signal, signal.SIGKILL)
        try:
            await gone.wait()
        finally:
            too_late.cancel()
            loop.remove_reader(self.process.sentinel)
        self.process.join()
        return self.process.exitcode

    def signal(self, number: signal.Signals) -> None:
        if self.process.pid is not None and self.process.is_alive():
            os.kill(self.process.pid, number)


class _Life(NamedTuple):
    """What became of a worker."""

    why_ended: str
    was_steady: bool


class _Parent:
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
        self._totals = AggregatedMetrics()
        self._registry = CollectorRegistry()
        self._registry.register(self._totals)
        self._family = _SupervisorCollector(self._live)
        self._registry.register(self._family)

    async def serve(self, on_ready: OnReady | None) -> None:
        """Until the stop; SettingsError where the workers cannot start in the first place."""
        places = asyncio.gather(*(self._keep(place) for place in range(self._settings.workers)))
        greeting = asyncio.create_task(self._greet(on_ready))
        stopping = asyncio.create_task(self._stop.wait())
        await asyncio.wait((stopping, places), return_when=asyncio.FIRST_COMPLETED)
        for task in (stopping, greeting):
            task.cancel()
        # The workers have their own: connections are refused as soon as the last of them has closed its door.
        _close(self._sockets)
        await self._end(places)
        await asyncio.wait((stopping, greeting))
        if self._failure is not None:
            raise SettingsError(self._failure)

    async def page(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The ASGI application of the metrics address: all workers together; one that is stuck as it last was."""
        asked = [one for one in self._live.values() if one.started_s is not None]
        for one in asked:
            one.said_metrics.clear()
            one.channel.send(ControlMessage("metrics"))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_METRICS_WITHIN_S):
                await asyncio.gather(*(one.said_metrics.wait() for one in asked))
        await send_page(send, self._registry)

    async def _keep(self, place: int) -> None:
        """There is a worker in this place until the stop."""
        pause_s = _FIRST_PAUSE_S
        while not self._stop.is_set():
            life = await self._live_through(place)
            if self._stop.is_set():
                return
            if place not in self._started:
                self._failure = f"A server process could not start: {life.why_ended}"
                self._stop.set()
                return
            _LOG.warning("A worker has ended and is replaced", extra={"fields": {"why": life.why_ended}})
            self._family.replaced += 1
            pause_s = next_pause_s(pause_s, was_steady=life.was_steady)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), pause_s)

    async def _live_through(self, place: int) -> _Life:
        """One worker from its start to its end."""
        loop = asyncio.get_running_loop()
        try:
            one = await _Worker.start(next(self._numbers), self._settings, self._sockets)
        except OSError as error:
            return _Life(f"the system starts no process ({error.strerror})", was_steady=False)
        self._live[one.number] = one
        if self._stop.is_set():  # it was not among them when the others were told
            one.signal(signal.SIGTERM)
        too_late = loop.call_later(_START_WITHIN_S, _give_up_unless_started, one)
        try:
            async for message in one.channel.messages():
                self._hear(place, one, message)
            status = await one.ended()
        finally:
            too_late.cancel()
            one.signal(signal.SIGKILL)  # whatever went wrong here, nobody would look after it any more
            del self._live[one.number]
            self._totals.ended(one.number)
            one.said_metrics.set()
            await one.channel.close()
        was_steady = one.started_s is not None and loop.time() - one.started_s > _STEADY_S
        return _Life(one.failure or f"exit status {status}", was_steady)

    def _hear(self, place: int, one: _Worker, message: ControlMessage) -> None:
        match message.about:
            case "started":
                one.started_s = asyncio.get_running_loop().time()
                self._started.add(place)
                if len(self._started) == self._settings.workers:
                    self._all_started.set()
            case "failed":
                one.failure = message.text
            case "asked":
                for other in self._live.values():
                    other.channel.send(message)
            case "metrics":
                self._totals.said(one.number, message.metrics)
                one.said_metrics.set()

    async def _greet(self, on_ready: OnReady | None) -> None:
        await self._all_started.wait()
        address = self._sockets[0].getsockname()[:2]
        fields = {"address": address, "base_url": self._settings.base_url, "workers": self._settings.workers}
        _LOG.info("Serving", extra={"fields": fields})
        if on_ready is None:
            return
        try:
            async with open_checked(self._settings) as database:
                clock = Clock()
                await chores.follow_clock(clock, database)
                await on_ready(database, clock)
        except Exception:
            _LOG.exception("What should follow the start failed")

    async def _end(self, places: "asyncio.Future[list[None]]") -> None:
        """No worker is left: told to stop, then, if the time is up, ended."""
        self._signal(signal.SIGTERM)
        force_stop = asyncio.create_task(self._force.wait())
        await asyncio.wait((places, force_stop), timeout=self._settings.drain_s, return_when=asyncio.FIRST_COMPLETED)
        force_stop.cancel()
        if self._force.is_set():
            for one in self._live.values():
                one.channel.send(ControlMessage("force_stop"))
        await asyncio.wait((places,), timeout=_END_WITHIN_S)
        if not places.done():
            _LOG.warning("Workers that do not stop are ended", extra={"fields": {"workers": len(self._live)}})
            self._signal(signal.SIGKILL)
        await places

    def _signal(self, number: signal.Signals) -> None:
        for one in self._live.values():
            one.signal(number)


class _SupervisorCollector(Collector):
    """What the parent itself counts."""

    def __init__(self, live: dict[int, _Worker]) -> None:
        self._live = live
        self.replaced = 0

    def collect(self) -> Iterable[Metric]:
        yield GaugeMetricFamily("stoplist_workers", "Worker processes that run now.", value=len(self._live))
        yield CounterMetricFamily(
            "stoplist_workers_replaced", "Worker processes that ended and were replaced.", value=self.replaced
        )


async def _refuse_what_each_would(settings: Settings) -> None:
    """Whatever is wrong is said once, and what the first start makes is made once."""
    async with open_checked(settings):
        pass
    await check_limiter(settings)
    secret_keys(settings)
    server_tls(settings, Clock())


@contextlib.contextmanager
def _listening(settings: Settings) -> Iterator[list[socket.socket]]:
    sockets = listen(settings.host, settings.port)
    try:
        yield sockets
    finally:
        _close(sockets)


@contextlib.contextmanager
def _deaf_to_ctrl_c() -> Iterator[None]:
    """A process that is started meanwhile never hears of Ctrl+C, which a terminal tells them all: its parent does.

    It would take one for a second, since of two signals that wait the later one is seen first.
    """
    # multiprocessing has a helper of its own, whose start lets the signal through again.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _give_up_unless_started(one: _Worker) -> None:
    if one.started_s is None:
        one.failure = f"no word of it within {_START_WITHIN_S:g} s"
        one.signal(signal.SIGKILL)


def _close(sockets: Iterable[socket.socket]) -> None:
    for sock in sockets:
        sock.close()
