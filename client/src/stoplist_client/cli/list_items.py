"""The opt-outs of a CSV file, read as the service itself reads lists. Source: docs/interface.md section D12."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import BinaryIO

import click
import msgspec
from stoplist_addresses.lists import BadRow, ListError, ListOptions, Part, open_list

from stoplist_client.cli.arguments import NOW, SubmitArguments
from stoplist_client.cli.exit_status import Failed, print_notice
from stoplist_client.cli.printing import quantity
from stoplist_client.environment import Environment
from stoplist_client.model import Item
from stoplist_client.redacted import Redacted

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_FIELDS = ("address", "occurred_at", "reason", "source")
# By the option of the reader that an error names: what to give to this command.
_REMEDIES = {
    "as_of_ms": "Use --occurred-at TIME, or --occurred-at now.",
    "columns": "Use --column FIELD=HEADER, for example --column address=Contact.",
    "time_zone": "Use --time-zone NAME, for example --time-zone Europe/Berlin.",
    "format": "Use --format NAME.",
    "opted_out_when": "Use --opted-out-when HEADER=VALUE.",
    "encoding": "Use --encoding NAME, for example --encoding windows-1252.",
}
_BAD_ROWS = {
    "missing_time": "The time is missing: add it, or use --occurred-at.",
    "unreadable_time": "The time cannot be read: write it like 2026-03-01T09:30:00Z, or use --occurred-at.",
    "unknown_status": "The status is not one that the format knows: use --opted-out-when.",
}


class FormatOptions(Redacted, msgspec.Struct, frozen=True, kw_only=True):
    """The options of `unsubscribe` that say how to read a CSV file."""

    format_name: str | None
    time_zone: str | None
    opted_out_when: tuple[str, ...]
    encoding: str | None

    def check(self, arguments: SubmitArguments) -> None:
        """Raise UsageError if there is no file to which they could apply."""
        if arguments.csv_file is None and (self.format_name or self.time_zone or self.opted_out_when or self.encoding):
            raise click.UsageError(
                "--format, --time-zone, --opted-out-when and --encoding can only be used with --csv."
            )


class ListItems:
    """Reads the items of a file, and counts the rows that are not sent as they are."""

    def __init__(self, arguments: SubmitArguments, options: FormatOptions, *, reason: str | None) -> None:
        self._arguments, self._options, self._reason = arguments, options, reason
        self.not_opted_out = self.redated = self.erased = self.earlier_versions = 0
        self.bad: list[tuple[int, str]] = []

    def __call__(self, stream: BinaryIO) -> Iterator[tuple[int, Item]]:
        """Return the items with their line numbers. Raises Failed or UsageError if the file cannot be read."""
        try:
            parts = open_list(stream, self._list_options()).parts()
        except ListError as error:
            raise _refusal(error) from None
        return self._items(parts)

    def print_notes(self) -> None:
        """Print how many rows were left out, or got another time."""
        if self.not_opted_out:
            print_notice(f"Left out: {quantity(self.not_opted_out, 'row')} of people who did not opt out.")
        if self.erased:
            print_notice(f"Left out: {quantity(self.erased, 'row')} of people who were erased.")
        if self.earlier_versions:
            print_notice(f"Left out: {quantity(self.earlier_versions, 'row')} of earlier versions of a record.")
        if self.redated:
            print_notice(f"Dated anew: {quantity(self.redated, 'row')} without a readable time, or with a future one.")

    def _items(self, parts: Iterator[Part]) -> Iterator[tuple[int, Item]]:
        while True:
            try:
                part = next(parts, None)
            except ListError as error:
                raise _refusal(error) from None
            if part is None:
                return
            self.not_opted_out += part.not_opted_out
            self.redated += part.redated
            self.erased += part.erased
            self.earlier_versions += part.earlier_versions
            self._note_bad(part.bad)
            for line, address, at_ms, reason, source in part.opt_outs:
                yield line, Item(address, _EPOCH + at_ms * _MILLISECOND, reason, source)

    def _note_bad(self, bad: list[BadRow]) -> None:
        for row in bad:
            text = _BAD_ROWS[row.error]
            if not self._arguments.lenient:
                raise Failed(f"Line {row.line}: {text} With --lenient such rows are left out.")
            self.bad.append((row.line, text))

    def _list_options(self) -> ListOptions:
        arguments = self._arguments
        now_ms = int(Environment().now_s() * 1000)
        return ListOptions(
            arguments.channel,
            now_ms,
            as_of_ms=_as_of_ms(arguments.occurred_at, now_ms),
            format=self._options.format_name,
            time_zone=self._options.time_zone,
            columns=_columns(arguments.column),
            opted_out_when=tuple(map(_condition, self._options.opted_out_when)),
            encoding=self._options.encoding,
            separator=arguments.delimiter,
            reason=self._reason,
            source=arguments.source,
        )


def _as_of_ms(stated: str | None, now_ms: int) -> int | None:
    if stated is None or stated == NOW:
        return now_ms if stated else None
    at_ms = (datetime.fromisoformat(stated.upper()) - _EPOCH) // _MILLISECOND
    if at_ms > now_ms:
        raise click.UsageError("--occurred-at is in the future.")
    return at_ms


def _columns(stated: Sequence[str]) -> dict[str, str]:
    columns = dict(map(_column, stated))
    if len(columns) < len(stated):
        raise click.UsageError("--column names two columns for one field.")
    return columns


def _column(text: str) -> tuple[str, str]:
    field, equals, header = text.partition("=")
    return (field, header) if equals and field in _FIELDS else ("address", text)


def _condition(text: str) -> tuple[str, str]:
    header, equals, value = text.partition("=")
    if not equals:
        raise click.UsageError("--opted-out-when needs HEADER=VALUE, such as status=unsubscribed.")
    return header, value


def _refusal(error: ListError) -> click.ClickException:
    text = " ".join(filter(None, (str(error), _REMEDIES.get(error.option or ""))))
    return click.UsageError(text) if error.is_usage else Failed(text)
