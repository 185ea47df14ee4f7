"""Redaction of values that a client or a library chose.

Source: docs/interface.md section 2.1 (a client id may be logged); SECURITY.md.
"""

import logging
import math
import re
from typing import Any

from stoplist.ids import CLIENT_ID
from stoplist.log.exception_summary import exception_name

MAX_PATH_CHARS = 256
LINKS_PATH = "/u/"

_is_client_id = re.compile(CLIENT_ID + "[0-9A-Za-z]+").fullmatch
_is_plain_segment = re.compile("[a-z.-]{0,32}|v1").fullmatch
_quoted_values = re.compile(r"[<\n]|\((?!\)).*", re.DOTALL)


def safe_path(path: str) -> str:
    """Return the path with `*` for every segment that a client may have made up, such as an address or a token."""
    if path.startswith(LINKS_PATH):
        return f"{LINKS_PATH}*"  # whatever follows, even a plain word
    if len(path) > MAX_PATH_CHARS:
        return "/*"
    return "/".join(segment if _is_plain_segment(segment) else "*" for segment in path.split("/"))


def safe_client_id(client_id: str | None) -> str | None:
    """Return the client id, or `*` if its form is wrong: some clients send a secret or an address in its place."""
    return client_id if client_id is None or _is_client_id(client_id) else "*"


def safe_message(record: logging.LogRecord) -> str:
    """Return the record's message without the text of an exception, or the values that libraries add to theirs."""
    message = str(safe_value(record.msg))
    if isinstance(record.args, tuple) and record.args:
        message %= tuple(exception_name(arg) if isinstance(arg, BaseException) else arg for arg in record.args)
    elif record.args:
        message %= record.args
    if record.name.partition(".")[0] == "stoplist":
        return message
    # asyncio appends the values of tasks and callbacks, lifespan failures a traceback with texts.
    if record.name == "asyncio":
        return _quoted_values.split(message, maxsplit=1)[0].rstrip()
    return message.strip().partition("\n")[0]


def safe_value(value: Any) -> Any:
    """Return the value as JSON can hold it. An exception becomes its class: its text may quote a row."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else str(value)
        case BaseException():
            return exception_name(value)
        case list() | tuple():
            return [safe_value(item) for item in value]
        case dict():
            return {str(name): safe_value(item) for name, item in value.items()}
    return str(value)
