"""The log: what it contains, what it never contains, and that no line is lost, torn or forged."""

import asyncio
import errno
import fcntl
import io
import json
import logging
import os
import re
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from select import PIPE_BUF
from typing import Any, BinaryIO, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

import stoplist
from stoplist import log
from stoplist.ids import CLIENT_ID, CLIENT_SECRET, new_id, new_request_id, new_secret
from stoplist.log import layouts
from stoplist.rfc3339 import format_ms

pytestmark = pytest.mark.interpreter

AT_MS = 1_772_357_400_007
SECRET = "ann@example.org"
LOGGER = logging.getLogger("stoplist.test")


@contextmanager
def configured(log_format: str, stream: Any) -> Iterator[None]:
    """Log to `stream` within the block; restore the loggers afterwards."""
    names = ["", "stoplist", "uvicorn", "uvicorn.error", "uvicorn.asgi", "uvicorn.access", "asyncio"]
    loggers = [logging.getLogger(name) for name in names]
    before = [(it.handlers[:], it.level, it.propagate) for it in loggers]
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(log, "_writer", None)
            patch.setattr(log, "_layout", None)
            log.configure(log_format, cast(BinaryIO, stream))
            yield
    finally:
        for logger, (handlers, level, propagate) in zip(loggers, before, strict=True):
            logger.handlers[:], logger.propagate = handlers, propagate
            logger.setLevel(level)


def request(**values: Any) -> None:
    known: dict[str, Any] = {
        "at_ms": AT_MS,
        "request_id": "0123456789abcdef01234567",
        "client_id": "svc_ci_0123456789ABCDEFGHIJKL",
        "method": "GET",
        "path": "/api/v1/unsubscribe/email",
        "status": 200,
        "duration_ms": 1.23456,
        "source_ip": "192.0.2.7",
    }
    log.log_request(**(known | values))


def written(stream: io.BytesIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def one_event(log_format: str, message: object, *values: object, name: str = "stoplist.test", **rest: Any) -> str:
    """Return what one event of level error writes."""
    stream = io.BytesIO()
    with configured(log_format, stream):
        logging.getLogger(name).error(message, *values, **rest)
    return stream.getvalue().decode()


def test_a_request_is_one_line_of_json() -> None:
    """Request id, client id, method, path, status and milliseconds; the time in RFC 3339 UTC."""
    stream = io.BytesIO()
    with configured("json", stream):
        request()
        request(client_id=None)
        request(client_id=None, person="ann@people.example")
    assert written(stream)[0] == {
        "time": "2026-03-01T09:30:00.007Z",
        "level": "info",
        "logger": "stoplist.request",
        "message": "request",
        "client_id": "svc_ci_0123456789ABCDEFGHIJKL",
        "method": "GET",
        "path": "/api/v1/unsubscribe/email",
        "status": 200,
        "duration_ms": 1.235,
        "source_ip": "192.0.2.7",
        "request_id": "0123456789abcdef01234567",
    }
    assert written(stream)[1]["client_id"] is None
    assert written(stream)[2]["person"] == "ann@people.example"


def test_a_request_is_one_line_on_the_console() -> None:
    """The same values, in reading order."""
    stream = io.BytesIO()
    with configured("console", stream):
        request()
        request(client_id=None, person="ann@people.example", path="/audit", source_ip="2001:db8::7")
    assert stream.getvalue().decode().splitlines() == [
        "2026-03-01T09:30:00.007Z info     GET /api/v1/unsubscribe/email svc_ci_0123456789ABCDEFGHIJKL"
        " 200 1.235 ms 192.0.2.7 0123456789abcdef01234567",
        '2026-03-01T09:30:00.007Z info     GET /audit "ann@people.example"'
        " 200 1.235 ms 2001:db8::7 0123456789abcdef01234567",
    ]


def test_an_event_has_its_fields_beside_its_message() -> None:
    """Fields cannot replace the standard ones."""
    line = json.loads(one_event("json", "copied %d rows", 3, extra={"fields": {"file": Path("a b"), "time": 1}}))
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line.pop("time"))
    assert line == {
        "level": "error",
        "logger": "stoplist.test",
        "message": "copied 3 rows",
        "file": "a b",
        "time_": 1,
    }
    shown = one_event("console", "copied", extra={"fields": {"file": Path("a b"), "rows": 3, "to": "x.db", "of": [1]}})
    assert shown[24:] == ' error    stoplist.test: copied file="a b" rows=3 to=x.db of=[1]\n'


