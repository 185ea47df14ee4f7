"""What `unsubscribe` and `resubscribe` share: where items come from, on their way, and what became of them."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any, BinaryIO

import click
import msgspec

from stoplist_client.cli.address_lines import NOT_UTF_8, Numbered, is_utf_8, numbered_addresses, standard_input
from stoplist_client.cli.arguments import Wanted
from stoplist_client.cli.context import client_of
from stoplist_client.cli.csv_table import Table
from stoplist_client.cli.exit_status import Failed, end_not_all, tell
from stoplist_client.cli.printing import counted, print_json, print_line
from stoplist_client.cli.profile_selection import load
from stoplist_client.cli.progress import Bar, share_read
from stoplist_client.errors import StoplistClientError
from stoplist_client.model import Item, ItemError, Submitted

Numbers = Iterator[tuple[int, str | Item]]

_IDS_SHOWN = 3


def submit(wanted: Wanted, send: Callable[..., Submitted], items: Callable[[Table], Numbers]) -> None:
    """All items were sent by `send`, a method of Client, or stderr says how far it came.

    `items` makes the items of a CSV file. The command ends with 3 if not all were good.
    """
    wanted.check()
    profile = load(wanted.profile_name)
    progress = _Progress()
    with ExitStack() as stack:
        stream = _opened(wanted, stack)
        given = Numbered(_numbered(wanted, stream, items))
        word = "line" if stream else "argument"
        client = stack.enter_context(client_of(profile))
        share = (lambda: None) if stream is None else partial(share_read, stream)
        progress.bar = stack.enter_context(Bar("Submitting", share))
        try:
            submitted = send(
                client,
                wanted.channel,
                given.elements(),
                org_slug=wanted.org,
                group_id=wanted.group,
                all_groups=wanted.all_groups,
                occurred_at=wanted.occurred_at,
                source=wanted.source,
                lenient=wanted.lenient,
                on_progress=progress.note,
            )
        except BaseException as error:
            stack.close()
            _tell_how_far(wanted, progress.submitted, error, given, word)
            raise
    _tell_refused(submitted.item_errors, given, word)
    _print(submitted, given, word, as_json=wanted.as_json)
    if submitted.item_errors:
        end_not_all()


class _Progress:
    """What was stored last, for the bar and for whoever must be told when it goes wrong."""

    def __init__(self) -> None:
        self.submitted = Submitted()
        self.bar: Bar | None = None

    def note(self, submitted: Submitted) -> None:
        self.submitted = submitted
        if self.bar is not None:
            self.bar.show(f"{counted(submitted.received, 'item')} answered")


def _opened(wanted: Wanted, stack: ExitStack) -> BinaryIO | None:
    """What is read; None where the addresses are arguments."""
    if wanted.addresses:
        return None
    if wanted.csv_file is None:
        return standard_input("an address a line")
    if str(wanted.csv_file) == "-":
        return standard_input("CSV with a header row")
    return stack.enter_context(open(wanted.csv_file, "rb"))


def _numbered(wanted: Wanted, stream: BinaryIO | None, items: Callable[[Table], Numbers]) -> Numbers:
    if stream is None:
        return iter(list(enumerate(wanted.addresses, 1)))
    if wanted.csv_file is None:
        return numbered_addresses(stream)
    return items(Table(stream, delimiter=wanted.delimiter))


def items_of_table(table: Table, wanted: Wanted, *, needs_time: bool, has_reason: bool) -> Numbers:
    """The items of a CSV file with the numbers of their lines. Columns that are not there are left open.

    Failed at a row without an address, or without the time that it needs.
    """
    address_at = table.address_column(wanted.channel, wanted.column)
    occurred_at_at, source_at = table.column("occurred_at"), table.column("source")
    reason_at = table.column("reason") if has_reason else None
    if needs_time and occurred_at_at is None:
        raise Failed("The file has no column occurred_at: add it, or give --occurred-at for all rows.")
    is_now = occurred_at_at is None and wanted.occurred_at is None

    def cell(cells: list[str], at: int | None) -> str | None:
        return None if at is None or at >= len(cells) else cells[at].strip() or None

    def rows() -> Numbers:
        is_told = False
        for line, cells, _raw in table:
            if is_now and not is_told:
                tell("No occurred_at: all count as of now.")
                is_told = True
            occurred_at = cell(cells, occurred_at_at)
            if needs_time and occurred_at is None:
                raise Failed(f"Line {line} has no occurred_at: to resubscribe somebody takes the moment of a consent.")
            address = cell(cells, address_at) or ""
            yield line, Item(address, occurred_at, cell(cells, reason_at), cell(cells, source_at))

    return rows()


def _tell_how_far(wanted: Wanted, submitted: Submitted, error: BaseException, given: Numbered[Any], word: str) -> None:
    """Before the error itself: which items are at fault, and what was stored before."""
    known = error.submitted if isinstance(error, StoplistClientError) else None
    submitted = known or submitted
    refused = getattr(error, "item_errors", ())
    _tell_refused((*submitted.item_errors, *refused), given, word)
    if submitted.received:
        bad = len(submitted.item_errors)
        which = f"{submitted.received - bad:,} of the first" if bad else "the first"
        tell(
            f"Stored before this: {which} {counted(submitted.received, 'item')} "
            f"({submitted.created + submitted.updated:,} changed something)."
        )
    if wanted.as_json:
        both = msgspec.structs.replace(submitted, item_errors=(*submitted.item_errors, *refused))
        print_json(_shown(both, given, word) | {"is_complete": False})


def _tell_refused(errors: tuple[ItemError, ...], given: Numbered[Any], word: str) -> None:
    for error in errors:
        click.echo(f"{word} {given.line_of(error.item_index)}: {_problem(error)}", err=True)


def _problem(error: ItemError) -> str:
    """What is wrong with an item. The service does not know what bytes there were."""
    texts = [error.item] if isinstance(error.item, str) else [error.item.address, error.item.source or ""]
    return error.item_error if all(map(is_utf_8, texts)) else NOT_UTF_8


def _print(submitted: Submitted, given: Numbered[Any], word: str, *, as_json: bool) -> None:
    if as_json:
        print_json(_shown(submitted, given, word) | {"is_complete": True})
        return
    print_line(
        f"{counted(submitted.received, 'item')}: {submitted.created:,} created, {submitted.updated:,} updated, "
        f"{submitted.unchanged:,} unchanged, {submitted.outranked:,} outranked, "
        f"{len(submitted.item_errors):,} refused."
    )
    ids = submitted.submission_ids
    for submission_id in ids[:_IDS_SHOWN]:
        print_line(f"Stored as {submission_id}")
    if len(ids) > _IDS_SHOWN:
        print_line(f"and {len(ids) - _IDS_SHOWN:,} more, which --json lists.")


def _shown(submitted: Submitted, given: Numbered[Any], word: str) -> dict[str, Any]:
    fields = msgspec.structs.asdict(submitted)
    errors = [{word: given.line_of(each.item_index), "item_error": _problem(each)} for each in submitted.item_errors]
    return fields | {"item_errors": errors}
