"""Submission for `unsubscribe` and `resubscribe`: reads the items, sends them, and reports the result."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any, BinaryIO

import click
import msgspec

from stoplist_client.cli.address_lines import NOT_UTF_8, LineNumbering, is_utf_8, numbered_addresses, standard_input
from stoplist_client.cli.arguments import NOW, SubmitArguments
from stoplist_client.cli.context import open_client
from stoplist_client.cli.csv_table import Table, is_usual_address_name
from stoplist_client.cli.escapes import escaped
from stoplist_client.cli.exit_status import Failed, exit_not_all_accepted, print_notice
from stoplist_client.cli.list_items import ListItems
from stoplist_client.cli.printing import print_json, print_line, quantity
from stoplist_client.cli.profile_selection import load_profile
from stoplist_client.cli.progress import ProgressBar, fraction_read
from stoplist_client.errors import StoplistClientError
from stoplist_client.model import Item, ItemError, Submitted

NumberedItems = Iterator[tuple[int, str | Item]]

_IDS_SHOWN = 3


def submit(
    arguments: SubmitArguments,
    send: Callable[..., Submitted],
    items: Callable[[BinaryIO], NumberedItems],
    left_out: ListItems | None = None,
) -> None:
    """Send all items with `send`, a method of Client, and print the result. On an error, report what was stored before.

    `items` makes the items of a CSV file; `left_out` knows the rows that are none. Exits with status 3 if some items
    were refused.
    """
    arguments.check()
    profile = load_profile(arguments.profile_name)
    progress = _Progress()
    with ExitStack() as stack:
        stream = _input_stream(arguments, stack)
        lines = LineNumbering(_numbered_items(arguments, stream, items))
        unit = "line" if stream else "argument"
        client = stack.enter_context(open_client(profile))
        fraction = (lambda: None) if stream is None else partial(fraction_read, stream)
        progress.bar = stack.enter_context(ProgressBar("Submitting", fraction))
        try:
            submitted = send(
                client,
                arguments.channel,
                lines.elements(),
                org_slug=arguments.org,
                group_id=arguments.group,
                all_groups=arguments.all_groups,
                occurred_at=None if arguments.occurred_at == NOW else arguments.occurred_at,
                source=arguments.source,
                lenient=arguments.lenient,
                on_progress=progress.note,
            )
        except BaseException as error:
            stack.close()
            _report_stored_before(arguments, progress.submitted, error, lines, unit)
            raise
    bad = left_out.bad if left_out else []
    for line, text in bad:
        click.echo(f"line {line}: {escaped(text)}", err=True)
    _print_refused(submitted.item_errors, lines, unit)
    if left_out:
        left_out.print_notes()
    _print_summary(submitted, lines, unit, bad, as_json=arguments.as_json)
    if submitted.item_errors or bad:
        exit_not_all_accepted()


class _Progress:
    """The latest result, for the progress bar and for the report after an error."""

    def __init__(self) -> None:
        self.submitted = Submitted()
        self.bar: ProgressBar | None = None

    def note(self, submitted: Submitted) -> None:
        self.submitted = submitted
        if self.bar is not None:
            self.bar.show(f"{quantity(submitted.received, 'item')} processed")


def _input_stream(arguments: SubmitArguments, stack: ExitStack) -> BinaryIO | None:
    """Return the stream to read, or None if the addresses are arguments."""
    if arguments.addresses:
        return None
    if arguments.csv_file is None:
        return standard_input("one address per line")
    if str(arguments.csv_file) == "-":
        return standard_input("CSV with a header row")
    return stack.enter_context(open(arguments.csv_file, "rb"))


def _numbered_items(
    arguments: SubmitArguments, stream: BinaryIO | None, items: Callable[[BinaryIO], NumberedItems]
) -> NumberedItems:
    if stream is None:
        return iter(list(enumerate(arguments.addresses, 1)))
    if arguments.csv_file is None:
        return _addresses(stream, arguments.channel)
    return items(stream)


def _addresses(stream: BinaryIO, channel: str) -> NumberedItems:
    """Return the lines of stdin. Raises UsageError if the first one is of a CSV file."""
    addresses = numbered_addresses(stream)
    first = next(addresses, None)
    if first is None:
        return
    if _looks_like_csv(first[1], channel):
        raise click.UsageError(
            "The input looks like CSV: add --csv - to read it as such. Otherwise write one address a line."
        )
    yield first
    yield from addresses


def _looks_like_csv(line: str, channel: str) -> bool:
    # A bar may be part of an e-mail address, but of no header.
    separators = ",;\t" if "@" in line else ",;\t|"
    return any(separator in line for separator in separators) or is_usual_address_name(line, channel)


def items_of_table(stream: BinaryIO, arguments: SubmitArguments, *, needs_time: bool) -> NumberedItems:
    """Return the consents of a CSV file with their line numbers. Missing columns are None.

    Raises Failed at a row without the time that it needs.
    """
    table = Table(stream, delimiter=arguments.delimiter)
    address_at = table.address_column(arguments.channel, next(iter(arguments.column), None))
    occurred_at_at, source_at = table.column("occurred_at"), table.column("source")
    if needs_time and occurred_at_at is None:
        raise Failed("The file has no column occurred_at: add it, or use --occurred-at for all rows.")

    def cell(cells: list[str], at: int | None) -> str | None:
        return None if at is None or at >= len(cells) else cells[at].strip() or None

    def rows() -> NumberedItems:
        for line, cells, _raw in table:
            occurred_at = cell(cells, occurred_at_at)
            if needs_time and occurred_at is None:
                raise Failed(f"Line {line} has no occurred_at: every consent needs the time at which it was given.")
            address = cell(cells, address_at) or ""
            yield line, Item(address, occurred_at, None, cell(cells, source_at))

    return rows()


def _report_stored_before(
    arguments: SubmitArguments, submitted: Submitted, error: BaseException, lines: LineNumbering[Any], unit: str
) -> None:
    """Print the items at fault and what was stored before; the error itself is printed later."""
    submitted_before = error.submitted if isinstance(error, StoplistClientError) else None
    submitted = submitted_before or submitted
    refused = getattr(error, "item_errors", ())
    _print_refused((*submitted.item_errors, *refused), lines, unit)
    if submitted.received:
        invalid = len(submitted.item_errors)
        which = f"{submitted.received - invalid:,} of the first" if invalid else "the first"
        print_notice(
            f"Stored before this error: {which} {quantity(submitted.received, 'item')} "
            f"({submitted.created + submitted.updated:,} created or updated)."
        )
    if arguments.as_json:
        with_refused = msgspec.structs.replace(submitted, item_errors=(*submitted.item_errors, *refused))
        print_json(_json_object(with_refused, lines, unit) | {"is_complete": False})


def _print_refused(errors: tuple[ItemError, ...], lines: LineNumbering[Any], unit: str) -> None:
    for error in errors:
        click.echo(escaped(f"{unit} {lines.line_of(error.item_index)}: {_problem(error)}"), err=True)


def _problem(error: ItemError) -> str:
    """Return what is wrong with an item. The service cannot know that its bytes were not UTF-8."""
    texts = [error.item] if isinstance(error.item, str) else [error.item.address, error.item.source or ""]
    return error.item_error if all(map(is_utf_8, texts)) else NOT_UTF_8


def _print_summary(
    submitted: Submitted, lines: LineNumbering[Any], unit: str, bad: list[tuple[int, str]], *, as_json: bool
) -> None:
    if as_json:
        shown = _json_object(submitted, lines, unit)
        shown["item_errors"] += [{"line": line, "item_error": text} for line, text in bad]
        print_json(shown | {"is_complete": True})
        return
    print_line(
        f"{quantity(submitted.received, 'item')}: {submitted.created:,} created, {submitted.updated:,} updated, "
        f"{submitted.unchanged:,} unchanged, {submitted.outranked:,} outranked, "
        f"{len(submitted.item_errors) + len(bad):,} refused."
    )
    ids = submitted.submission_ids
    for submission_id in ids[:_IDS_SHOWN]:
        print_line(f"Stored as {submission_id}")
    if len(ids) > _IDS_SHOWN:
        print_line(f"and {len(ids) - _IDS_SHOWN:,} more; --json lists all of them.")


def _json_object(submitted: Submitted, lines: LineNumbering[Any], unit: str) -> dict[str, Any]:
    fields = msgspec.structs.asdict(submitted)
    errors = [{unit: lines.line_of(each.item_index), "item_error": _problem(each)} for each in submitted.item_errors]
    return fields | {"item_errors": errors}