def test_times_are_in_utc_with_milliseconds() -> None:
    """They are right when time goes back, too: the cached second is compared."""
    assert [format_ms(at_ms) for at_ms in (0, AT_MS, AT_MS + 993, AT_MS)] == [
        "1970-01-01T00:00:00.000Z",
        "2026-03-01T09:30:00.007Z",
        "2026-03-01T09:30:01.000Z",
        "2026-03-01T09:30:00.007Z",
    ]


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("/", "/"),
        ("/oauth/token", "/oauth/token"),
        ("/api/v1/unsubscribe/email", "/api/v1/unsubscribe/email"),
        ("/openapi.json", "/openapi.json"),
        ("/api/v1/unsubscribe/ann@example.org", "/api/v1/unsubscribe/*"),
        ("/api/v1/+15551234567/x", "/api/v1/*/x"),
        ("/svc_at_secret//v2/", "/*//*/"),
        ("/oauth/token\n", "/oauth/*"),
        ("/" + "a" * 32, "/" + "a" * 32),
        ("/" + "a" * 33, "/*"),
        ("/Ann", "/*"),
        ("*", "*"),
        ("/a" * 129, "/*"),
        ("/u/plain", "/u/*"),
        ("/u/plain/words", "/u/*"),
    ],
)
def test_a_path_shows_only_plain_words(path: str, shown: str) -> None:
    """A client may put an address or a token into a path."""
    assert log.safe_path(path) == shown


@pytest.mark.parametrize("log_format", ["json", "console"])
def test_no_link_stays_in_memory_for_the_log(log_format: str) -> None:
    """All links share an entry of the cache, which thus keeps what is used again."""
    cached: Any = layouts.LAYOUTS[log_format].call
    with configured(log_format, io.BytesIO()):
        request(path="/u/first")
        before = cached.cache_info().currsize
        for number in range(3):
            request(path=f"/u/token-{number}")
    assert cached.cache_info().currsize == before


@pytest.mark.parametrize("log_format", ["json", "console"])
def test_misplaced_secrets_and_addresses_are_not_logged(log_format: str) -> None:
    """Sent as client id, as method or in the path."""
    secret = new_secret(CLIENT_SECRET)
    stream = io.BytesIO()
    with configured(log_format, stream):
        for client_id in (secret, SECRET, CLIENT_ID + "ann@example.org-123456", "x" * 100_000):
            request(client_id=client_id)
        request(method=SECRET, path=f"/{SECRET}/{secret}")
    assert secret not in stream.getvalue().decode()
    assert SECRET not in stream.getvalue().decode()
    assert len(stream.getvalue()) < 2000


ANY_TEXT = st.text(st.characters(codec=None)) | st.sampled_from(
    ["a\nb", "\r", "\x1b[2J", "\u2028", "\x85", "\ud800", "\"'\\"]
)


@given(
    at_ms=st.integers(0, 253_402_300_799_999),
    request_id=ANY_TEXT,
    client_id=ANY_TEXT | st.none() | st.builds(new_id, st.just(CLIENT_ID)),
    method=ANY_TEXT | st.sampled_from(["GET", "POST"]),
    path=ANY_TEXT | st.lists(ANY_TEXT, max_size=5).map("/".join),
    status=st.integers(100, 599),
    duration_ms=st.floats(0, 1e15),
)
def test_any_request_is_exactly_one_line_that_reads_back(**values: Any) -> None:
    """No value forges a line, breaks the JSON or moves the terminal's cursor."""
    stream, shown = io.BytesIO(), io.BytesIO()
    with configured("json", stream):
        request(**values)
    with configured("console", shown):
        request(**values)
    assert len(stream.getvalue().decode("ascii").splitlines()) == 1
    line = json.loads(stream.getvalue())
    assert line["time"] == format_ms(values["at_ms"])
    assert line["request_id"] == values["request_id"]
    assert line["client_id"] in (values["client_id"], "*")
    assert line["method"] in (values["method"], "*")
    assert line["path"] == log.safe_path(values["path"])
    assert line["status"] == values["status"]
    assert line["duration_ms"] == pytest.approx(values["duration_ms"], abs=0.001)
    text = shown.getvalue().decode()
    assert text.endswith("\n")
    assert text[:-1].isprintable()


