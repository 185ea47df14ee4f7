"""An event of the log: what is left of a record of `logging` once it is redacted."""

import logging
from typing import Any, NamedTuple

from stoplist.log.exception_summary import ExceptionSummary, exception_summaries
from stoplist.log.redaction import safe_message, safe_value
from stoplist.rfc3339 import format_ms


class Event(NamedTuple):
    """The contents of one line, or of several if there are exceptions and the layout is for people."""

    time: str
    level: str
    logger: str
    message: str
    fields: dict[str, Any]
    exceptions: list[ExceptionSummary]


def event_of_record(record: logging.LogRecord) -> Event:
    """Return the record as an event. Raises whatever a value raises that cannot be formatted."""
    fields = getattr(record, "fields", None)
    return Event(
        time=_time(record),
        level=record.levelname.lower(),
        logger=record.name,
        message=safe_message(record),
        fields={str(name): safe_value(value) for name, value in (fields or {}).items()},
        exceptions=list(exception_summaries(record.exc_info[1] if record.exc_info else None)),
    )


def event_of_failure(record: logging.LogRecord, message: str) -> Event:
    """Return an event that replaces a record that could not be formatted."""
    return Event(_time(record), "error", record.name, message, {}, [])


def _time(record: logging.LogRecord) -> str:
    return format_ms(int(record.created * 1000))
