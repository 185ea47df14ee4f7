"""Records of an import. Source: docs/interface.md section D12."""

from typing import Final, Literal

import msgspec

State = Literal["running", "stopped", "done", "reversing", "reversed", "discarded"]
RUNNING: Final = "running"
STOPPED: Final = "stopped"
DONE: Final = "done"
REVERSING: Final = "reversing"
REVERSED: Final = "reversed"
DISCARDED: Final = "discarded"

LEASE_MS = 60_000
MAX_ROWS_PER_PART = 10_000


class ImportCounts(msgspec.Struct, kw_only=True):
    """The numbers of rows of a file, by what became of them.

    `bad` is by kind of error. `redated`, `dated_after_as_of`, `sources_changed` and `reasons_replaced` count rows that
    were taken all the same. `repeated` is known only from a check: None after an import.
    """

    rows: int = 0
    bad: dict[str, int] = {}
    not_opted_out: int = 0
    erased: int = 0
    earlier_versions: int = 0
    redated: int = 0
    dated_after_as_of: int = 0
    sources_changed: int = 0
    reasons_replaced: int = 0
    repeated: int | None = None
    created: int = 0
    updated: int = 0
    unchanged: int = 0
    outranked: int = 0

    @property
    def bad_rows(self) -> int:
        return sum(self.bad.values())

    @property
    def left_out_rows(self) -> int:
        """Return the number of rows that were not taken, whatever the reason."""
        return self.bad_rows + self.not_opted_out + self.erased + self.earlier_versions


class FileStatements(msgspec.Struct, frozen=True, kw_only=True):
    """Statements about a file that it does not make itself; None and empty: its reader recognizes it, or has a default.

    They mean what they mean in `stoplist_addresses.lists.ListOptions`.
    """

    format: str | None = None
    time_zone: str | None = None
    columns: dict[str, str] = {}
    opted_out_when: tuple[tuple[str, str], ...] = ()
    encoding: str | None = None
    reason: str | None = None
    source: str | None = None

    def import_options(self, *, now_ms: int, as_of_ms: int | None) -> "ImportOptions":
        """Return the options of an import that begins now, of a file that was true at `as_of_ms`."""
        statements = {name: getattr(self, name) for name in FileStatements.__struct_fields__}
        return ImportOptions(now_ms=now_ms, as_of_ms=as_of_ms, **statements)


class ImportOptions(FileStatements, frozen=True, kw_only=True):
    """Statements about the file, made when the import began; `now_ms` is that moment."""

    now_ms: int
    as_of_ms: int | None = None


class Import(msgspec.Struct, frozen=True, kw_only=True):
    """An import; times are milliseconds since 1970 UTC.

    `group_id` None means all groups. `row_count` is the number of rows of the file that were taken, `sha256` that of
    the decompressed bytes up to there. `lease_id` names the process that works on the import. `rejects_bytes` is the
    length of the rejected rows that are kept; it is negative if there was no room for all of them.
    """

    import_id: str
    state: State
    org_slug: str
    channel: str
    group_id: str | None
    group_name: str | None
    file_name: str
    options: ImportOptions
    actor_kind: str
    actor_id: str
    started_ms: int
    ended_ms: int | None
    row_count: int
    sha256: str
    rejects_bytes: int
    counts: ImportCounts
    lease_id: str | None
    lease_until_ms: int
    organization_id: int
    feed_id: int
    group_no: int

    @property
    def has_all_rejects(self) -> bool:
        """Return whether all rejected rows of an uploaded file are kept."""
        return self.rejects_bytes >= 0

    def is_held(self, now_ms: int) -> bool:
        """Return whether a process works on the import, as far as its lease tells."""
        return self.state == RUNNING and self.lease_until_ms > now_ms
