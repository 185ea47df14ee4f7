"""`stoplist-client scrub`: a CSV file without the people who opted out."""

from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import click

from stoplist_client.cli.atomic_file import AtomicFile, check_apart, clear
from stoplist_client.cli.csv_table import Row, Table, delimiter_option
from stoplist_client.cli.exit_status import end_not_all, tell
from stoplist_client.cli.mirror_query import Question, asked, asking_options
from stoplist_client.cli.options import A_FILE, Command, channel_argument
from stoplist_client.cli.printing import counted, print_json
from stoplist_client.cli.progress import Bar, share_read
from stoplist_client.mirror import Mirror
from stoplist_client.model import Channel

_AT_ONCE = 2_000


@click.command("scrub", cls=Command)
@channel_argument
@click.argument("source", type=A_FILE, metavar="IN.CSV")
@click.argument("target", type=A_FILE, metavar="OUT.CSV")
@click.option("--column", metavar="NAME", help="The column with the addresses: its name, or number from 1.")
@delimiter_option
@click.option("--barred", "barred_file", type=A_FILE, metavar="FILE", help="Write the rows that are left out to this.")
@click.option("--force", is_flag=True, help="Replace files that are there; they are removed first.")
@asking_options
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
    """Copy a CSV file without the rows of people whom a message may not go to.

    The header row and the other rows are copied byte for byte. A row without an acceptable address is left out as well,
    counted apart, and makes the command end with 3. OUT.CSV appears when it is complete, and never in the place of
    another file without --force. With it the files that are there are removed first: if the command fails, no old list
    is left that may be used by mistake. For --group, --no-group, --any-group and --max-age see `stoplist-client check`.

    \b
    Example:
      stoplist-client scrub email list.csv clean.csv --column "E-mail" --group grp_… --barred left-out.csv
    """
    targets = [target] if barred_file is None else [target, barred_file]
    check_apart([source, *targets])
    if force:
        clear(targets)
    with asked(channel, **options) as (mirror, question), ExitStack() as stack:
        stream = stack.enter_context(open(source, "rb"))
        table = Table(stream, delimiter=delimiter)
        address_at = table.address_column(channel, column)
        written = [stack.enter_context(AtomicFile(path, like=stream, replaces=force)) for path in targets]
        bar = stack.enter_context(Bar("Scrubbing", partial(share_read, stream)))
        scrubbed = _Scrubbed(written[0].stream, written[-1].stream if barred_file else None, table.header)
        for rows in _slices(iter(table)):
            scrubbed.take(rows, _verdicts(mirror, question, rows, address_at))
            bar.show(f"{counted(scrubbed.rows, 'row')}")
        # The one that was asked for comes last: where it is, the other is whole too.
        for unfinished in reversed(written):
            unfinished.finish()
    scrubbed.tell(as_json=as_json)
    if scrubbed.invalid:
        end_not_all()


class _Scrubbed:
    """Writes rows where they belong, and counts them."""

    def __init__(self, out: BinaryIO, others: BinaryIO | None, header: bytes) -> None:
        self._out, self._others = out, others
        self.allowed = self.barred = self.invalid = 0
        for stream in (out, others):
            if stream is not None:
                stream.write(header)

    @property
    def rows(self) -> int:
        return self.allowed + self.barred + self.invalid

    def take(self, rows: list[Row], verdicts: Iterator[str]) -> None:
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

    def tell(self, *, as_json: bool) -> None:
        counts = {"rows": self.rows, "allowed": self.allowed, "barred": self.barred, "invalid": self.invalid}
        if as_json:
            print_json(counts)
            return
        tell(
            f"{counted(self.rows, 'row')}: {self.allowed:,} allowed, {self.barred:,} barred, "
            f"{self.invalid:,} without an acceptable address."
        )


def _slices(rows: Iterator[Row]) -> Iterator[list[Row]]:
    while some := list(islice(rows, _AT_ONCE)):
        yield some


def _verdicts(mirror: Mirror, question: Question, rows: list[Row], address_at: int) -> Iterator[str]:
    addresses = [cells[address_at] if address_at < len(cells) else "" for _line, cells, _raw in rows]
    return (one.verdict for one in question.of(mirror, addresses))
