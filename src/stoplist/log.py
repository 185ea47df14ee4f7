"""What the server writes down: ordinary events through `logging`, and one line a request by a faster way.

Nothing that people or partners entrust to the server gets in: no text of an exception (drivers put rows into
it), no piece of a path that is not a plain word, no client id that is not shaped like one. No value can begin
a line of its own. Request lines are gathered and written together; an event writes them out before itself.
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
import time
import traceback
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, BinaryIO, NamedTuple

from stoplist.ids import CLIENT_ID


def configure(log_format: str, stream: BinaryIO | None = None) -> None:
    """From now on everything is logged to `stream` (standard error by default), as `console` or `json`.

    Takes over the root logger and those of uvicorn and asyncio; whatever was configured before is dropped.
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
    """One request is in the log within 50 ms, or at the next event or `flush`, whichever comes first.

    `path` is the path as received, without query. Does nothing before `configure`.
    """
    if _writer is None:
        return
    # Bounds what the cache holds, and what a client can make us write.
    if len(path) > _PATH_MAX_CHARS:
        path = "/*"
    if client_id is not None and len(client_id) != _CLIENT_ID_CHARS:
        client_id = "*"
    if method not in _METHODS:
        method = "*"
    call = _layout.call(client_id, method, path)
    _writer.add(_layout.request(rfc3339(at_ms), call, request_id, status, f"{duration_ms:.3f}"))


def flush() -> None:
    """Every line so far has been handed to the operating system, or dropped if nobody reads any more."""
    if _writer is not None:
        _writer.flush()


def safe_path(path: str) -> str:
    """The path with `*` for every piece that a client may have made up: an address, a token, anything."""
    if len(path) > _PATH_MAX_CHARS:
        return "/*"
    return "/".join(segment if _is_plain_segment(segment) else "*" for segment in path.split("/"))


def rfc3339(at_ms: int) -> str:
    """`2026-03-01T09:30:00.000Z` for integer milliseconds since 1970 UTC."""
    global _this_second
    second = at_ms // 1000
    known, text = _this_second
    if second != known:
        text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
        _this_second = second, text
    return text + _MILLISECONDS[at_ms % 1000]


_LEVELS = {
    "stoplist": logging.INFO,
    "uvicorn": logging.INFO,
    # Without a level of its own, uvicorn asks for a trace line at every connection.
    "uvicorn.error": logging.INFO,
    "uvicorn.asgi": logging.INFO,
    # Its lines hold the query string; ours take their place.
    "uvicorn.access": logging.CRITICAL,
    "asyncio": logging.WARNING,
}
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT"})
_FLUSH_AFTER_S = 0.05
_FLUSH_AT_CHARS = 64 * 1024
_BACKLOG_MAX_BYTES = 1024 * 1024
_PATH_MAX_CHARS = 256
_CLIENT_ID_CHARS = len(CLIENT_ID) + 22
_CALLS_CACHED = 4096
_FRAMES_MAX = 40
_EXCEPTIONS_MAX = 8

_is_client_id = re.compile(CLIENT_ID + "[0-9A-Za-z]+").fullmatch
_is_plain_segment = re.compile("[a-z.-]{0,32}|v1").fullmatch
_is_plain_value = re.compile(r"[\w./:*+,-]+", re.ASCII).fullmatch
_is_code = re.compile("[A-Z0-9_]{1,40}").fullmatch
_values_shown = re.compile(r"[<\n]|\((?!\)).*", re.DOTALL)
_MILLISECONDS = tuple(f".{ms:03d}Z" for ms in range(1000))
_this_second = (-1, "")

# In ASCII, a value is one line under every reading; and lone surrogates pass, which msgspec refuses.
_quoted = json.JSONEncoder().encode


