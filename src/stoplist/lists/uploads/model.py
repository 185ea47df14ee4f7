"""Records of an upload, and of the work on an import. Source: docs/interface.md section D12, On the pages."""

from typing import Final, Literal

import msgspec
from stoplist_addresses.lists import ListError
from stoplist_addresses.lists.times import TimeReader, time_zone

from stoplist.lists.imports.model import FileStatements, ImportCounts, ImportOptions
from stoplist.records.reversal_plan import Reversal

UploadState = Literal["uploading", "uploaded", "ended"]
UPLOADING: Final = "uploading"
UPLOADED: Final = "uploaded"
ENDED: Final = "ended"

Work = Literal["check", "import", "count", "reverse"]
CHECK: Final = "check"
IMPORT: Final = "import"
COUNT: Final = "count"
REVERSE: Final = "reverse"

ALL_GROUPS_WORD = "all"
PIECE_BYTES = 512 * 1024
MAX_UNFINISHED = 5
"""The uploads of an organization and channel that may be unfinished at once."""

_MB = 1_000_000
_UNPACKED_FACTOR = 20


class UploadLimits(msgspec.Struct, frozen=True):
    """The bounds of an upload, in bytes: of the file, of what it unpacks to, and of the rejected rows that are kept."""

    file_bytes: int
    unpacked_bytes: int
    rejects_bytes: int

    @classmethod
    def of_megabytes(cls, max_mb: int) -> "UploadLimits":
        """Return the bounds for files of so many megabytes."""
        return cls(max_mb * _MB, _UNPACKED_FACTOR * max_mb * _MB, max_mb * _MB)


class UploadOptions(FileStatements, frozen=True, kw_only=True):
    """The statements of a person about an uploaded file.

    `target` is `all` or a `group_id`, empty until it was chosen. `as_of` is a day, of `time_zone`: at its end the list
    was true, or now if it is today. With `is_strict` an import of a file with bad rows does not begin.
    """

    target: str = ""
    as_of: str = ""
    is_strict: bool = False

    @property
    def group_id(self) -> str | None:
        """The group; None for all groups."""
        return None if self.target == ALL_GROUPS_WORD else self.target

    def for_import(self, now_ms: int) -> ImportOptions:
        """Return the options of an import that begins now. Raise ListError for a day that cannot be read."""
        as_of_ms = None
        if self.as_of:
            as_of_ms = TimeReader(time_zone(self.time_zone or "UTC"), now_ms).read(self.as_of)
            if as_of_ms is None:
                raise ListError("The day cannot be read: enter one such as 2026-03-01.", option="as_of_ms")
        return self.import_options(now_ms=now_ms, as_of_ms=as_of_ms)


class Upload(msgspec.Struct, frozen=True, kw_only=True):
    """An uploaded file; times are milliseconds since 1970 UTC. `import_id` is also that of its import, once it begins.

    `header` has the names of its columns, once they are known.
    """

    feed_id: int
    import_id: str
    state: UploadState
    file_name: str
    file_bytes: int
    piece_count: int
    header: tuple[str, ...]
    options: UploadOptions
    actor_kind: str
    actor_id: str
    created_ms: int
    ended_ms: int | None


class CheckResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a dry run.

    `first_bad` has lines and texts. `taken_by` is an unfinished import with the same target that has stored the first
    `taken_rows` of the file, `stored_by` a finished one that has stored all of it.
    """

    counts: ImportCounts
    is_exact: bool
    sha256: str
    first_bad: list[tuple[int, str]] = []
    taken_by: str | None = None
    taken_rows: int = 0
    stored_by: str | None = None


class WorkResult(msgspec.Struct, frozen=True, kw_only=True):
    """The results of work on an import.

    `error` says why the latest work ended early, `option` which option of the reader of lists would help.
    """

    check: CheckResult | None = None
    reversal: Reversal | None = None
    reversed: Reversal | None = None
    error: str = ""
    option: str | None = None


class ImportWork(msgspec.Struct, frozen=True, kw_only=True):
    """Work on an import; `work` is None if nothing is to be done. `done` of `total` says how far it came."""

    feed_id: int
    import_id: str
    work: Work | None
    actor_kind: str
    actor_id: str
    requested_ms: int
    lease_id: str | None
    lease_until_ms: int
    done: int
    total: int
    result: WorkResult
