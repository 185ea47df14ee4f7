"""Shows the client's log on stderr: its warnings, and its long waits."""

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from stoplist_client.cli.exit_status import print_notice
from stoplist_client.cli.messages import for_command_line

_LONG_WAIT_S = 3.0


@contextmanager
def notices_on_stderr() -> Iterator[None]:
    """Print the client's log records on stderr within this block; waits only if they last a few seconds."""
    logger = logging.getLogger("stoplist_client")
    handler, before = _NoticeHandler(), logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.setLevel(before)
        logger.removeHandler(handler)


class _NoticeHandler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        wait_s = getattr(record, "wait_s", None)
        if record.levelno < logging.WARNING and (wait_s is None or wait_s < _LONG_WAIT_S):
            return
        if sys.stderr is not None and sys.stderr.isatty():
            sys.stderr.write("\r\x1b[K")  # erases a progress bar
        text = for_command_line(record.getMessage())
        print_notice(text if text.endswith(".") else f"{text}.")
