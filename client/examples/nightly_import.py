"""Submits the opt-outs of a CSV file, such as the one that a shop system writes every night.

usage: nightly_import.py OPT-OUTS.csv

The file has a header with `address` and `occurred_at` (when the person acted, with its offset from UTC, such as
2026-03-01T09:30:00+01:00), and perhaps `reason` and `source`. The key comes from the variables below.

Exit status: 0 all is stored; 3 all is stored but the rows on stderr, which somebody should look at; 1 it failed: run it
again, and it goes on where it stopped.
"""

import csv
import os
import sys
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

from stoplist_client import Client, Item, StoplistClientError, Submitted


def main(path: Path) -> int:
    try:
        progress = Progress(path)
        with path.open(newline="", encoding="utf-8-sig") as file, a_client() as client:
            # A file of any size: it is read while it is sent, up to 10 000 rows a request.
            items = islice(items_of(csv.DictReader(file)), progress.answered_before, None)
            sums = client.unsubscribe("email", items, lenient=True, on_progress=progress.note)
    except (StoplistClientError, OSError, UnicodeError, csv.Error, KeyError) as error:
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


def items_of(rows: Iterable[dict[str, str]]) -> Iterator[Item]:
    for row in rows:
        yield Item(
            row["address"] or "",
            occurred_at=row["occurred_at"] or None,
            reason=row.get("reason") or None,
            source=row.get("source") or "nightly import",
        )


class Progress:
    """How many rows were answered, in a file beside the CSV, for exactly that content of the CSV.

    It saves time, and nothing hangs on it: rows that are sent again change nothing, since each has its `occurred_at`.
    """

    def __init__(self, path: Path) -> None:
        state = path.stat()
        self._file, self._content = path.with_name(f"{path.name}.progress"), f"{state.st_size} {state.st_mtime_ns}"
        self.answered_before = self._refused_before = 0
        if self._file.exists():
            content, answered, refused = self._file.read_text().rsplit(" ", 2)
            if content == self._content:
                self.answered_before, self._refused_before = int(answered), int(refused)
        self.refused = self._refused_before

    def note(self, sums: Submitted) -> None:
        """Called after each batch that was answered, with the sums so far."""
        for error in sums.item_errors[self.refused - self._refused_before :]:
            row = self.answered_before + error.item_index + 1
            print(f"row {row}: {error.item_error}", file=sys.stderr)
        self.refused = self._refused_before + len(sums.item_errors)
        self._file.write_text(f"{self._content} {self.answered_before + sums.received} {self.refused}")

    def forget(self) -> None:
        self._file.unlink(missing_ok=True)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.exit(main(Path(sys.argv[1])))
