"""The server's log: ordinary events through `logging`, and one line per request through a faster path.

Nothing that people or partners entrust to the server is logged: no text of an exception (drivers put rows into it), no
path segment that is not a plain word, no client id of the wrong form. No value can start a new line. Request lines are
buffered and written together; an event first writes the buffered lines.
Source: docs/interface.md section 2.1 (a client id may be logged) and section D1 (LOG_FORMAT).
"""

import asyncio
import errno
import json
import logging
import math
import re
import select
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, BinaryIO, NamedTuple

from stoplist.ids import CLIENT_ID
from stoplist.rfc3339 import format_ms


def configure(log_format: str, stream: BinaryIO | None = None) -> None:
    """Log everything to `stream` (standard error by default) as `console` or `json`, from now on.

    Takes over the root logger and those of uvicorn and asyncio, and drops their former configuration.
    Log with `logging.getLogger(__name__).info("text", extra={"fields": {"name": value}})`.
    """
    global _writer, _layout
    flush()
    _writer, _layout = _Writer(stream or sys.stderr.buffer), _LAYOUTS[log_format]
    logging.root.handlers[:] = [_Handler(_writer, _layout)]
    logging.root.setLevel(logging.WARNING)
    for name, level in _LEVELS.items():
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.setLevel(level)
        logger.propagate = name != "uvicorn.access"


def log_request(
    *,
    at_ms: int,
    request_id: str,
    client_id: str | None,
    method: str,
    path: str,
    status: int,
    duration_ms: float,
) -> None:
    """Log one request, written within 50 ms or at the next event or `flush`, whichever comes first.

    `path` is the path as received, without query. Does nothing before `configure`.
    """
    if _writer is None:
        return
    # Bounds the size of the cache, and of what a client can make the server write.
    if len(path) > _MAX_PATH_CHARS:
        path = "/*"
    if client_id is not None and len(client_id) != _CLIENT_ID_CHARS:
        client_id = "*"
    if method not in _METHODS:
        method = "*"
    call = _layout.call(client_id, method, path)
    _writer.add(_layout.request(format_ms(at_ms), call, request_id, status, f"{duration_ms:.3f}"))


def flush() -> None:
    """Hand every buffered line to the operating system, or drop the lines if nobody reads them any more."""
    if _writer is not None:
        _writer.flush()


def safe_path(path: str) -> str:
    """Return the path with `*` for every segment that a client may have made up, such as an address or a token."""
    if len(path) > _MAX_PATH_CHARS:
        return "/*"
    return "/".join(segment if _is_plain_segment(segment) else "*" for segment in path.split("/"))


_LEVELS = {
    "stoplist": logging.INFO,
    "uvicorn": logging.INFO,
    # Without a level of its own, uvicorn creates a trace line for every connection.
    "uvicorn.error": logging.INFO,
    "uvicorn.asgi": logging.INFO,
    # Its lines hold the query string; the lines of `log_request` replace them.
    "uvicorn.access": logging.CRITICAL,
    "asyncio": logging.WARNING,
}
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT"})
_FLUSH_AFTER_S = 0.05
_FLUSH_AT_CHARS = 64 * 1024
_MAX_BACKLOG_BYTES = 1024 * 1024
_MAX_PATH_CHARS = 256
_CLIENT_ID_CHARS = len(CLIENT_ID) + 22
_MAX_CACHED_CALLS = 4096
_MAX_FRAMES = 40
_MAX_EXCEPTIONS = 8

_is_client_id = re.compile(CLIENT_ID + "[0-9A-Za-z]+").fullmatch
_is_plain_segment = re.compile("[a-z.-]{0,32}|v1").fullmatch
_is_plain_value = re.compile(r"[\w./:*+,-]+", re.ASCII).fullmatch
_is_code = re.compile("[A-Z0-9_]{1,40}").fullmatch
_quoted_values = re.compile(r"[<\n]|\((?!\)).*", re.DOTALL)

# ASCII output has no line separators of any kind, and accepts lone surrogates, which msgspec refuses.
_to_json = json.JSONEncoder().encode


class _Exception(NamedTuple):
    """An exception without its text: its class, the code of the database or the system, and its frames."""

    name: str
    code: str | None
    frames: list[str]


class _Event(NamedTuple):
    time: str
    level: str
    logger: str
    message: str
    fields: dict[str, Any]
    exceptions: list[_Exception]


class _Layout(NamedTuple):
    """Formats the two kinds of lines, each with its newline.

    `call` formats the part of a request line that repeats often; its results are cached.
    """

    event: Callable[[_Event], str]
    call: Callable[[str | None, str, str], str]
    request: Callable[[str, str, str, int, str], str]


