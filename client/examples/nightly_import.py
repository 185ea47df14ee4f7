"""Submits the opt-outs of a CSV file, for example the nightly export of a shop system.

usage: nightly_import.py OPT-OUTS.csv

The file has a header row with `address`, `occurred_at` (when the person acted, with UTC offset, such as
2026-03-01T09:30:00+01:00), and optionally `reason` and `source`. The key comes from environment variables.

Exit status: 0 if all rows are stored; 3 if all are stored except those on stderr, which need attention; 1 if it failed.
Run it again after a failure: it continues where it stopped.
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
        with path.open(newline="", encoding="utf-8-sig") as file, create_client() as client:
            # The file may have any size: it is read while it is sent, up to 10 000 rows per request.
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
        f"{sums.outranked} outranked by a later act, {len(sums.item_errors)} not valid"
    )
    return 3 if progress.refused else 0


def create_client() -> Client:
    return Client(
        os.environ["STOPLISTCLIENT_BASE_URL"],
        client_id=os.environ["STOPLISTCLIENT_CLIENT_ID"],
        client_secret=os.environ["STOPLISTCLIENT_CLIENT_SECRET"],
        ca_file=os.environ.get("STOPLISTCLIENT_CA_FILE"),  # for a server with a self-made certificate
    )


class NotCsv(Exception):
    """The file is not valid CSV from some row on."""


def rows_of(path: Path, file: TextIO) -> Iterator[dict[str, str]]:
    # Strict, since a quote that is never closed would otherwise include the rows after it.
    number = 0
    try:
        for number, row in enumerate(csv.DictReader(file, strict=True), 1):  # noqa: B007 - for the error
            yield row
    except csv.Error as error:
        raise NotCsv(f"{path} is not CSV from row {number + 1} on ({error}): correct it, and run this again") from None


def items_of(rows: Iterable[dict[str, str]]) -> Iterator[Item]:
    for row in rows:
        yield Item(
            row["address"] or "",
            occurred_at=row["occurred_at"] or None,
            reason=row.get("reason") or None,
            source=row.get("source") or "nightly import",
        )


class Progress:
    """Keeps the number of answered rows in a file beside the CSV, for this version of the CSV, service and key.

    It only saves time: rows that are sent again change nothing, since each has its `occurred_at`.
    """

    def __init__(self, path: Path) -> None:
        state, variables = path.stat(), ("STOPLISTCLIENT_BASE_URL", "STOPLISTCLIENT_CLIENT_ID")
        self._file = path.with_name(f"{path.name}.progress")
        self._version = [state.st_size, state.st_mtime_ns, *(os.environ[name] for name in variables)]
        self.answered_before, self._refused_before = self._load()
        self.refused = self._refused_before

    def _load(self) -> tuple[int, int]:
        try:
            version, answered, refused = json.loads(self._file.read_bytes())
        except (FileNotFoundError, ValueError, TypeError):  # missing, or damaged
            return 0, 0
        return (answered, refused) if version == self._version else (0, 0)

    def note(self, sums: Submitted) -> None:
        """Store the progress. Called after each answered batch with the totals so far."""
        for error in sums.item_errors[self.refused - self._refused_before :]:
            row = self.answered_before + error.item_index + 1
            print(f"row {row}: {error.item_error}", file=sys.stderr)
        self.refused = self._refused_before + len(sums.item_errors)
        unfinished = self._file.with_name(f"{self._file.name}.unfinished")
        unfinished.write_text(json.dumps([self._version, self.answered_before + sums.received, self.refused]))
        unfinished.replace(self._file)  # atomic: a crash leaves the old file or the new one

    def forget(self) -> None:
        self._file.unlink(missing_ok=True)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.exit(main(Path(sys.argv[1])))
