"""Examples for the description, built from the types of requests and answers, so that their fields are right.

Addresses pass the rules of their channel; they are example domains and numbers reserved for fiction.
"""

from typing import NamedTuple

import msgspec
from msgspec import UNSET
from stoplist_addresses import AddressError

from stoplist import ids
from stoplist.errors import (
    BadRequest,
    DefaultGroupNotConfigured,
    InsufficientScope,
    InvalidClient,
    InvalidCursor,
    InvalidGrant,
    InvalidItem,
    InvalidToken,
    RateLimited,
    ServerFault,
    StoreUnavailable,
    UnauthorizedOrganization,
    UnsupportedGrantType,
)
from stoplist.limits.sliding_log import WINDOW_S
from stoplist.oauth.model import API_PER_MINUTE, TOKEN_PER_MINUTE, TokenPair
from stoplist.unsubscribes.channel import Channel
from stoplist.unsubscribes.cursor import UNUSABLE_CURSOR
from stoplist.unsubscribes.feed_state import EMPTY, extended_state
from stoplist.unsubscribes.model import (
    MAX_LIMIT,
    Batch,
    Item,
    ItemError,
    ItemResult,
    Page,
    PageState,
    Record,
    SentReason,
    Submission,
)
from stoplist.web.reference.schemas import Json

ORGANIZATION = "acme"
GROUP = f"{ids.GROUP_ID}5QkTz0vBn8Yw3RgLx1JmHc"
SUBMISSION = f"{ids.SUBMISSION_ID}4HqLv0Zw7cT1yXbN9eKdRf"
CURSOR = "AAAAAAAAAAxExampleExampleExample"


class People(NamedTuple):
    """The addresses of two people as a partner may spell them, the second one's reason, and an invalid address."""

    first: str
    second: str
    reason: SentReason
    invalid: str


PEOPLE = {
    "email": People("Ada.Lovelace@Example.com", "grace.hopper@example.org", "complaint", "grace.hopper@example"),
    "sms": People("+44 7700 900123", "+1 (202) 555-0143", "stop_keyword", "07700 900123"),
    "phone": People("+44 20 7946 0018", "+1 (202) 555-0143", "manual", "020 7946 0018"),
}
_RECORDS = (f"{ids.RECORD_ID}0Bf7dWq2LsKx9PzVt4YnMe", f"{ids.RECORD_ID}6JrC1hXw8TgUa3QmDk5ZvS")
_OCCURRED_AT = ("2026-03-01T09:30:00Z", "2026-03-01T10:45:12+01:00")

TOKEN_PAIR = TokenPair(
    access_token=f"{ids.ACCESS_TOKEN}{'Example' * 7}", refresh_token=f"{ids.REFRESH_TOKEN}{'Example' * 7}"
)
FORMS: dict[str, Json] = {
    "client_credentials": {"grant_type": "client_credentials"},
    "refresh_token": {"grant_type": "refresh_token", "refresh_token": TOKEN_PAIR.refresh_token},
}


BAD_QUERY = BadRequest(f"limit must be a whole number from 1 to {MAX_LIMIT}.", parameter="limit")
BAD_BATCH = BadRequest("Send a group_id, or all_groups: true, not both.", parameter="all_groups")
_COMMON_ERRORS = (
    RateLimited(
        f"Too many requests: the limit is {API_PER_MINUTE} in {WINDOW_S} seconds for all programs with this key. "
        f"Wait {WINDOW_S} s.",
        retry_after_s=WINDOW_S,
    ),
    ServerFault(
        "The server failed to answer this request. Try again; if it fails again, tell its operator the request_id.",
        request_id="5f0c3ab2917d00000000002a",
    ),
    StoreUnavailable("Too many writes are waiting for the database: try again shortly."),
)
API_ERRORS = (
    DefaultGroupNotConfigured(
        "The organization has no default group: send a group_id, or all_groups: true to opt out of everything.",
        org_slug=ORGANIZATION,
    ),
    InvalidCursor(UNUSABLE_CURSOR),
    InvalidToken("The access token is unknown, expired or revoked: get a new one from /oauth/token."),
    InsufficientScope(
        "This key lacks the permission resubscribe: ask an administrator for it, or leave out the items that need it."
    ),
    UnauthorizedOrganization(
        "This key is not for that organization, or there is none: use the slug of one of its organizations.",
        org_slug="acme-shoes",
    ),
    *_COMMON_ERRORS,
)
OAUTH_ERRORS = (
    BadRequest("The parameter grant_type is missing or empty: send client_credentials or refresh_token."),
    UnsupportedGrantType("This grant_type is not offered: send client_credentials or refresh_token."),
    InvalidGrant(
        "The refresh token was used already, so every access and refresh token of this client has been revoked: get a "
        "new pair with client_credentials. Use each refresh token once, and never again after a lost answer."
    ),
    InvalidClient(
        "Client authentication failed: send the client_id and client_secret of an active key of this environment, "
        "best as HTTP Basic."
    ),
    RateLimited(
        f"Too many token requests: the limit is {TOKEN_PER_MINUTE} in {WINDOW_S} seconds. Wait {WINDOW_S} s, "
        "and keep each access token for its 15 minutes.",
        retry_after_s=WINDOW_S,
    ),
    *_COMMON_ERRORS[1:],
)