def _event_as_json(event: _Event) -> str:
    line: dict[str, Any] = {
        "time": event.time,
        "level": event.level,
        "logger": event.logger,
        "message": event.message,
    }
    if event.exceptions:
        line["exceptions"] = [exception._asdict() for exception in event.exceptions]
    for name, value in event.fields.items():
        line[f"{name}_" if name in line else name] = value
    return f"{_to_json(line)}\n"


@lru_cache(_MAX_CACHED_CALLS)
def _call_as_json(client_id: str | None, method: str, path: str) -> str:
    return f'"client_id":{_to_json(_redact_client_id(client_id))},"method":"{method}","path":"{safe_path(path)}"'


def _request_as_json(at: str, call: str, request_id: str, status: int, duration_ms: str) -> str:
    return (
        f'{{"time":"{at}","level":"info","logger":"stoplist.request","message":"request",{call},'
        f'"status":{status},"duration_ms":{duration_ms},"request_id":{_to_json(request_id)}}}\n'
    )


def _event_for_console(event: _Event) -> str:
    fields = "".join(f" {_escape(name)}={_value(value)}" for name, value in event.fields.items())
    head = f"{event.time} {event.level:<8} {event.logger}: {_escape(event.message)}{fields}\n"
    return head + "".join(map(_exception_for_console, event.exceptions))


def _exception_for_console(exception: _Exception) -> str:
    lines = [f"{exception.name} {exception.code or ''}".rstrip(), *(f"  {frame}" for frame in exception.frames)]
    return "".join(f"    {_escape(line)}\n" for line in lines)


@lru_cache(_MAX_CACHED_CALLS)
def _call_for_console(client_id: str | None, method: str, path: str) -> str:
    return f"{method} {safe_path(path)} {_redact_client_id(client_id) or '-'}"


def _request_for_console(at: str, call: str, request_id: str, status: int, duration_ms: str) -> str:
    return f"{at} info     {call} {status} {duration_ms} ms {_value(request_id)}\n"


_LAYOUTS = {
    "console": _Layout(_event_for_console, _call_for_console, _request_for_console),
    "json": _Layout(_event_as_json, _call_as_json, _request_as_json),
}


def _redact_client_id(client_id: str | None) -> str | None:
    """Return the client id, or `*` if its form is wrong: some clients send a secret or an address in its place."""
    return client_id if client_id is None or _is_client_id(client_id) else "*"


def _value(value: Any) -> str:
    if not isinstance(value, str):
        return _to_json(value)
    return value if _is_plain_value(value) else _escape(json.dumps(value, ensure_ascii=False))


