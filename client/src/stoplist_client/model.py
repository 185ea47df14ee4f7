"""The inputs and results of the client: items, records, totals, and looked-up addresses."""

from datetime import datetime
from typing import Annotated, Literal, TypeAlias

import msgspec

from stoplist_client.redacted import Redacted

Channel: TypeAlias = Literal["email", "sms", "phone"]
"""The kind of address; a person's opt-outs on different channels are separate."""

Seq: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
"""The number of a change; the mirror's database holds no larger one."""

Status: TypeAlias = Literal["unsubscribed", "resubscribed"]
Moment: TypeAlias = datetime | str
"""A datetime with a UTC offset, or an RFC 3339 text (`2026-03-01T09:30:00Z`)."""

CHANNELS: tuple[Channel, ...] = ("email", "sms", "phone")


class Item(Redacted, msgspec.Struct, frozen=True):
    """One act of one person, to be submitted. A field that is None is taken from the call, or else has its default.

    `occurred_at` is when the person acted. The `reason` of an opt-out is `unsubscribe` (default), `stop_keyword`,
    `complaint`, `bounce`, `invalid_address`, `manual`, `legal` or `import`; that of a consent is always `consent`.
    `source` says where the person acted, in at most 200 characters. Source: docs/interface.md section D6.
    """

    address: str
    occurred_at: Moment | None = None
    reason: str | None = None
    source: str | None = None


class Record(Redacted, msgspec.Struct, frozen=True, kw_only=True):
    """The service's record of one address and one group. `group_id` None means all groups.

    `address` is None for a person who was erased: `address_digest` is then HMAC-SHA-256 of the canonical address under
    the `digest_key` of the page, in hexadecimal digits. Such a record bars like any other.
    Source: docs/interface.md section D6.
    """

    id: str
    org_slug: str
    group_id: str | None
    address: str | None
    status: Status
    reason: str
    source: str | None
    occurred_at: datetime
    recorded_at: datetime
    seq: Seq
    address_digest: str | None = None

    @property
    def is_consent(self) -> bool:
        """Return whether the person asked for messages again.

        False for an opt-out, and for `resubscribed` with the reason `correction`: that opt-out was a mistake and was
        taken back, so you may send what you were allowed to send before, but no consent is known.
        """
        return self.status == "resubscribed" and self.reason == "consent"

    def __repr__(self) -> str:
        return f"Record(id={self.id!r}, seq={self.seq}, status={self.status!r})"


class ItemError(Redacted, msgspec.Struct, frozen=True):
    """An item that was not accepted, and the reason.

    `item_index` counts from 0 over all items of the call; `item` is the item as it was given.
    """

    item_index: int
    item: str | Item
    item_error: str

    def __repr__(self) -> str:
        return f"ItemError(item_index={self.item_index}, item_error={self.item_error!r})"


class Submitted(msgspec.Struct, frozen=True, kw_only=True):
    """The result of the items so far: totals over all batches that were answered with 200.

    `received` = `created` + `updated` + `unchanged` + `outranked` + the number of `item_errors`.
    `submission_ids` identifies what was stored, for later questions; a batch that changed nothing has no id.
    """

    batches: int = 0
    received: int = 0
    created: int = 0
    updated: int = 0
    unchanged: int = 0
    outranked: int = 0
    submission_ids: tuple[str, ...] = ()
    item_errors: tuple[ItemError, ...] = ()


class LookedUp(Redacted, msgspec.Struct, frozen=True, kw_only=True):
    """The result for one looked-up address: as it was given, its canonical form, and its records."""

    address: str
    canonical: str
    records: tuple[Record, ...]

    def __repr__(self) -> str:
        return f"LookedUp({len(self.records)} records)"


class Page(Redacted, msgspec.Struct, frozen=True, kw_only=True):
    """One page of changes. Process `records`, then store `next_cursor`; if `has_more`, read on at once.

    `digest_key` is there if a record of the page was erased: the key of its `address_digest`, in base64url.
    """

    records: tuple[Record, ...]
    next_cursor: str
    has_more: bool
    digest_key: str | None = None

    def __repr__(self) -> str:
        return f"Page({len(self.records)} records, has_more={self.has_more})"
