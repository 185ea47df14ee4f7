"""The request and response shapes of the six operations, shared with the OpenAPI document.

Source: docs/interface.md section D6.
"""

from typing import Annotated, Final, Literal, get_args

import msgspec
from msgspec import UNSET, Meta, UnsetType

from stoplist import ids
from stoplist.actor import Actor
from stoplist.clock import Clock
from stoplist.db import Database
from stoplist.organizations.model import SLUG_PATTERN

UNSUBSCRIBED: Final = "unsubscribed"
RESUBSCRIBED: Final = "resubscribed"
CREATED: Final = "created"
UPDATED: Final = "updated"
UNCHANGED: Final = "unchanged"
OUTRANKED: Final = "outranked"
UNSUBSCRIBE_REASON, CONSENT = "unsubscribe", "consent"

MAX_ITEMS = 10_000
MAX_BODY_BYTES = 8 * 1024 * 1024
MAX_SOURCE_CHARS = 200
MAX_NAME_CHARS = 64
MAX_LOOK_UPS = 100
DEFAULT_LIMIT, MAX_LIMIT = 1_000, 10_000
MAX_EXAMINED = 50_000
MAX_AHEAD_MS = 5 * 60 * 1000

Status = Literal["unsubscribed", "resubscribed"]
SentReason = Literal[
    "unsubscribe", "stop_keyword", "complaint", "bounce", "invalid_address", "manual", "legal", "import", "consent"
]
SENT_REASONS: Final[tuple[str, ...]] = get_args(SentReason)
OPT_OUT_REASONS: Final = tuple(reason for reason in SENT_REASONS if reason != "consent")
Reason = Literal[SentReason, "correction"]
Result = Literal["created", "updated", "unchanged", "outranked"]
Source = Annotated[str, Meta(max_length=MAX_SOURCE_CHARS)]
Name = Annotated[str, Meta(max_length=MAX_NAME_CHARS)]

# Response fields, so never validated: the patterns are for the OpenAPI document only.
Slug = Annotated[str, Meta(pattern=SLUG_PATTERN, description="The organization.")]
Time = Annotated[
    str,
    Meta(
        pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{3}Z$",
        extra_json_schema={"format": "date-time"},
    ),
]
Count = Annotated[int, Meta(ge=0)]
Digest = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}$")]
GroupId = Annotated[str, Meta(pattern=ids.id_pattern(ids.GROUP_ID))]
RecordId = Annotated[
    str,
    Meta(
        pattern=ids.id_pattern(ids.RECORD_ID), description="The record. It stays the same through every change of it."
    ),
]
Index = Annotated[int, Meta(ge=0, description="Which item of the batch, counted from 0.")]


class Item(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, gc=False):
    """One act of a person. Any field but `address` may be absent or null, and then has its default."""

    address: Annotated[
        str,
        Meta(description="An address of the channel, as you have it. It is stored and answered in its canonical form."),
    ]
    status: Annotated[
        Status | None,
        Meta(
            description="What the person wants from now on; by default `unsubscribed`. "
            "`resubscribed` needs the permission `resubscribe`, and `occurred_at`."
        ),
    ] = None
    occurred_at: Annotated[
        str | None,
        Meta(
            description="When the person acted: RFC 3339, with an offset. Send it with every item: the later act wins, "
            "not the later request. By default now; at most "
            f"{MAX_AHEAD_MS // 60_000} minutes ahead of our clock, for `resubscribed` not at all.",
            extra_json_schema={"format": "date-time"},
        ),
    ] = None
    reason: Annotated[
        SentReason | None,
        Meta(
            description="Why: by default `unsubscribe`. For `resubscribed` it is always `consent`, "
            "which an opt-out cannot have."
        ),
    ] = None
    source: Annotated[
        Source | None, Meta(description="Where it happened, in your own words, such as the name of a form.")
    ] = None