ANY_VALUE = st.recursive(
    ANY_TEXT | st.none() | st.booleans() | st.integers() | st.floats() | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ANY_TEXT, inner, max_size=3),
    max_leaves=5,
)


@given(message=ANY_TEXT, fields=st.dictionaries(ANY_TEXT, ANY_VALUE, max_size=4))
def test_any_event_is_exactly_one_line_that_reads_back(message: str, fields: dict[str, Any]) -> None:
    """The same for messages and fields; a number that JSON does not have becomes text."""

    def constant(text: str) -> None:
        raise AssertionError(text)

    line = one_event("json", message, extra={"fields": fields})
    assert len(line.splitlines()) == 1
    read = json.loads(line, parse_constant=constant)
    assert read["message"] == message
    assert all(read.get(f"{name}_", read.get(name)) == value for name, value in fields.items() if type(value) is str)
    shown = one_event("console", message, extra={"fields": fields})
    assert shown.endswith("\n")
    assert shown[:-1].isprintable()


def test_an_exception_is_logged_as_class_code_and_frames() -> None:
    """A database's text quotes the row; the code and the frames are enough to find the cause."""
    database = sqlite3.connect(":memory:")
    database.execute("CREATE TABLE t (address TEXT CHECK (length(address) < 3))")
    stream, shown = io.BytesIO(), io.BytesIO()
    for log_format, out in (("json", stream), ("console", shown)):
        with configured(log_format, out):
            try:
                try:
                    database.execute("INSERT INTO t VALUES (?)", (SECRET,))
                except sqlite3.Error as error:
                    raise LookupError(SECRET) from error
            except LookupError:
                LOGGER.exception("failed")
    database.close()
    first, cause = written(stream)[0]["exceptions"]
    here = f"{__file__}:"
    assert (first["name"], first["code"]) == ("LookupError", None)
    assert (cause["name"], cause["code"]) == ("sqlite3.IntegrityError", "SQLITE_CONSTRAINT_CHECK")
    assert first["frames"][-1].startswith(here)
    assert first["frames"][-1].endswith(" test_an_exception_is_logged_as_class_code_and_frames")
    lines = shown.getvalue().decode().splitlines()
    assert lines[1] == "    LookupError"
    assert lines[2].startswith(f"      {here}")
    assert "    sqlite3.IntegrityError SQLITE_CONSTRAINT_CHECK" in lines
    assert SECRET.encode() not in stream.getvalue() + shown.getvalue()


def test_exception_groups_and_endless_chains_are_logged() -> None:
    """A group is logged with its members; a chain may be a ring, a stack a thousand deep."""

    def endless() -> None:
        endless()

    ring = OSError(errno.ENOSPC, SECRET)
    ring.__context__ = LookupError(SECRET)
    ring.__context__.__context__ = ring
    with pytest.raises(RecursionError) as deep:
        endless()
    line = one_event("json", "failed", exc_info=ExceptionGroup(SECRET, [ring, deep.value]))
    told = json.loads(line)["exceptions"]
    assert [(it["name"], it["code"]) for it in told] == [
        ("ExceptionGroup", None),
        ("OSError", "ENOSPC"),
        ("RecursionError", None),
        ("LookupError", None),
    ]
    assert len(told[2]["frames"]) == 40
    assert SECRET not in line


@pytest.mark.parametrize(
    ("message", "values", "fields"),
    [
        ("failed: %s", (ValueError(SECRET),), {}),
        (ValueError(SECRET), (), {}),
        ("failed", (), {"error": ValueError(SECRET), "errors": [ValueError(SECRET)]}),
    ],
)
def test_an_exception_as_a_value_is_its_class(message: object, values: Any, fields: dict[str, Any]) -> None:
    """The exception may be the message, an argument or a field."""
    line = one_event("json", message, *values, extra={"fields": fields})
    assert SECRET not in line
    assert "ValueError" in line


