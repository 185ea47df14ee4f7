"""`stoplist-client scrub`: copy a CSV file without the people who opted out."""

from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import click

from stoplist_client.cli.atomic_file import AtomicFile, remove_files, require_distinct
from stoplist_client.cli.csv_table import Row, Table, delimiter_option
from stoplist_client.cli.exit_status import exit_not_all_accepted, print_notice
from stoplist_client.cli.mirror_query import MirrorQuery, open_mirror_query, query_options
from stoplist_client.cli.options import FILE_PATH, Command, channel_argument
from stoplist_client.cli.printing import print_json, quantity
from stoplist_client.cli.progress import ProgressBar, fraction_read
from stoplist_client.mirror import Mirror
from stoplist_client.model import Channel

_ROWS_PER_SLICE = 2_000


@click.command("scrub", cls=Command)
@channel_argument
@click.argument("source", type=FILE_PATH, metavar="IN.CSV")
@click.argument("target", type=FILE_PATH, metavar="OUT.CSV")
@click.option("--column", metavar="NAME", help="The address column: its name, or its number from 1.")
@delimiter_option
@click.option(
    "--barred", "barred_file", type=FILE_PATH, metavar="FILE", help="Write the rows that are left out to this file."
)
@click.option("--force", is_flag=True, help="Replace existing files; they are removed first.")
@query_options
def command(
    channel: Channel,
    source: Path,
    target: Path,
    column: str | None,
    delimiter: str | None,
    barred_file: Path | None,
    force: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Copy a CSV file without the rows of people who must not receive the message.

    The header row and the allowed rows are copied byte for byte. A row without a valid address is left out too and
    counted separately, and the exit status is then 3. OUT.CSV appears when it is complete, and replaces an existing
    file only with --force. With --force, existing files are removed first: if the command fails, no old list is left
    that could be used by mistake. For --group, --no-group, --any-group and --max-age see `stoplist-client check`.

    \b
    Example:
      stoplist-client scrub email list.csv clean.csv --column "E-mail" --group grp_… --barred left-out.csv
    """
    targets = [target] if barred_file is None else [target, barred_file]
    require_distinct([source, *targets])
    if force:
        remove_files(targets)
    with open_mirror_query(channel, **options) as (mirror, query), ExitStack() as stack:
        stream = stack.enter_context(open(source, "rb"))
        table = Table(stream, delimiter=delimiter)
        address_at = table.address_column(channel, column)
        outputs = [stack.enter_context(AtomicFile(path, like=stream, replaces=force)) for path in targets]
        bar = stack.enter_context(ProgressBar("Scrubbing", partial(fraction_read, stream)))
        writer = _ScrubWriter(outputs[0].stream, outputs[-1].stream if barred_file else None, table.header)
        for rows in _slices(iter(table)):
            writer.write(rows, _verdicts(mirror, query, rows, address_at))
            bar.show(f"{quantity(writer.rows, 'row')}")
        # OUT.CSV is finished last: if it exists, the file of --barred is complete too.
        for output in reversed(outputs):
            output.finish()
    writer.print_summary(as_json=as_json)
    if writer.invalid:
        exit_not_all_accepted()


class _ScrubWriter:
    """Writes each row to the right file, and counts rows by verdict."""

    def __init__(self, out: BinaryIO, others: BinaryIO | None, header: bytes) -> None:
        self._out, self._others = out, others
        self.allowed = self.barred = self.invalid = 0
        for stream in (out, others):
            if stream is not None:
                stream.write(header)

    @property
    def rows(self) -> int:
        return self.allowed + self.barred + self.invalid

    def write(self, rows: list[Row], verdicts: Iterator[str]) -> None:
        allowed: list[bytes] = []
        others: list[bytes] = []
        for (_line, _cells, raw), verdict in zip(rows, verdicts, strict=True):
            if verdict == "allowed":
                allowed.append(raw)
                continue
            others.append(raw)
            if verdict == "barred":
                self.barred += 1
            else:
                self.invalid += 1
        self.allowed += len(allowed)
        self._out.write(b"".join(allowed))
        if self._others is not None:
            self._others.write(b"".join(others))

    def print_summary(self, *, as_json: bool) -> None:
        counts = {"rows": self.rows, "allowed": self.allowed, "barred": self.barred, "invalid": self.invalid}
        if as_json:
            print_json(counts)
            return
        print_notice(
            f"{quantity(self.rows, 'row')}: {self.allowed:,} allowed, {self.barred:,} barred, "
            f"{self.invalid:,} without a valid address."
        )


def _slices(rows: Iterator[Row]) -> Iterator[list[Row]]:
    while rows_of_slice := list(islice(rows, _ROWS_PER_SLICE)):
        yield rows_of_slice


def _verdicts(mirror: Mirror, query: MirrorQuery, rows: list[Row], address_at: int) -> Iterator[str]:
    addresses = [cells[address_at] if address_at < len(cells) else "" for _line, cells, _raw in rows]
    return (checked.verdict for checked in query.check(mirror, addresses))
