"""Filters of a list or an export of records, and the numbers between which a time range lies.

Source: docs/interface.md sections D5, D6 and D11.
"""

from collections.abc import Mapping, Sequence
from typing import Final, get_args

from stoplist.db import Database
from stoplist.db.query import load_queries
from stoplist.errors import Refused
from stoplist.organizations.target import ALL_GROUPS
from stoplist.unsubscribes.model import Reason, Status

_SEQ_AT = load_queries(__package__)["seq_at"]

ALL_GROUPS_FILTER: Final = "all"
"""As a filter: only the records for all groups."""
# Release 0.1 dated records by the clock of their host, before it waited for the lock: in a search for a date, they may
# be out of order by this much.
DISORDER_MS = 5 * 60 * 1000
MAX_SEQ = 2**63 - 1


def group_number(group: str, numbers: Mapping[str, int], *, org_slug: str) -> int:
    """Return the number of the group among `numbers`; raise Refused (`group`) if the organization has no such group."""
    if group not in numbers:
        raise Refused(f"The organization {org_slug} has no such group: choose one of its own.", field="group")
    return numbers[group]


def require_known_words(*, status: str | None, reason: str | None) -> None:
    """Raise Refused (`status`, `reason`) for a word that no record can have."""
    _require_choice(get_args(Status), status, "status")
    _require_choice(get_args(Reason), reason, "reason")


def group_filter_number(group: str, numbers: Mapping[str, int], *, org_slug: str) -> int:
    """Return the number of the group as `group_number` does; `group` may also be ALL_GROUPS_FILTER."""
    return ALL_GROUPS if group == ALL_GROUPS_FILTER else group_number(group, numbers, org_slug=org_slug)


async def seq_bounds(
    database: Database, feed_id: int, *, from_ms: int | None, until_ms: int | None, before_seq: int | None = None
) -> tuple[int, int]:
    """Return a lower bound (inclusive) and an upper bound of the `seq` of all records in the time range.

    With `before_seq`, that is the upper bound.
    """
    low, high = 0, MAX_SEQ if before_seq is None else min(max(0, before_seq), MAX_SEQ)
    if from_ms is not None:
        row = await database.one(_SEQ_AT, feed_id=feed_id, at_ms=from_ms - DISORDER_MS)
        low = low if row is None else row["low"]
    if until_ms is not None and before_seq is None:
        row = await database.one(_SEQ_AT, feed_id=feed_id, at_ms=until_ms + DISORDER_MS)
        high = high if row is None else row["high"]
    return low, high


def _require_choice(choices: Sequence[str], text: str | None, field: str) -> None:
    if text is not None and text not in choices:
        raise Refused(f"There is no such {field}: choose one of {', '.join(choices)}.", field=field)