class _Exception(NamedTuple):
    """An exception without its text: its class, a database's or the system's code, where it was raised."""

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
    """How the two kinds of lines look, each with its newline.

    The same few calls are made again and again: that piece of a request's line is kept and used again.
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
        line["exceptions"] = [it._asdict() for it in event.exceptions]
    for name, value in event.fields.items():
        line[f"{name}_" if name in line else name] = value
    return f"{_quoted(line)}\n"


@lru_cache(_CALLS_CACHED)
def _call_as_json(client_id: str | None, method: str, path: str) -> str:
    return f'"client_id":{_quoted(_client(client_id))},"method":"{method}","path":"{safe_path(path)}"'


def _request_as_json(at: str, call: str, request_id: str, status: int, duration_ms: str) -> str:
    return (
        f'{{"time":"{at}","level":"info","logger":"stoplist.request","message":"request",{call},'
        f'"status":{status},"duration_ms":{duration_ms},"request_id":{_quoted(request_id)}}}\n'
    )


def _event_for_people(event: _Event) -> str:
    fields = "".join(f" {_escaped(name)}={_value(value)}" for name, value in event.fields.items())
    head = f"{event.time} {event.level:<8} {event.logger}: {_escaped(event.message)}{fields}\n"
    return head + "".join(map(_exception_for_people, event.exceptions))


def _exception_for_people(exception: _Exception) -> str:
    lines = [f"{exception.name} {exception.code or ''}".rstrip(), *(f"  {it}" for it in exception.frames)]
    return "".join(f"    {_escaped(line)}\n" for line in lines)


@lru_cache(_CALLS_CACHED)
def _call_for_people(client_id: str | None, method: str, path: str) -> str:
    return f"{method} {safe_path(path)} {_client(client_id) or '-'}"


def _request_for_people(at: str, call: str, request_id: str, status: int, duration_ms: str) -> str:
    return f"{at} info     {call} {status} {duration_ms} ms {_value(request_id)}\n"


_LAYOUTS = {
    "console": _Layout(_event_for_people, _call_for_people, _request_for_people),
    "json": _Layout(_event_as_json, _call_as_json, _request_as_json),
}


def _client(client_id: str | None) -> str | None:
    """Only what looks like a client id: some client will send its secret, or an address, in that place."""
    return client_id if client_id is None or _is_client_id(client_id) else "*"


def _value(value: Any) -> str:
    if not isinstance(value, str):
        return _quoted(value)
    return value if _is_plain_value(value) else _escaped(json.dumps(value, ensure_ascii=False))


def _escaped(text: str) -> str:
    """The text with an escape for whatever a terminal would not show as a character of this line."""
    if text.isprintable():
        return text
    return "".join(it if it.isprintable() else it.encode("unicode_escape").decode() for it in text)


class _Writer:
    """Gathers lines and writes them to a stream, in order, whole if the stream takes them."""

    def __init__(self, stream: BinaryIO) -> None:
        # Past the stream's own buffer, which would raise again at exit when the other end has hung up.
        self._stream = getattr(stream, "raw", stream)
        self._lines: list[str] = []
        self._chars = 0
        self._backlog = b""
        self._is_within_line = False
        self._timed_by: asyncio.AbstractEventLoop | None = None
        # Threads log too; and the handler of a signal may log while its own thread is in here.
        self._flushing = threading.RLock()

    def add(self, line: str) -> None:
        # No lock (0.2 us): an append is whole, and a count that a thread has reset in between does no harm.
        self._lines.append(line)
        self._chars += len(line)
        if self._chars >= _FLUSH_AT_CHARS or not self._is_timed():
            self.flush()

    def write(self, line: str) -> None:
        self._lines.append(line)
        self.flush()

    def flush(self) -> None:
        with self._flushing:
            # Only what was seen is taken away: the event loop may append at any moment.
            lines = self._lines[:]
            del self._lines[: len(lines)]
            self._chars = 0
            content, self._backlog = self._backlog, b""
            if len(content) < _BACKLOG_MAX_BYTES:
                content += "".join(lines).encode()
            taken, is_failed = _offer(self._stream, content)
            if taken:
                self._is_within_line = content[taken - 1] != ord("\n")
            # A failure's lines are lost; after one that broke off, the next must not look like its end.
            self._backlog = content[taken:] if not is_failed else b"\n" if self._is_within_line else b""

    def _is_timed(self) -> bool:
        """Whether an event loop will flush soon; without one nothing would."""
        # A loop that was closed before its time came never will. Which loop runs is a dearer question.
        if self._timed_by is not None and not self._timed_by.is_closed():
            return True
        try:
            self._timed_by = asyncio.get_running_loop()
        except RuntimeError:
            return False
        self._timed_by.call_later(_FLUSH_AFTER_S, self._on_time)
        return True

    def _on_time(self) -> None:
        self._timed_by = None
        self.flush()


def _offer(stream: Any, content: bytes) -> tuple[int, bool]:
    """How many bytes the stream took, and whether it failed; too few without a failure is a full pipe."""
    rest = memoryview(content)
    try:
        while rest and (count := stream.write(_whole_lines(rest))):
            rest = rest[count:]
    except BlockingIOError as full:
        rest = rest[getattr(full, "characters_written", 0) :]
    except (OSError, ValueError):
        # Nobody reads any more, the disk is full, the stream is closed: the server goes on without a log.
        return len(content) - len(rest), True
    return len(content) - len(rest), False


def _whole_lines(rest: memoryview) -> memoryview:
    """As many lines as a pipe takes in one piece: other processes of the same server write into it too.

    A single line that is longer goes alone: it is torn only if the pipe is full in the middle of it.
    """
    if len(rest) <= select.PIPE_BUF:
        return rest
    return rest[: bytes(rest[: select.PIPE_BUF]).rfind(b"\n") + 1 or bytes(rest).find(b"\n") + 1 or len(rest)]


class _Handler(logging.Handler):
    """The one way out for every logger."""

    def __init__(self, writer: _Writer, layout: _Layout) -> None:
        super().__init__()
        self._writer, self._layout = writer, layout

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = self._layout.event(_event(record))
        # A value that cannot be shown must not fail the work that logs it; logging's own way prints values.
        except Exception as error:
            message = f"a line could not be formatted ({_name(error)})"
            at = rfc3339(int(record.created * 1000))
            line = self._layout.event(_Event(at, "error", record.name, message, {}, []))
        self._writer.write(line)

    def flush(self) -> None:
        self._writer.flush()


def _event(record: logging.LogRecord) -> _Event:
    fields = getattr(record, "fields", None)
    return _Event(
        time=rfc3339(int(record.created * 1000)),
        level=record.levelname.lower(),
        logger=record.name,
        message=_message(record),
        fields={str(name): _plain(value) for name, value in (fields or {}).items()},
        exceptions=list(_exceptions(record.exc_info[1] if record.exc_info else None)),
    )


def _message(record: logging.LogRecord) -> str:
    message = str(_plain(record.msg))
    if isinstance(record.args, tuple) and record.args:
        message %= tuple(_name(it) if isinstance(it, BaseException) else it for it in record.args)
    elif record.args:
        message %= record.args
    if record.name.partition(".")[0] == "stoplist":
        return message
    # asyncio goes on with what tasks and callbacks hold, lifespan failures with a traceback and its texts.
    if record.name == "asyncio":
        return _values_shown.split(message, maxsplit=1)[0].rstrip()
    return message.strip().partition("\n")[0]


def _plain(value: Any) -> Any:
    """What JSON can hold. An exception is its class: the text may quote a row."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else str(value)
        case BaseException():
            return _name(value)
        case list() | tuple():
            return [_plain(it) for it in value]
        case dict():
            return {str(name): _plain(it) for name, it in value.items()}
    return str(value)


