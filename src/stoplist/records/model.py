"""The present state of a record, which the list, the search and the history show alike."""

from typing import Any

import msgspec

from stoplist.db import Row
from stoplist.organizations.target import GroupName
from stoplist.unsubscribes.model import UNSUBSCRIBED, Status


class RecordState(msgspec.Struct, frozen=True, kw_only=True):
    """The present state for an address and a group, or for all groups if `group_id` is None.

    Times are milliseconds since 1970 UTC.
    """

    group_id: str | None
    group_name: str | None
    status: Status
    reason: str
    source: str | None
    occurred_ms: int
    recorded_ms: int
    seq: int

    @property
    def bars(self) -> bool:
        """Return whether this record bars messages; `is_barred` includes the all-groups record."""
        return self.status == UNSUBSCRIBED


def state_fields(row: Row, group: GroupName | None) -> dict[str, Any]:
    """Return the fields of a RecordState from a row of `unsubscribes`, by name."""
    return {
        "group_id": None if group is None else group.group_id,
        "group_name": None if group is None else group.name,
        "status": row["status"],
        "reason": row["reason"],
        "source": row["source"],
        "occurred_ms": row["occurred_ms"],
        "recorded_ms": row["recorded_ms"],
        "seq": row["seq"],
    }
