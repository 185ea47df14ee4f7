"""Input and output of the reader of lists. Source: docs/interface.md section D12."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal, TypeAlias

Field: TypeAlias = Literal["address", "occurred_at", "reason", "source"]
FIELDS: tuple[Field, ...] = ("address", "occurred_at", "reason", "source")

OptOut: TypeAlias = tuple[int, str, int, str, str | None]
"""The line number of a row, its address as written, the time in ms since 1970 UTC, the reason, and the source."""

# The reasons of an opt-out. Source: docs/interface.md section D6.
OPT_OUT_REASONS = frozenset(
    {"unsubscribe", "stop_keyword", "complaint", "bounce", "invalid_address", "manual", "legal", "import"}
)
DEFAULT_REASON = "import"


class ListError(Exception):
    """The file or the options are refused as a whole. The text is for people, and repeats no address.

    `is_usage` says whether the options are at fault, rather than the file. `option` names the field of ListOptions
    that would help, so that a command or a page can point to its own name of it; None if no option would. `header` has
    the names of the columns, if they were read before.
    """

    header: tuple[str, ...] = ()

    def __init__(self, text: str, *, is_usage: bool = False, option: str | None = None) -> None:
        super().__init__(text)
        self.is_usage = is_usage
        self.option = option


@dataclass(frozen=True, slots=True)
class ListOptions:
    """Statements about a file that the file does not make itself. Times are in ms since 1970 UTC.

    Whoever goes on with a file later must pass the same options, `now_ms` included.
    """

    channel: str
    now_ms: int
    as_of_ms: int | None = None
    format: str | None = None
    time_zone: str | None = None
    columns: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    opted_out_when: tuple[tuple[str, str], ...] = ()
    encoding: str | None = None
    separator: str | None = None
    reason: str | None = None
    source: str | None = None
    reasons: frozenset[str] = OPT_OUT_REASONS
    key_fingerprint: str | None = None
    """The fingerprint of the digest key of the service, which may know the erased people of an export."""


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that is left out because it cannot be read. `error` is a stable code."""

    line: int
    error: str
    cells: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Part:
    """Consecutive rows of a file, read. `rows` counts all of them; `sha256` is of all bytes up to their end."""

    rows: int
    sha256: str
    opt_outs: list[OptOut]
    bad: list[BadRow]
    not_opted_out: int = 0
    redated: int = 0
    dated_after_as_of: int = 0
    sources_changed: int = 0
    reasons_replaced: int = 0
    erased: int = 0
    earlier_versions: int = 0
    by_digest: list[OptOut] = field(default_factory=list)
    """Opt-outs of erased persons whom the service knows: the digest stands in the place of the address."""
    cells: Callable[[int], tuple[str, ...]] = lambda _: ()
    """Returns all cells of the row of an opt-out, by its index in `opt_outs`."""
