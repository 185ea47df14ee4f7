"""The arguments of `stoplist import run`, and the outcome of the commands that import."""

import click
import msgspec

from stoplist.cli.printing import print_line, print_record
from stoplist.lists.imports.model import FileStatements, ImportOptions
from stoplist.unsubscribes.channel import Channel


class ImportRequest(FileStatements, frozen=True, kw_only=True):
    """The arguments of `stoplist import run`."""

    file: str
    org_slug: str
    channel: Channel
    group_id: str | None
    as_of: str | int | None
    rejects: str | None
    is_dry_run: bool
    is_strict: bool
    is_confirmed: bool

    def options(self, now_ms: int) -> ImportOptions:
        """Return the options of an import that begins at this moment."""
        if isinstance(self.as_of, int) and self.as_of > now_ms:
            raise click.UsageError("--as-of lies in the future: say when the list was true.")
        return self.import_options(now_ms=now_ms, as_of_ms=now_ms if isinstance(self.as_of, str) else self.as_of)


class ImportOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The final message of a command, and its exit status."""

    record: dict[str, object]
    lines: list[str]
    status: int = 0

    def print(self, *, as_json: bool) -> None:
        """Print JSON, or the lines."""
        if as_json:
            print_record(self.record, as_json=True)
        else:
            for line in self.lines:
                print_line(line)