def _exceptions(error: BaseException | None) -> Iterator[_Exception]:
    """This exception and those behind it or within it, each once."""
    waiting, seen = [error], set[int]()
    while waiting and len(seen) < _EXCEPTIONS_MAX:
        it = waiting.pop(0)
        if it is None or id(it) in seen:
            continue
        seen.add(id(it))
        yield _Exception(_name(it), _code(it), _frames(it))
        waiting.append(it.__cause__ or (None if it.__suppress_context__ else it.__context__))
        waiting += it.exceptions if isinstance(it, BaseExceptionGroup) else ()


def _name(error: BaseException) -> str:
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _code(error: BaseException) -> str | None:
    """PostgreSQL's, SQLite's or the system's code: what is left to find the cause by without the text."""
    code = getattr(error, "sqlstate", None) or getattr(error, "sqlite_errorname", None)
    if isinstance(error, OSError):
        code = errno.errorcode.get(error.errno or 0)
    return code if isinstance(code, str) and _is_code(code) else None


def _frames(error: BaseException) -> list[str]:
    """The innermost frames, the last one being where it was raised."""
    frames = [
        f"{frame.f_code.co_filename}:{line} {frame.f_code.co_qualname}"
        for frame, line in traceback.walk_tb(error.__traceback__)
    ]
    return frames[-_FRAMES_MAX:]


_writer: _Writer | None = None
_layout: _Layout = _LAYOUTS["console"]
