"""Exceptions without their texts, in which drivers quote rows: the class, the code and the frames are enough."""

import errno
import re
import traceback
from collections.abc import Iterator
from typing import NamedTuple

_MAX_FRAMES = 40
_MAX_EXCEPTIONS = 8

_is_code = re.compile("[A-Z0-9_]{1,40}").fullmatch


class ExceptionSummary(NamedTuple):
    """An exception without its text: its class, the code of the database or the system, and its frames."""

    name: str
    code: str | None
    frames: list[str]


def exception_summaries(error: BaseException | None) -> Iterator[ExceptionSummary]:
    """Yield this exception and those that caused it or that it contains, each once."""
    queue, seen = [error], set[int]()
    while queue and len(seen) < _MAX_EXCEPTIONS:
        current = queue.pop(0)
        if current is None or id(current) in seen:
            continue
        seen.add(id(current))
        yield ExceptionSummary(exception_name(current), _code(current), _frames(current))
        queue.append(current.__cause__ or (None if current.__suppress_context__ else current.__context__))
        queue += current.exceptions if isinstance(current, BaseExceptionGroup) else ()


def exception_name(error: BaseException) -> str:
    """Return the class of the exception, with its module unless that is `builtins`."""
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
