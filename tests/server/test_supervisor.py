"""How workers are looked after that do odd things; that real ones serve is shown in tests/e2e/test_workers.py."""

import asyncio
import errno
import multiprocessing
import os
import signal
import socket
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from stoplist.errors import SettingsError
from stoplist.server import supervisor
from stoplist.server.control_channel import ControlChannel
from stoplist.server.supervisor import next_pause_s, serve_workers
from stoplist.settings import Settings, load
from tests.server import odd_workers
from tests.server.serving import PATIENCE_S, on_uvloop
from tests.services.keeping import reserve_port

REPLACED = "A worker has ended and is replaced"


@pytest.fixture
def settings(tmp_path: Path) -> Iterator[Settings]:
    """Of a server that ends by itself after ten minutes at the earliest; the workers here open no database."""
    variables = {"DATA_DIR": str(tmp_path), "TRUSTED_PROXIES": "127.0.0.1", "WORKERS": "2", "DRAIN_S": "600"}
    with reserve_port() as reserved:
        variables["PORT"] = str(reserved.getsockname()[1])
        yield load({f"STOPLIST_{name}": text for name, text in variables.items()}, env_file=tmp_path / "none")


@pytest.fixture(autouse=True)
def nobody_is_left() -> Any:
    """No test leaves a process behind."""
    yield
    assert multiprocessing.active_children() == []


def use(monkeypatch: pytest.MonkeyPatch, main: Callable[..., None], **constants: float) -> None:
    """Workers do this, and the parent's patience is so short."""
    monkeypatch.setattr(supervisor, "worker", SimpleNamespace(main=main))
    for name, seconds in constants.items():
        monkeypatch.setattr(supervisor, name, seconds)


def served(settings: Settings, meanwhile: Coroutine[Any, Any, None]) -> None:
    """The server runs, something is done meanwhile, and then it is told to stop."""

    async def main() -> None:
        async with asyncio.timeout(PATIENCE_S):
            serving = asyncio.create_task(serve_workers(settings))
            await meanwhile
            os.kill(os.getpid(), signal.SIGTERM)
            await serving

    on_uvloop(main())


async def seen(caplog: pytest.LogCaptureFixture, message: str, times: int = 1) -> None:
    """This was logged so often."""
    while [record.getMessage() for record in caplog.records].count(message) < times:  # noqa: ASYNC110
        await asyncio.sleep(0.01)


def whys(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Of which workers that were replaced have ended."""
    return [record.fields["why"] for record in caplog.records if record.getMessage() == REPLACED]  # type: ignore[attr-defined]


def test_a_worker_that_never_starts_is_given_up(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """A start in which the first ones hang is refused, and says so."""
    use(monkeypatch, odd_workers.stuck, _START_WITHIN_S=0.2)

    async def start() -> None:
        async with asyncio.timeout(PATIENCE_S):
            await serve_workers(settings)

    with pytest.raises(SettingsError) as refused:
        on_uvloop(start())
    assert refused.value.text == "A server process could not start: no word of it within 0.2 s"


def test_a_worker_that_serves_is_not_given_up(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """However long it serves."""
    caplog.set_level("INFO")
    use(monkeypatch, odd_workers.serving, _START_WITHIN_S=0)
    times_up, waiting = supervisor._give_up_unless_started, list[Any]()
    monkeypatch.setattr(supervisor, "_give_up_unless_started", waiting.append)

    async def wait() -> None:
        await seen(caplog, "Serving")
        for one in waiting:
            times_up(one)
        assert [one.failure for one in waiting] == [None, None]

    served(settings, wait())
    assert [record.getMessage() for record in caplog.records] == ["Serving", "Stopped"]


def test_a_worker_that_ends_in_the_middle_of_a_word_is_replaced(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Again and again, as long as the server lives."""
    use(monkeypatch, odd_workers.ending, _END_WITHIN_S=PATIENCE_S, _LONGEST_PAUSE_S=0.01)
    served(settings, seen(caplog, REPLACED, times=4))
    assert set(whys(caplog)) == {"exit status 0"}


def test_a_worker_that_has_left_and_is_not_gone_is_ended(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It would be in the way of the next one."""
    use(monkeypatch, odd_workers.lingering, _END_WITHIN_S=0.1, _LONGEST_PAUSE_S=0.01)
    served(msgspec.structs.replace(settings, drain_s=0), seen(caplog, REPLACED))
    assert set(whys(caplog)) == {"exit status -9"}


def test_a_system_that_starts_no_process_is_asked_again(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The other workers serve on meanwhile."""
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
        await seen(caplog, "Serving")
        multiprocessing.active_children()[0].kill()
        await seen(caplog, REPLACED, times=3)
        while len(multiprocessing.active_children()) < 2:  # noqa: ASYNC110
            await asyncio.sleep(0.01)

    served(settings, kill_one())
    no_process = "the system starts no process (Resource temporarily unavailable)"
    assert whys(caplog) == ["exit status -9", no_process, no_process]


def test_a_stop_while_a_worker_is_being_made_reaches_it(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not yet among those that are told; without a word it would serve until its time is up."""
    over, made = ControlChannel.over, asyncio.Event()

    async def slowly(end: socket.socket) -> ControlChannel:
        line = await over(end)
        made.set()
        await asyncio.sleep(0.2)
        return line

    async def is_made() -> None:
        await made.wait()

    use(monkeypatch, odd_workers.serving)
    monkeypatch.setattr(ControlChannel, "over", slowly)
    served(settings, is_made())


def test_the_pause_before_a_replacement_grows_and_shrinks_again() -> None:
    """From a fifth of a second to five; one that had served for a while is replaced at once."""
    pauses = [0.1]
    for _ in range(8):
        pauses.append(next_pause_s(pauses[-1], was_steady=False))
    assert pauses[1:] == [0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 5.0]
    assert next_pause_s(5.0, was_steady=True) == 0.1
