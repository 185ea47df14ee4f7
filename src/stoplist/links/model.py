"""Types of link keys. Source: docs/interface.md section D15."""

from typing import Literal

import msgspec

from stoplist.db import Row
from stoplist.db.encrypted_column import GIVEN_UP

LOST = GIVEN_UP
"""Stored instead of a link key that no secret key can read. Its links get the answer of a revoked key."""

LinkKeyState = Literal["active", "retired", "revoked", "forgotten"]


class LinkKeyDetails(msgspec.Struct, frozen=True, kw_only=True):
    """A link key without its secret. Times are milliseconds since 1970 UTC.

    `turned_away` is the number of people whose link no longer works; `unusable` is that of clicks on links without an
    acceptable address.
    """

    link_key_id: str
    org_slug: str
    state: LinkKeyState
    created_ms: int
    retired_ms: int | None
    revoked_ms: int | None
    turned_away: int
    unusable: int
    last_unusable_ms: int | None

    @property
    def has_working_links(self) -> bool:
        """Return whether the links of the key work."""
        return self.state in ("active", "retired")


class NewLinkKey(msgspec.Struct, frozen=True):
    """A new link key with its text, which is shown once."""

    details: LinkKeyDetails
    link_key: str

    def __repr__(self) -> str:
        return f"NewLinkKey({self.details.link_key_id})"


def details_from_row(row: Row) -> LinkKeyDetails:
    """Return the link key of a row."""
    return LinkKeyDetails(
        link_key_id=row["link_key_id"],
        org_slug=row["org_slug"],
        state=state_of(row),
        created_ms=row["created_ms"],
        retired_ms=row["retired_ms"],
        revoked_ms=row["revoked_ms"],
        turned_away=row["turned_away"],
        unusable=row["unusable"],
        last_unusable_ms=row["last_unusable_ms"],
    )


def state_of(row: Row) -> LinkKeyState:
    """Return the state of a row. Forgetting and revoking are final, and outweigh retiring."""
    if row["secret"] == LOST:
        return "forgotten"
    if row["revoked_ms"] is not None:
        return "revoked"
    return "active" if row["retired_ms"] is None else "retired"
