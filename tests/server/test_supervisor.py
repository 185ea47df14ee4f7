"""Supervision of workers that misbehave; tests/e2e/test_workers.py covers real ones."""

import asyncio
import errno
import multiprocessing
import os
import signal
import socket
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stoplist.errors import SettingsError
from stoplist.server import supervisor
from stoplist.server.control_channel import ControlChannel
from stoplist.server.supervisor import next_pause_s, serve_workers
from stoplist.settings import Settings, load
from tests.constants import PATIENCE_S
from tests.server import odd_workers
from tests.server.serving import on_uvloop
from tests.services.managed_program import reserve_port

pytestmark = pytest.mark.interpreter

REPLACED = "A worker has ended and is replaced"


@pytest.fixture
def settings(tmp_path: Path) -> Iterator[Settings]:
    """Settings with a drain of ten minutes; the workers here open no database."""
    variables = {"DATA_DIR": str(tmp_path), "TRUSTED_PROXIES": "127.0.0.1", "WORKERS": "2", "DRAIN_S": "600"}
    with reserve_port() as reserved:
        variables["PORT"] = str(reserved.getsockname()[1])
        yield load({f"STOPLIST_{name}": text for name, text in variables.items()}, env_file=tmp_path / "none")


@pytest.fixture(autouse=True)
def no_process_is_left() -> Any:
    """Fail a test that leaves a process behind."""
    yield
    assert multiprocessing.active_children() == []


def use(monkeypatch: pytest.MonkeyPatch, main: Callable[..., None], **constants: float) -> None:
    """Let workers run `main`, and set constants of the supervisor."""
    monkeypatch.setattr(supervisor, "worker_main", main)
    for name, seconds in constants.items():
        monkeypatch.setattr(supervisor, name, seconds)


def served(settings: Settings, meanwhile: Coroutine[Any, Any, None]) -> None:
    """Run the server until `meanwhile` is done, then stop it."""

    async def main() -> None:
        async with asyncio.timeout(PATIENCE_S):
            serving = asyncio.create_task(serve_workers(settings))
            await meanwhile
            os.kill(os.getpid(), signal.SIGTERM)
            await serving

    on_uvloop(main())


async def wait_for_log(caplog: pytest.LogCaptureFixture, message: str, times: int = 1) -> None:
    """Wait until this message has been logged so many times."""
    while [record.getMessage() for record in caplog.records].count(message) < times:  # noqa: ASYNC110
        await asyncio.sleep(0.01)


def end_reasons(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return why the replaced workers ended, as logged."""
    return [record.fields["why"] for record in caplog.records if record.getMessage() == REPLACED]  # type: ignore[attr-defined]


def test_a_worker_that_never_starts_fails_the_start(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says so."""
    use(monkeypatch, odd_workers.stuck, _START_TIMEOUT_S=0.2)

    async def start() -> None:
        async with asyncio.timeout(PATIENCE_S):
            await serve_workers(settings)

    with pytest.raises(SettingsError) as refused:
        on_uvloop(start())
    assert refused.value.text == "A server process could not start: it did not start within 0.2 s"


def test_a_started_worker_is_not_killed_by_the_start_timeout(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    use(monkeypatch, odd_workers.serving, _START_TIMEOUT_S=0)
    kill_unless_started, waiting = supervisor._kill_unless_started, list[Any]()
    monkeypatch.setattr(supervisor, "_kill_unless_started", waiting.append)

    async def wait() -> None:
        await wait_for_log(caplog, "Serving")
        for one in waiting:
            kill_unless_started(one)
        assert [one.failure for one in waiting] == [None, None]

    served(settings, wait())
    assert [record.getMessage() for record in caplog.records] == ["Serving", "Stopped"]


def test_a_worker_that_exits_is_replaced_every_time(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It may exit in the middle of a message."""
    use(monkeypatch, odd_workers.ending, _END_TIMEOUT_S=PATIENCE_S, _LONGEST_PAUSE_S=0.01)
    served(settings, wait_for_log(caplog, REPLACED, times=4))
    assert set(end_reasons(caplog)) == {"exit status 0"}


def test_a_worker_that_closed_its_channel_is_killed(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It would otherwise compete with its replacement."""
    use(monkeypatch, odd_workers.lingering, _END_TIMEOUT_S=0.1, _LONGEST_PAUSE_S=0.01)
    served(msgspec.structs.replace(settings, drain_s=0), wait_for_log(caplog, REPLACED))
    assert set(end_reasons(caplog)) == {"exit status -9"}


def test_a_start_that_the_system_refuses_is_retried(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The other workers serve meanwhile."""
    refusals = iter((False, False, True, True))
    start = supervisor._spawn.Process.start

    def refused_now_and_then(process: Any) -> None:
        if next(refusals, False):
            raise OSError(errno.EAGAIN, "Resource temporarily unavailable")
        start(process)

    caplog.set_level("INFO")
    use(monkeypatch, odd_workers.serving, _LONGEST_PAUSE_S=0.01)
    monkeypatch.setattr(supervisor._spawn.Process, "start", refused_now_and_then)

    async def kill_one() -> None:
        await wait_for_log(caplog, "Serving")
        multiprocessing.active_children()[0].kill()
        await wait_for_log(caplog, REPLACED, times=3)
        while len(multiprocessing.active_children()) < 2:  # noqa: ASYNC110
            await asyncio.sleep(0.01)

    served(settings, kill_one())
    no_process = "the system cannot start another process (Resource temporarily unavailable)"
    assert end_reasons(caplog) == ["exit status -9", no_process, no_process]


def test_a_worker_started_during_the_stop_is_stopped(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stop was signalled before it was known; without a signal of its own it would serve until its time is up."""
    over, connected = ControlChannel.over, asyncio.Event()

    async def slowly(end: socket.socket) -> ControlChannel:
        channel = await over(end)
        connected.set()
        await asyncio.sleep(0.2)
        return channel

    async def is_connected() -> None:
        await connected.wait()

    use(monkeypatch, odd_workers.serving)
    monkeypatch.setattr(ControlChannel, "over", slowly)
    served(settings, is_connected())


def test_the_pause_before_a_replacement_doubles_and_resets() -> None:
    """It grows from 0.2 to 5 seconds; it is 0.1 after a worker that had served for a while."""
    pauses = [0.1]
    for _ in range(8):
        pauses.append(next_pause_s(pauses[-1], was_steady=False))
    assert pauses[1:] == [0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 5.0]
    assert next_pause_s(5.0, was_steady=True) == 0.1
