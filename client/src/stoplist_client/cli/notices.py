"""What the client notes while it works, for whoever waits before a command: its warnings, and its long waits."""

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from stoplist_client.cli.exit_status import tell
from stoplist_client.cli.messages import in_words

_LONG_S = 3.0


@contextmanager
def notes_told() -> Iterator[None]:
    """Within, notes of the client are lines on stderr; waits only where they are longer than a few seconds."""
    logger = logging.getLogger("stoplist_client")
    handler, before = _Teller(), logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.setLevel(before)
        logger.removeHandler(handler)


class _Teller(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        wait_s = getattr(record, "wait_s", None)
        if record.levelno < logging.WARNING and (wait_s is None or wait_s < _LONG_S):
            return
        if sys.stderr is not None and sys.stderr.isatty():
            sys.stderr.write("\r\x1b[K")  # there may be a bar
        text = in_words(record.getMessage())
        tell(text if text.endswith(".") else f"{text}.")