def _escape(text: str) -> str:
    """Return the text with an escape for every character that a terminal would not print on this line."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


class _Writer:
    """Buffers lines and writes them to a stream in order; each line is written whole if the stream accepts it."""

    def __init__(self, stream: BinaryIO) -> None:
        # Bypasses the stream's own buffer, which would raise again at exit if the reader has closed the pipe.
        self._stream = getattr(stream, "raw", stream)
        self._lines: list[str] = []
        self._chars = 0
        self._backlog = b""
        self._is_within_line = False
        self._flush_loop: asyncio.AbstractEventLoop | None = None
        # Threads log too, and a signal handler may log while its own thread is in here.
        self._flushing = threading.RLock()

    def add(self, line: str) -> None:
        # No lock (0.2 us): an append is atomic, and a count that another thread resets in between does no harm.
        self._lines.append(line)
        self._chars += len(line)
        if self._chars >= _FLUSH_AT_CHARS or not self._is_flush_scheduled():
            self.flush()

    def write(self, line: str) -> None:
        self._lines.append(line)
        self.flush()

    def flush(self) -> None:
        with self._flushing:
            # Only the copied lines are removed: the event loop may append at any moment.
            lines = self._lines[:]
            del self._lines[: len(lines)]
            self._chars = 0
            content, self._backlog = self._backlog, b""
            if len(content) < _MAX_BACKLOG_BYTES:
                content += "".join(lines).encode()
            written, is_failed = _write_available(self._stream, content)
            if written:
                self._is_within_line = content[written - 1] != ord("\n")
            # After a failure the lines are lost; a newline keeps the next line apart from a partly written one.
            self._backlog = content[written:] if not is_failed else b"\n" if self._is_within_line else b""

    def _is_flush_scheduled(self) -> bool:
        """Return whether an event loop will flush soon. Without an event loop nothing would."""
        # A closed loop never will. Asking which loop runs is more expensive, so it comes second.
        if self._flush_loop is not None and not self._flush_loop.is_closed():
            return True
        try:
            self._flush_loop = asyncio.get_running_loop()
        except RuntimeError:
            return False
        self._flush_loop.call_later(_FLUSH_AFTER_S, self._flush_on_timer)
        return True

    def _flush_on_timer(self) -> None:
        self._flush_loop = None
        self.flush()


def _write_available(stream: Any, content: bytes) -> tuple[int, bool]:
    """Return how many bytes the stream accepted, and whether it failed. Fewer bytes without a failure: a full pipe."""
    rest = memoryview(content)
    try:
        while rest and (count := stream.write(_whole_lines(rest))):
            rest = rest[count:]
    except BlockingIOError as full:
        rest = rest[getattr(full, "characters_written", 0) :]
    except (OSError, ValueError):
        # Nobody reads any more, the disk is full, or the stream is closed: the server continues without a log.
        return len(content) - len(rest), True
    return len(content) - len(rest), False


def _whole_lines(rest: memoryview) -> memoryview:
    """Return as many lines as a pipe accepts atomically: other processes of the same server write into it too.

    A longer line is written alone; it is torn only if the pipe fills up in the middle of it.
    """
    if len(rest) <= select.PIPE_BUF:
        return rest
    return rest[: bytes(rest[: select.PIPE_BUF]).rfind(b"\n") + 1 or bytes(rest).find(b"\n") + 1 or len(rest)]


class _Handler(logging.Handler):
    """The only handler, used by every logger."""

    def __init__(self, writer: _Writer, layout: _Layout) -> None:
        super().__init__()
        self._writer, self._layout = writer, layout

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = self._layout.event(_event(record))
        # A value that cannot be formatted must not fail its caller; logging's own error handler would print the value.
        except Exception as error:
            message = f"a line could not be formatted ({_name(error)})"
            at = format_ms(int(record.created * 1000))
            line = self._layout.event(_Event(at, "error", record.name, message, {}, []))
        self._writer.write(line)

    def flush(self) -> None:
        self._writer.flush()


def _event(record: logging.LogRecord) -> _Event:
    fields = getattr(record, "fields", None)
    return _Event(
        time=format_ms(int(record.created * 1000)),
        level=record.levelname.lower(),
        logger=record.name,
        message=_message(record),
        fields={str(name): _to_json_value(value) for name, value in (fields or {}).items()},
        exceptions=list(_exceptions(record.exc_info[1] if record.exc_info else None)),
    )


def _message(record: logging.LogRecord) -> str:
    message = str(_to_json_value(record.msg))
    if isinstance(record.args, tuple) and record.args:
        message %= tuple(_name(arg) if isinstance(arg, BaseException) else arg for arg in record.args)
    elif record.args:
        message %= record.args
    if record.name.partition(".")[0] == "stoplist":
        return message
    # asyncio appends the values of tasks and callbacks, lifespan failures a traceback with texts.
    if record.name == "asyncio":
        return _quoted_values.split(message, maxsplit=1)[0].rstrip()
    return message.strip().partition("\n")[0]


def _to_json_value(value: Any) -> Any:
    """Return the value as JSON can hold it. An exception becomes its class: its text may quote a row."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else str(value)
        case BaseException():
            return _name(value)
        case list() | tuple():
            return [_to_json_value(item) for item in value]
        case dict():
            return {str(name): _to_json_value(item) for name, item in value.items()}
    return str(value)


def _exceptions(error: BaseException | None) -> Iterator[_Exception]:
    """Yield this exception and those that caused it or that it contains, each once."""
    queue, seen = [error], set[int]()
    while queue and len(seen) < _MAX_EXCEPTIONS:
        current = queue.pop(0)
        if current is None or id(current) in seen:
            continue
        seen.add(id(current))
        yield _Exception(_name(current), _code(current), _frames(current))
        queue.append(current.__cause__ or (None if current.__suppress_context__ else current.__context__))
        queue += current.exceptions if isinstance(current, BaseExceptionGroup) else ()


def _name(error: BaseException) -> str:
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _code(error: BaseException) -> str | None:
    """Return the code of PostgreSQL, SQLite or the system, which helps to find the cause without the text."""
    code = getattr(error, "sqlstate", None) or getattr(error, "sqlite_errorname", None)
    if isinstance(error, OSError):
        code = errno.errorcode.get(error.errno or 0)
    return code if isinstance(code, str) and _is_code(code) else None


def _frames(error: BaseException) -> list[str]:
    """Return the innermost frames; the last one is where the exception was raised."""
    frames = [
        f"{frame.f_code.co_filename}:{line} {frame.f_code.co_qualname}"
        for frame, line in traceback.walk_tb(error.__traceback__)
    ]
    return frames[-_MAX_FRAMES:]


_writer: _Writer | None = None
_layout: _Layout = _LAYOUTS["console"]
