"""The two forms of a line, for machines (`json`) and for people (`console`). No value can start a new line.

Source: docs/interface.md section D1 (LOG_FORMAT).
"""

import json
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

from stoplist.log.event import Event
from stoplist.log.exception_summary import ExceptionSummary
from stoplist.log.redaction import safe_client_id, safe_path

_MAX_CACHED_CALLS = 4096

_is_plain_value = re.compile(r"[\w./:*+,-]+", re.ASCII).fullmatch

# ASCII output has no line separators of any kind, and accepts lone surrogates, which msgspec refuses.
_to_json = json.JSONEncoder().encode


class LogLayout(NamedTuple):
    """Formats the two kinds of lines, each with its newline.

    `call` formats the part of a request line that repeats often (client id, person, method, path); its results are
    cached. `request` takes the time, that part, the request id, the status, the duration in milliseconds and the source
    address.
    """

    event: Callable[[Event], str]
    call: Callable[[str | None, str | None, str, str], str]
    request: Callable[[str, str, str, int, str, str], str]


def _event_as_json(event: Event) -> str:
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
def _call_as_json(client_id: str | None, person: str | None, method: str, path: str) -> str:
    signed_in = "" if person is None else f'"person":{_to_json(person)},'
    return (
        f'"client_id":{_to_json(safe_client_id(client_id))},{signed_in}"method":"{method}","path":"{safe_path(path)}"'
    )


def _request_as_json(at: str, call: str, request_id: str, status: int, duration_ms: str, source_ip: str) -> str:
    return (
        f'{{"time":"{at}","level":"info","logger":"stoplist.request","message":"request",{call},'
        f'"status":{status},"duration_ms":{duration_ms},"source_ip":{_to_json(source_ip)},"request_id":{_to_json(request_id)}}}\n'
    )


def _event_for_console(event: Event) -> str:
    fields = "".join(f" {_escape(name)}={_value(value)}" for name, value in event.fields.items())
    head = f"{event.time} {event.level:<8} {event.logger}: {_escape(event.message)}{fields}\n"
    return head + "".join(map(_exception_for_console, event.exceptions))


def _exception_for_console(exception: ExceptionSummary) -> str:
    lines = [f"{exception.name} {exception.code or ''}".rstrip(), *(f"  {frame}" for frame in exception.frames)]
    return "".join(f"    {_escape(line)}\n" for line in lines)


@lru_cache(_MAX_CACHED_CALLS)
def _call_for_console(client_id: str | None, person: str | None, method: str, path: str) -> str:
    who = safe_client_id(client_id) or (_value(person) if person else "-")
    return f"{method} {safe_path(path)} {who}"


def _request_for_console(at: str, call: str, request_id: str, status: int, duration_ms: str, source_ip: str) -> str:
    return f"{at} info     {call} {status} {duration_ms} ms {_value(source_ip)} {_value(request_id)}\n"


def _value(value: Any) -> str:
    if not isinstance(value, str):
        return _to_json(value)
    return value if _is_plain_value(value) else _escape(json.dumps(value, ensure_ascii=False))


def _escape(text: str) -> str:
    """Return the text with an escape for every character that a terminal would not print on this line."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


LAYOUTS = {
    "console": LogLayout(_event_for_console, _call_for_console, _request_for_console),
    "json": LogLayout(_event_as_json, _call_as_json, _request_as_json),
}