class Batch(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A submission: its target, and acts of people.

    Only for its field names and the OpenAPI document: a body is parsed item by item, so that every bad item is named.
    """

    org_slug: Annotated[
        Name | None, Meta(description="The organization; by default the group's, else the default one of your key.")
    ] = None
    group_id: Annotated[
        Name | None,
        Meta(description="The group of messages that people leave; by default the organization's default group."),
    ] = None
    all_groups: Annotated[
        bool | None,
        Meta(description="`true`, instead of `group_id`: people leave every message of the organization here."),
    ] = None
    items: Annotated[list[Item], Meta(min_length=1, max_length=MAX_ITEMS)]


class BadItem(msgspec.Struct, frozen=True, gc=False):
    """An item of the wrong shape: the error, and the requested status if it can be read."""

    error: str
    status: str | None = None


class ItemError(msgspec.Struct, frozen=True, gc=False):
    """An item that cannot be accepted."""

    item_index: Index
    item_error: Annotated[str, Meta(description="What is wrong with it, for people; the wording may change.")]


class ItemResult(msgspec.Struct, frozen=True, gc=False):
    """The result of an item."""

    item_index: Index
    id: RecordId
    address: Annotated[str, Meta(description="The address in its canonical form.")]
    result: Annotated[
        Result,
        Meta(
            description="`created` and `updated` changed the record; `unchanged`: it had that status already; "
            "`outranked`: the person did something else later, and that stands."
        ),
    ]
    status: Annotated[Status, Meta(description="The status of the record after this item.")]
    latest_act_at: Annotated[
        Time | UnsetType, Meta(description="When the person did what outranks this item; only with `outranked`.")
    ] = UNSET
    address_digest: Annotated[
        Digest | UnsetType,
        Meta(description="Only of an erased record: what is stored instead of the address."),
    ] = UNSET


class Submission(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a batch: its resolved target, the counts, and the result of each item."""

    submission_id: Annotated[
        Annotated[str, Meta(pattern=ids.id_pattern(ids.SUBMISSION_ID))] | None,
        Meta(description="Identifies the submission for later questions; null if nothing had to be stored."),
    ]
    org_slug: Slug
    group_id: Annotated[GroupId | None, Meta(description="The group; null with `all_groups`.")]
    received: Annotated[Count, Meta(description="How many items were sent.")]
    created: Annotated[Count, Meta(description="How many made a record.")]
    updated: Annotated[Count, Meta(description="How many changed the status of a record.")]
    unchanged: Annotated[Count, Meta(description="How many left their record as it was: it already had that status.")]
    outranked: Annotated[Count, Meta(description="How many were outranked by a later act of the person.")]
    items: Annotated[
        list[ItemResult] | UnsetType, Meta(description="In the order sent; absent with `Prefer: return=minimal`.")
    ] = UNSET
    item_errors: Annotated[
        list[ItemError] | UnsetType,
        Meta(description="Every item that was left out; only with `Prefer: handling=lenient`, and then always."),
    ] = UNSET


class Record(msgspec.Struct, frozen=True, gc=False):
    """The present state for an address and a group."""

    id: RecordId
    org_slug: Slug
    group_id: Annotated[
        GroupId | None, Meta(description="The group; null: every message of the organization on this channel.")
    ]
    address: Annotated[
        str | None,
        Meta(
            description="The address in its canonical form. Null only for an erased record that was not looked up: "
            "compare its `address_digest`, and never read the null as leave to write."
        ),
    ]
    status: Annotated[
        Status, Meta(description="What the person wants; with the reason `correction`, what is no longer known.")
    ]
    reason: Annotated[
        Reason,
        Meta(
            description="Why. `resubscribed` with `consent`: the person asked for messages again. `resubscribed` with "
            "`correction`: the opt-out was a mistake and was taken back; no consent is known."
        ),
    ]
    source: Annotated[
        str | None,
        Meta(description="Where it happened, with a space for each control or bidirectional formatting character."),
    ]
    occurred_at: Annotated[Time, Meta(description="When the person acted.")]
    recorded_at: Annotated[Time, Meta(description="When it was recorded here.")]
    seq: Annotated[
        int,
        Meta(ge=1, description="The number of this change: one sequence for each organization and channel."),
    ]
    address_digest: Annotated[
        Digest | UnsetType,
        Meta(
            description="Only of an erased record: HMAC-SHA-256 of the canonical address under `digest_key`, as "
            "hexadecimal digits."
        ),
    ] = UNSET


class PageState(msgspec.Struct, frozen=True, kw_only=True):
    """The number of records of a feed, and their digest. Whoever took all changes up to `seq` has the same two."""

    seq: Annotated[int, Meta(ge=0, description="The number of the last change, where `next_cursor` stands.")]
    records: Count
    digest: Annotated[
        Digest,
        Meta(
            description="The sum, modulo 2^256, of SHA-256 over each record's "
            "`[id, group_id, address or address_digest, status, seq]` "
            "in the form of RFC 8785, as hexadecimal digits.",
        ),
    ]


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """Records, each at its latest change, in the order of these changes."""

    items: list[Record] | UnsetType
    next_cursor: Annotated[
        str | None,
        Meta(
            description="Keep it: sent as `cursor`, it returns exactly what has changed since, today or in a year. "
            "Present on the last page too; null only in look-ups."
        ),
    ]
    has_more: Annotated[
        bool, Meta(description="True if another page is available now. With a group, a page may be empty.")
    ]
    state: Annotated[
        PageState | UnsetType | None,
        Meta(
            description="Of the whole feed where `next_cursor` stands. Null with a group, while `has_more` is true, "
            "and while it is being computed. Absent in look-ups."
        ),
    ] = UNSET
    digest_key: Annotated[
        Annotated[str, Meta(pattern=r"^[A-Za-z0-9_-]{43}$")] | UnsetType,
        Meta(
            description="Only where a record of the page was erased: the key of its `address_digest`, as base64url. It "
            "stays the same for an organization and channel.",
        ),
    ] = UNSET
    looked_up: Annotated[
        list[str] | UnsetType,
        Meta(
            description="Only in look-ups: the canonical form of each requested address, in the order of the request."
        ),
    ] = UNSET


class RequestedTarget(msgspec.Struct, frozen=True, kw_only=True):
    """The organization and group that a request names; `all_groups` is for submissions only."""

    org_slug: str | None = None
    group_id: str | None = None
    all_groups: bool = False


class OptOutStores(msgspec.Struct, frozen=True, kw_only=True):
    """The dependencies of the operations. The first of `secret_keys` signs cursors; all of them verify cursors.

    `history_days` is how long what was received can be reversed; 0 is for ever.
    """

    database: Database
    clock: Clock
    secret_keys: tuple[str, ...]
    history_days: int = 0
    digest_keys: dict[int, str] = msgspec.field(default_factory=dict)
    """The digest keys of feeds that have had erased records, as look-ups found them: a key never changes."""


def sender_key(actor: Actor) -> str:
    """Return a text that identifies the sender of a submission."""
    return f"{actor.kind}:{actor.id}"
