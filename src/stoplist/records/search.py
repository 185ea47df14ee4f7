"""Search for one address in every organization and channel that the actor may see.

A complaint names an address, not an organization. Source: docs/interface.md sections D5, D7 and D11.
"""

from collections.abc import Mapping, Sequence

import msgspec
from stoplist_addresses import AddressError

from stoplist.actor import Actor
from stoplist.db import Database, Row
from stoplist.db.query import json_text, load_queries
from stoplist.errors import Refused
from stoplist.organizations.model import Organization
from stoplist.organizations.organizations import list_organizations
from stoplist.organizations.target import GroupName, group_names
from stoplist.records.model import RecordState, state_fields
from stoplist.slicing import yield_to_loop
from stoplist.unsubscribes.channel import CHANNELS, Channel, feed_id
from stoplist.unsubscribes.model import ALL_GROUPS, UNSUBSCRIBED

_EVERYWHERE = load_queries(__package__)["records_everywhere"]

MAX_FOUND = 1_000
_FEEDS_AT_ONCE = 500
_EMAIL_CHANNELS = (CHANNELS["email"],)
_NUMBER_CHANNELS = (CHANNELS["sms"], CHANNELS["phone"])  # both have the same rule for numbers


class FoundRecord(RecordState, frozen=True, kw_only=True):
    """The present state that one organization stores for the address and a group, or for all groups.

    `is_barred`: nothing may be sent, because of this record or the all-groups record.
    """

    org_slug: str
    org_name: str
    is_closed: bool
    channel: str
    is_barred: bool


class SearchResult(msgspec.Struct, frozen=True, kw_only=True):
    """Every record of the address by organization, channel and group (the all-groups record first).

    `organizations` is the number of organizations searched. With `is_cut` there are more records than the MAX_FOUND
    shown.
    """

    canonical: str
    channels: tuple[str, ...]
    records: list[FoundRecord]
    organizations: int
    is_cut: bool


async def search(actor: Actor, database: Database, text: str) -> SearchResult:
    """Return every record of this address that the actor may see, closed organizations and retired groups included.

    A text with an @ is an e-mail address, any other a number for text messages and calls. Refused if it can be neither.
    """
    channels = _EMAIL_CHANNELS if "@" in text else _NUMBER_CHANNELS
    canonical = _canonical(text, channels[0])
    organizations = await list_organizations(actor, database)
    feeds = {
        feed_id(organization.organization_id, channel): (organization, channel)
        for organization in organizations
        for channel in channels
    }
    rows = await _rows(database, list(feeds), canonical)
    names = await group_names(database, {feeds[row["feed_id"]][0].organization_id for row in rows[:MAX_FOUND]})
    feeds_with_all_barred = {
        row["feed_id"] for row in rows if row["group_no"] == ALL_GROUPS and row["status"] == UNSUBSCRIBED
    }
    return SearchResult(
        canonical=canonical,
        channels=tuple(channel.name for channel in channels),
        records=[
            _record(row, *feeds[row["feed_id"]], names, all_groups_barred=row["feed_id"] in feeds_with_all_barred)
            for row in rows[:MAX_FOUND]
        ],
        organizations=len(organizations),
        is_cut=len(rows) > MAX_FOUND,
    )


def _canonical(text: str, channel: Channel) -> str:
    try:
        return channel.canonical(text)
    except AddressError as error:
        hint = "" if channel in _EMAIL_CHANNELS else " An e-mail address has an @."
        raise Refused(f"{error}{hint}", field="address") from None


async def _rows(database: Database, feeds: Sequence[int], address: str) -> list[Row]:
    """Return the rows in the order of `feeds`, by group within each."""
    feed_order = {feed: at for at, feed in enumerate(feeds)}
    rows: list[Row] = []
    for at in range(0, len(feeds), _FEEDS_AT_ONCE):
        if at:
            await yield_to_loop()
        feed_ids = json_text(feeds[at : at + _FEEDS_AT_ONCE])
        found = await database.all(_EVERYWHERE, feed_ids=feed_ids, address=address)
        rows += sorted(found, key=lambda row: (feed_order[row["feed_id"]], row["group_no"]))
        if len(rows) > MAX_FOUND:
            break
    return rows


def _record(
    row: Row,
    organization: Organization,
    channel: Channel,
    names: Mapping[tuple[int, int], GroupName],
    *,
    all_groups_barred: bool,
) -> FoundRecord:
    return FoundRecord(
        org_slug=organization.slug,
        org_name=organization.name,
        is_closed=organization.is_closed,
        channel=channel.name,
        is_barred=row["status"] == UNSUBSCRIBED or all_groups_barred,
        **state_fields(row, names.get((organization.organization_id, row["group_no"]))),
    )