def batches(channel: Channel) -> dict[str, Json]:
    """Return example bodies of a submission, by title."""
    people = PEOPLE[channel.name]
    left = Item(address=people.first, occurred_at=_OCCURRED_AT[0], source="Account settings")
    complained = Item(address=people.second, occurred_at=_OCCURRED_AT[1], reason=people.reason)
    came_back = Item(
        address=people.second, status="resubscribed", occurred_at="2026-04-02T08:00:00Z", source="Sign-up form"
    )
    return {
        "Two opt-outs": _sent(Batch(items=[left, complained])),
        "From every message of an organization": _sent(
            Batch(
                org_slug=ORGANIZATION,
                all_groups=True,
                items=[Item(address=people.first, occurred_at=_OCCURRED_AT[0], reason="legal")],
            )
        ),
        "Somebody came back": _sent(Batch(group_id=GROUP, items=[came_back])),
    }


def submissions(channel: Channel) -> dict[str, Json]:
    """Return example answers to a submission, by title."""
    people = PEOPLE[channel.name]
    results = [
        ItemResult(index, record_id, channel.canonical(address), "created", "unsubscribed")
        for index, (record_id, address) in enumerate(zip(_RECORDS, people[:2], strict=True))
    ]
    stored = Submission(
        submission_id=SUBMISSION,
        org_slug=ORGANIZATION,
        group_id=GROUP,
        received=2,
        created=2,
        updated=0,
        unchanged=0,
        outranked=0,
        items=results,
    )
    outranked = ItemResult(
        0, _RECORDS[0], channel.canonical(people.first), "outranked", "resubscribed", "2026-04-02T08:00:00.000Z"
    )
    late = msgspec.structs.replace(stored, submission_id=None, received=1, created=0, outranked=1, items=[outranked])
    lenient = msgspec.structs.replace(
        stored, created=1, items=results[:1], item_errors=[ItemError(1, _error(channel, people.invalid))]
    )
    return {
        "Two opt-outs": _answered(stored),
        "The person came back later": _answered(late),
        "With Prefer: handling=lenient": _answered(lenient),
        "With Prefer: return=minimal": _answered(msgspec.structs.replace(stored, items=UNSET)),
    }


def pages(channel: Channel) -> dict[str, Json]:
    """Return example answers to a `GET`, by title."""
    people = PEOPLE[channel.name]
    left = Record(
        id=_RECORDS[0],
        org_slug=ORGANIZATION,
        group_id=GROUP,
        address=channel.canonical(people.first),
        status="unsubscribed",
        reason="unsubscribe",
        source="Account settings",
        occurred_at="2026-03-01T09:30:00.000Z",
        recorded_at="2026-03-01T10:00:00.250Z",
        seq=41,
    )
    complained = msgspec.structs.replace(
        left,
        id=_RECORDS[1],
        address=channel.canonical(people.second),
        reason=people.reason,
        source=None,
        occurred_at="2026-03-01T09:45:12.000Z",
        seq=42,
    )
    records = [left, complained]
    hashed = [(one.id, one.group_id, one.address or "", one.status, one.seq) for one in records]
    state = PageState(
        seq=complained.seq, records=len(records), digest=extended_state(EMPTY, complained.seq, hashed).text
    )
    page = Page(items=records, next_cursor=CURSOR, has_more=False, state=state)
    looked_up = Page(items=records[:1], next_cursor=None, has_more=False, looked_up=[channel.canonical(people.first)])
    nothing_new = Page(items=[], next_cursor=CURSOR, has_more=False, state=state)
    return {
        "A page": _answered(page),
        "Nothing changed since the cursor": _answered(nothing_new),
        "A look-up": _answered(looked_up),
    }


def invalid_item(channel: Channel) -> InvalidItem:
    """Return the refusal of a batch whose second item is bad."""
    error = _error(channel, PEOPLE[channel.name].invalid)
    return InvalidItem(
        "1 of 2 items cannot be accepted, so nothing was stored. Correct those in item_errors, "
        "or send Prefer: handling=lenient to store the others.",
        item_index=1,
        item_error=error,
        item_errors=[ItemError(1, error)],
    )


def _sent(batch: Batch) -> Json:
    """Return the batch as a partner writes it, without absent fields."""
    fields = {name: value for name, value in msgspec.to_builtins(batch).items() if value is not None}
    fields["items"] = [{name: value for name, value in item.items() if value is not None} for item in fields["items"]]
    return fields


def _answered(answer: msgspec.Struct) -> Json:
    fields: Json = msgspec.to_builtins(answer)
    return fields


def _error(channel: Channel, address: str) -> str:
    try:
        channel.canonical(address)
    except AddressError as error:
        return str(error)
    raise ValueError("the example of an invalid address is valid")
