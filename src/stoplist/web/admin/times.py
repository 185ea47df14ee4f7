"""Parses the days and times of forms, which are UTC."""

import re

from stoplist.errors import Refused
from stoplist.rfc3339 import format_ms, parse_ms

_MOMENT = re.compile(r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d)(:\d\d(?:\.\d{1,3})?)?", re.ASCII)


def read_day_ms(text: str, *, field: str) -> int | None:
    """Return the first millisecond of the day, or None if the text is empty. Raises Refused."""
    if not text:
        return None
    at_ms = parse_ms(f"{text}T00:00:00Z")
    if at_ms is None:
        raise Refused("Enter a date such as 2026-03-01.", field=field)
    return at_ms


def read_moment(text: str, *, field: str) -> str | None:
    """Return the time as RFC 3339, or None if the text is empty. Raises Refused."""
    if not text:
        return None
    parts = _MOMENT.fullmatch(text)
    at_ms = None if parts is None else parse_ms(f"{parts[1]}T{parts[2]}{parts[3] or ':00'}Z")
    if at_ms is None:
        raise Refused("Enter a date and time such as 2026-03-01 09:30.", field=field)
    return format_ms(at_ms)
