"""Submits the opt-outs of a CSV file, such as the one that a shop system writes every night.

usage: nightly_import.py OPT-OUTS.csv

The file has a header with `address` and `occurred_at` (when the person acted, with its offset from UTC, such as
2026-03-01T09:30:00+01:00), and perhaps `reason` and `source`. The key comes from the variables below.

Exit status: 0 all is stored; 3 all is stored but the rows on stderr, which somebody should look at; 1 it failed: run it
again, and it goes on where it stopped.
"""

import csv
import json
import os
import sys
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import TextIO

from stoplist_client import Client, Item, StoplistClientError, Submitted


def main(path: Path) -> int:
    try:
        progress = Progress(path)
        with path.open(newline="", encoding="utf-8-sig") as file, a_client() as client:
            # A file of any size: it is read while it is sent, up to 10 000 rows a request.
            items = islice(items_of(rows_of(path, file)), progress.answered_before, None)
            sums = client.unsubscribe("email", items, lenient=True, on_progress=progress.note)
    except NotCsv as error:
        print(f"nightly import: {error}", file=sys.stderr)
        return 1
    except (StoplistClientError, OSError, UnicodeError, KeyError) as error:
        print(f"nightly import: {type(error).__name__}: {error}", file=sys.stderr)
        return 1
    progress.forget()
    print(
        f"{sums.received} rows: {sums.created} new, {sums.updated} changed, {sums.unchanged} known, "
        f"{sums.outranked} outranked by a later act, {len(sums.item_errors)} not acceptable"
    )
    return 3 if progress.refused else 0


def a_client() -> Client:
    return Client(
        os.environ["STOPLISTCLIENT_BASE_URL"],
        client_id=os.environ["STOPLISTCLIENT_CLIENT_ID"],
        client_secret=os.environ["STOPLISTCLIENT_CLIENT_SECRET"],
        ca_file=os.environ.get("STOPLISTCLIENT_CA_FILE"),  # for a server that made its certificate itself
    )


class NotCsv(Exception):
    """The file cannot be read any further."""


def rows_of(path: Path, file: TextIO) -> Iterator[dict[str, str]]:
    # strict, since a quote that is never closed would otherwise swallow the rows after it.
    number = 0
    try:
        for number, row in enumerate(csv.DictReader(file, strict=True), 1):  # noqa: B007 - for the error
            yield row
    except csv.Error as error:
        raise NotCsv(f"{path} is not CSV from row {number + 1} on ({error}): mend it, and run this again") from None


def items_of(rows: Iterable[dict[str, str]]) -> Iterator[Item]:
    for row in rows:
        yield Item(
            row["address"] or "",
            occurred_at=row["occurred_at"] or None,
            reason=row.get("reason") or None,
            source=row.get("source") or "nightly import",
        )


class Progress:
    """How many rows were answered, in a file beside the CSV, for exactly that content of the CSV, service and key.

    It saves time, and nothing hangs on it: rows that are sent again change nothing, since each has its `occurred_at`.
    """

    def __init__(self, path: Path) -> None:
        state, variables = path.stat(), ("STOPLISTCLIENT_BASE_URL", "STOPLISTCLIENT_CLIENT_ID")
        self._file = path.with_name(f"{path.name}.progress")
        self._of = [state.st_size, state.st_mtime_ns, *(os.environ[name] for name in variables)]
        self.answered_before, self._refused_before = self._noted()
        self.refused = self._refused_before

    def _noted(self) -> tuple[int, int]:
        try:
            of, answered, refused = json.loads(self._file.read_bytes())
        except (FileNotFoundError, ValueError, TypeError):  # none, or one that a crash left unfinished
            return 0, 0
        return (answered, refused) if of == self._of else (0, 0)

    def note(self, sums: Submitted) -> None:
        """Called after each batch that was answered, with the sums so far."""
        for error in sums.item_errors[self.refused - self._refused_before :]:
            row = self.answered_before + error.item_index + 1
            print(f"row {row}: {error.item_error}", file=sys.stderr)
        self.refused = self._refused_before + len(sums.item_errors)
        unfinished = self._file.with_name(f"{self._file.name}.unfinished")
        unfinished.write_text(json.dumps([self._of, self.answered_before + sums.received, self.refused]))
        unfinished.replace(self._file)  # a crash leaves the old notes or the new ones

    def forget(self) -> None:
        self._file.unlink(missing_ok=True)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.exit(main(Path(sys.argv[1])))
