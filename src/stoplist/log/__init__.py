"""The server's log: ordinary events through `logging`, and one line per request through a faster path.

Nothing that people or partners entrust to the server is logged: no text of an exception (drivers put rows into it), no
path segment that is not a plain word, no client id of the wrong form. No value can start a new line. Request lines are
buffered and written together; an event first writes the buffered lines.
Source: docs/interface.md section 2.1 (a client id may be logged) and section D1 (LOG_FORMAT); docs/decisions/0016.
"""

import logging
import sys
from typing import BinaryIO

from stoplist.ids import CLIENT_ID
from stoplist.log.handler import Handler
from stoplist.log.layouts import LAYOUTS, LogLayout
from stoplist.log.redaction import LINKS_PATH, MAX_PATH_CHARS, safe_path
from stoplist.log.writer import Writer
from stoplist.rfc3339 import format_ms

__all__ = ["configure", "flush", "log_request", "safe_path"]

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
_ANY_LINK = f"{LINKS_PATH}*"
_CLIENT_ID_CHARS = len(CLIENT_ID) + 22

_writer: Writer | None = None
_layout: LogLayout = LAYOUTS["console"]


def configure(log_format: str, stream: BinaryIO | None = None) -> None:
    """Log everything to `stream` (standard error by default) as `console` or `json`, from now on.

    Takes over the root logger and those of uvicorn and asyncio, and drops their former configuration.
    Log with `logging.getLogger(__name__).info("text", extra={"fields": {"name": value}})`.
    """
    global _writer, _layout
    flush()
    _writer, _layout = Writer(stream or sys.stderr.buffer), LAYOUTS[log_format]
    logging.root.handlers[:] = [Handler(_writer, _layout)]
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
    source_ip: str,
    person: str | None = None,
) -> None:
    """Log one request, written within 50 ms or at the next event or `flush`, whichever comes first.

    `path` is the path as received, without query; `person` is the e-mail address of whoever is signed in to the pages.
    Does nothing before `configure`.
    """
    if _writer is None:
        return
    # Bounds the size of the cache, and of what a client can make the server write. A link is requested once or twice:
    # cached, it would only push out what is used again, and stay in memory.
    if path.startswith(LINKS_PATH):
        path = _ANY_LINK
    elif len(path) > MAX_PATH_CHARS:
        path = "/*"
    if client_id is not None and len(client_id) != _CLIENT_ID_CHARS:
        client_id = "*"
    if method not in _METHODS:
        method = "*"
    call = _layout.call(client_id, person, method, path)
    _writer.add(_layout.request(format_ms(at_ms), call, request_id, status, f"{duration_ms:.3f}", source_ip))


def flush() -> None:
    """Hand every buffered line to the operating system, or drop the lines if nobody reads them any more."""
    if _writer is not None:
        _writer.flush()
