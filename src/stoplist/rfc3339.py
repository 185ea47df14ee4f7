"""Times as text: read RFC 3339 `date-time`, write UTC with milliseconds. Source: docs/interface.md section D6."""

import re
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache

from stoplist.clock import DAY_MS

_DATE_TIME = re.compile(
    r"\d{4}-\d\d-\d\d[Tt](?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d+)?(?:[Zz]|[+-](?:[01]\d|2[0-3]):[0-5]\d)", re.ASCII
)
_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_DAY = _EPOCH.toordinal()
_MILLISECOND = timedelta(milliseconds=1)
_FIRST_MS = (1 - _EPOCH_DAY) * DAY_MS
_LAST_MS = (date.max.toordinal() - _EPOCH_DAY + 1) * DAY_MS - 1

# The parts of a time in UTC in its most frequent form, `2026-03-01T09:30:00.000Z` or without a fraction: looking them
# up is two to three times as fast as formatting or parsing.
_MINUTES = tuple(f"T{hour:02d}:{minute:02d}:" for hour in range(24) for minute in range(60))
_SECONDS = tuple(f"{second:02d}" for second in range(60))
_FRACTIONS = tuple(f".{fraction:03d}Z" for fraction in range(1000))
_MINUTE_MS = {text: minute * 60_000 for minute, text in enumerate(_MINUTES)}
_SECOND_MS = {text: second * 1000 for second, text in enumerate(_SECONDS)}
_FRACTION_MS = {"Z": 0} | {text: fraction for fraction, text in enumerate(_FRACTIONS)}


def parse_ms(text: str) -> int | None:
    """Return an RFC 3339 `date-time` in milliseconds since 1970 UTC, truncated; None if it is malformed.

    An offset is required; `T` and `Z` may be in either case; no space, no second 60; years 0001 to 9999, in UTC too.
    """
    try:
        return _day_ms(text[:10]) + _MINUTE_MS[text[10:17]] + _SECOND_MS[text[17:19]] + _FRACTION_MS[text[19:]]
    except (KeyError, ValueError):
        return _parse_any_ms(text)


def format_ms(at_ms: int) -> str:
    """Return a time such as `2026-03-01T09:30:00.000Z`."""
    day, in_day_ms = divmod(at_ms, DAY_MS)
    second, fraction = divmod(in_day_ms, 1000)
    return f"{_date(day)}{_MINUTES[second // 60]}{_SECONDS[second % 60]}{_FRACTIONS[fraction]}"


@lru_cache(maxsize=4096)
def _date(day: int) -> str:
    return date.fromordinal(_EPOCH_DAY + day).isoformat()


@lru_cache(maxsize=4096)
def _day_ms(text: str) -> int:
    if _DATE.fullmatch(text) is None:
        raise ValueError
    return (date.fromisoformat(text).toordinal() - _EPOCH_DAY) * DAY_MS


def _parse_any_ms(text: str) -> int | None:
    if _DATE_TIME.fullmatch(text) is None:
        return None
    try:
        at_ms = (datetime.fromisoformat(text.upper()) - _EPOCH) // _MILLISECOND
    except ValueError:  # no such day, or the year 0000
        return None
    return at_ms if _FIRST_MS <= at_ms <= _LAST_MS else None