def test_a_formatting_error_is_logged_without_values(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It does not fail the caller; logging's own error handler would print the values."""
    stream = io.BytesIO()
    with configured("json", stream):
        LOGGER.info("%d rows", SECRET)
        LOGGER.info("huge", extra={"fields": {"n": 10**5000}})
    assert [(line["level"], line["logger"], line["message"]) for line in written(stream)] == [
        ("error", "stoplist.test", "a line could not be formatted (TypeError)"),
        ("error", "stoplist.test", "a line could not be formatted (ValueError)"),
    ]
    assert capsys.readouterr().err == ""


def test_uvicorn_and_asyncio_log_the_same_way() -> None:
    """One handler for all; the access lines of uvicorn, which hold the query string, are off."""
    stream = io.BytesIO()
    with configured("json", stream):
        logging.getLogger("uvicorn.error").info("Started server process [%d]", 7)
        logging.getLogger("uvicorn.access").info("GET /?token=secret")
        logging.getLogger("another.library").info("not said")
        logging.getLogger("another.library").warning("said")
        assert not logging.getLogger("uvicorn.access").hasHandlers()
    assert [(line["logger"], line["message"]) for line in written(stream)] == [
        ("uvicorn.error", "Started server process [7]"),
        ("another.library", "said"),
    ]


def test_a_startup_traceback_shows_no_values() -> None:
    """Starlette passes uvicorn a formatted traceback, with texts of exceptions, as the message."""
    line = one_event("json", f"Traceback (most recent call last):\n  …\nValueError: {SECRET}\n", name="uvicorn.error")
    assert SECRET not in line


def test_asyncio_errors_are_logged_without_values() -> None:
    """Its message continues with the representations of tasks and callbacks."""

    async def fail() -> None:
        raise ValueError(SECRET)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        task = asyncio.create_task(fail())
        await asyncio.wait([task])
        loop.call_exception_handler(
            {"message": "Task exception was never retrieved", "exception": task.exception(), "task": task}
        )
        loop.call_exception_handler({"message": f"Exception in callback f('{SECRET}') at x"})
        loop.call_exception_handler({"message": f"Exception in callback <f('{SECRET}')>"})
        loop.call_exception_handler({"message": "SSL error in data_received()", "protocol": SECRET})

    stream = io.BytesIO()
    with configured("json", stream):
        asyncio.run(main())
    assert SECRET.encode() not in stream.getvalue()
    assert [line["message"] for line in written(stream)] == [
        "Task exception was never retrieved",
        "Exception in callback f",
        "Exception in callback",
        "SSL error in data_received()",
    ]
    assert written(stream)[0]["exceptions"][0]["name"] == "ValueError"


def test_an_event_writes_the_buffered_request_lines_first() -> None:
    """The log is in the order of events."""
    stream = io.BytesIO()

    async def main() -> None:
        request(status=201)
        request(status=202)
        assert stream.getvalue() == b""
        LOGGER.info("then")
        assert [line.get("status") for line in written(stream)] == [201, 202, None]
        request(status=203)
        assert len(written(stream)) == 3
        log.flush()
        assert written(stream)[3]["status"] == 203

    with configured("json", stream):
        asyncio.run(main())


class ObservedStream(io.BytesIO):
    """Signals when it has been written to."""

    def __init__(self) -> None:
        super().__init__()
        self.written = asyncio.Event()

    def write(self, content: Any) -> int:
        self.written.set()
        return super().write(content)


def test_buffered_lines_are_written_within_50_ms() -> None:
    """A running loop writes them each time again; the loop after one that left lines behind writes those too."""

    async def leave_a_line() -> None:
        request(status=201)

    async def wait_for_lines(stream: ObservedStream) -> None:
        for status in (202, 203):
            stream.written.clear()
            start_s = asyncio.get_running_loop().time()
            request(status=status)
            await asyncio.wait_for(stream.written.wait(), 60)
            assert asyncio.get_running_loop().time() - start_s >= 0.04

    stream = ObservedStream()
    with configured("json", stream):
        asyncio.run(leave_a_line())
        assert stream.getvalue() == b""
        asyncio.run(wait_for_lines(stream))
    assert [line["status"] for line in written(stream)] == [201, 202, 203]


def test_buffered_lines_are_written_at_64_kib() -> None:
    """They are written even while the loop has no time for its timers."""
    stream = io.BytesIO()

    async def main() -> None:
        for status in range(100, 400):
            request(status=status)
        assert 64 * 1024 <= len(stream.getvalue()) < 66 * 1024

    with configured("json", stream):
        asyncio.run(main())
        log.flush()
    assert [line["status"] for line in written(stream)] == list(range(100, 400))


def test_without_a_loop_lines_are_written_at_once() -> None:
    """Nothing would write them later. Before `configure` nothing is written, so other tests are quiet."""
    request()
    log.flush()
    stream = io.BytesIO()
    with configured("json", stream):
        request(status=204)
        assert [line["status"] for line in written(stream)] == [204]


def test_threads_lose_or_repeat_no_line() -> None:
    """Commits and checkpoints run in threads, and flush what the loop has buffered."""
    stream = io.BytesIO()

    def events(thread: int) -> None:
        for number in range(300):
            LOGGER.info("event", extra={"fields": {"n": f"{thread}.{number}"}})

    async def main() -> None:
        with ThreadPoolExecutor(4) as pool:
            running = [pool.submit(events, thread) for thread in range(4)]
            number = 0
            while number < 2000 or not all(it.done() for it in running):
                request(request_id=f"r.{number}")
                number += 1
        asked.append(number)

    asked: list[int] = []
    switch_interval_s = sys.getswitchinterval()
    with configured("json", stream):
        # Switch threads between any two steps of the interpreter; otherwise the gaps would rarely be hit.
        sys.setswitchinterval(1e-6)
        try:
            asyncio.run(main())
        finally:
            sys.setswitchinterval(switch_interval_s)
        log.flush()
    lines = written(stream)
    assert [line["request_id"] for line in lines if "request_id" in line] == [f"r.{n}" for n in range(asked[0])]
    for thread in range(4):
        of_thread = [line["n"] for line in lines if line.get("n", "").startswith(f"{thread}.")]
        assert of_thread == [f"{thread}.{number}" for number in range(300)]


class BlockingStream(io.BytesIO):
    """Signals when it is being written to, and accepts nothing before it is released."""

    def __init__(self) -> None:
        super().__init__()
        self.is_writing, self.go_on = threading.Event(), threading.Event()

    def write(self, content: Any) -> int:
        self.is_writing.set()
        assert self.go_on.wait(60)
        return super().write(content)


def test_a_blocked_thread_does_not_stop_requests() -> None:
    """Lines that the loop buffers meanwhile are neither lost nor written before the thread's."""
    stream = BlockingStream()

    async def main() -> None:
        request(status=201)
        with ThreadPoolExecutor(1) as pool:
            pool.submit(LOGGER.info, "slow")
            assert stream.is_writing.wait(60)
            request(status=202)
            stream.go_on.set()

    with configured("json", stream):
        asyncio.run(main())
        log.flush()
    assert [line.get("status") for line in written(stream)] == [201, None, 202]


class PartialStream(io.RawIOBase):
    """Accepts as many bytes at a time as its plan says: None is a full pipe, an exception a failure."""

    def __init__(self, *plan: int | OSError | None) -> None:
        self.plan = list(plan)
        self.taken = b""

    def writable(self) -> bool:
        return True

    def write(self, content: Any) -> int | None:
        step = self.plan.pop(0) if self.plan else len(content)
        if isinstance(step, OSError):
            raise step
        self.taken += bytes(content[: step or 0])
        return None if step is None else min(step, len(content))


@pytest.mark.parametrize("plan", [(1, 2, 3, 50), (None, 7, None, None, 9), (0, 5)])
def test_partial_writes_keep_whole_lines_in_order(plan: tuple[int | None, ...]) -> None:
    """write(2) may accept a part; a full non-blocking pipe accepts nothing."""
    stream = PartialStream(*plan)
    with configured("json", stream):
        for number in range(8):
            LOGGER.info("event %d", number)
    assert [json.loads(line)["message"] for line in stream.taken.splitlines()] == [f"event {n}" for n in range(8)]


def test_a_full_pipe_loses_whole_lines() -> None:
    """The server neither waits for the log's reader nor buffers lines without end."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    os.set_blocking(reader, False)
    with open(writer, "wb") as stream, open(reader, "rb", buffering=0) as taken, configured("json", stream):
        for number in range(3000):
            LOGGER.info("event", extra={"fields": {"n": number, "filling": "x" * 1000}})
        content = b""
        while more := taken.read(65536):
            content += more
            log.flush()
        LOGGER.info("event", extra={"fields": {"n": -1}})
        content += taken.read(65536) or b""
    numbers = [json.loads(line)["n"] for line in content.splitlines()]
    assert numbers[-1] == -1
    assert numbers[:-1] == list(range(len(numbers) - 1))
    assert 1024 * 1024 <= len(content) < 2 * 1024 * 1024


def test_a_torn_line_does_not_spoil_the_next() -> None:
    """A disk that was full for a while leaves one torn line, and no failure of the caller."""
    stream = PartialStream(10, OSError(errno.ENOSPC, "full"), OSError(errno.ENOSPC, "full"))
    with configured("json", stream):
        LOGGER.info("torn")
        LOGGER.info("lost")
        LOGGER.info("whole")
    torn, whole = stream.taken.splitlines()
    assert len(torn) == 10
    assert json.loads(whole)["message"] == "whole"


def test_a_closed_pipe_or_stream_is_no_failure() -> None:
    """The reader of the log is gone; the server continues."""
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "wb") as stream, configured("json", stream):
        LOGGER.info("nobody reads")
        request()
    with configured("json", stream):
        LOGGER.info("closed")


PROGRAM = """
import asyncio, logging
from stoplist import log
async def main():
    log.log_request(
        at_ms=0, request_id="r", client_id=None, method="GET", path="/", status=200, duration_ms=1,
        source_ip="::1"
    )
log.configure("json")
asyncio.run(main())
"""


@pytest.mark.parametrize("is_read", [True, False])
def test_buffered_lines_are_written_at_exit(is_read: bool) -> None:
    """Standard error is the default; if it is closed, the exit status is still right."""
    reader, writer = os.pipe()
    with open(reader, "rb") as stream:
        if not is_read:
            stream.close()
        environ = os.environ | {"PYTHONPATH": str(Path(stoplist.__file__).parents[1])}
        ended = subprocess.run([sys.executable, "-c", PROGRAM], stderr=writer, env=environ, check=False, timeout=60)
        os.close(writer)
        assert ended.returncode == 0
        if is_read:
            assert json.loads(stream.read())["request_id"] == "r"


def test_request_ids_are_written_without_quotes() -> None:
    """So that they can be searched for."""
    stream, request_id = io.BytesIO(), new_request_id()
    with configured("console", stream):
        request(request_id=request_id)
    assert stream.getvalue().decode().endswith(f" {request_id}\n")


WRITER = """
import asyncio, sys
from stoplist import log

async def main():
    log.configure("json")
    for number in range(2000):
        log.log_request(
            at_ms=0, request_id=f"{sys.argv[1]}-{number}", client_id=None, method="GET", path="/", status=200,
            duration_ms=0.0, source_ip="::1",
        )
    log.flush()

asyncio.run(main())
"""


def test_a_line_longer_than_pipe_buf_is_written_alone() -> None:
    """One write for it, and none for a part of it."""

    pieces: list[bytes] = []

    class Pipe(io.BytesIO):
        def write(self, content: Any) -> int:
            pieces.append(bytes(content))
            return len(content)

    with configured("json", Pipe()):
        asyncio.run(_logged_at_once("first", "x" * 3 * PIPE_BUF, "last"))
    assert len(pieces) == 3
    assert all(piece.startswith(b"{") and piece.endswith(b"\n") for piece in pieces)


async def _logged_at_once(*request_ids: str) -> None:
    for request_id in request_ids:
        request(request_id=request_id)
    log.flush()


def test_processes_do_not_mix_lines_in_one_pipe() -> None:
    """The workers of a server share one; each writes many lines at once, more than the pipe holds."""
    reading, writing = os.pipe()
    if sys.platform == "linux":
        fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 4096)
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, name], stderr=writing) for name in "abc"]
    os.close(writing)
    with open(reading, "rb") as pipe:
        lines = pipe.readlines()
    assert [writer.wait(60) for writer in writers] == [0, 0, 0]
    found = [json.loads(line)["request_id"] for line in lines]
    for name in "abc":
        assert [it for it in found if it.startswith(name)] == [f"{name}-{number}" for number in range(2000)]
