"""The only handler of `logging`, which every logger uses."""

import logging

from stoplist.log.event import event_of_failure, event_of_record
from stoplist.log.exception_summary import exception_name
from stoplist.log.layouts import LogLayout
from stoplist.log.writer import Writer


class Handler(logging.Handler):
    """Writes each record in the layout, and never fails the code that logs."""

    def __init__(self, writer: Writer, layout: LogLayout) -> None:
        super().__init__()
        self._writer, self._layout = writer, layout

    def emit(self, record: logging.LogRecord) -> None:
        """Write the record after all buffered lines."""
        try:
            line = self._layout.event(event_of_record(record))
        # A value that cannot be formatted must not fail its caller; logging's own error handler would print the value.
        except Exception as error:
            message = f"a line could not be formatted ({exception_name(error)})"
            line = self._layout.event(event_of_failure(record, message))
        self._writer.write(line)

    def flush(self) -> None:
        """Write all buffered lines."""
        self._writer.flush()
