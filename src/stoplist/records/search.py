"""Search for addresses in every organization and channel that the actor may see.

A complaint names an address, not an organization. Source: docs/interface.md sections D5, D7 and D11.
"""

from collections.abc import Mapping, Sequence

import msgspec

from stoplist.actor import Actor
from stoplist.db import Database, Row
from stoplist.db.query import json_text, load_queries
from stoplist.errors import Refused
from stoplist.organizations.model import Organization
from stoplist.organizations.organizations import list_organizations
from stoplist.organizations.target import ALL_GROUPS, GroupName, group_names, group_of
from stoplist.records.model import RecordState, state_fields
from stoplist.records.search_terms import SearchTerm, UnreadTerm, read_term, split_terms
from stoplist.slicing import in_slices, yield_to_loop
from stoplist.unsubscribes.channel import Channel, feed_id
from stoplist.unsubscribes.erased import erased_form, key_bytes
from stoplist.unsubscribes.model import UNSUBSCRIBED

_QUERIES = load_queries(__package__)
_DIGEST_KEYS = _QUERIES["digest_keys_of"]
_ERASED_EVERYWHERE = _QUERIES["erased_everywhere"]
_EVERYWHERE = _QUERIES["records_everywhere"]

MAX_FOUND = 1_000
_FEEDS_AT_ONCE = 500


class FoundRecord(RecordState, frozen=True, kw_only=True):
    """The present state that one organization stores for the address and a group, or for all groups.

    `is_barred`: nothing may be sent, because of this record or the all-groups record.
    """

    org_slug: str
    org_name: str
    is_closed: bool
    channel: str
    is_barred: bool


class FoundAddress(msgspec.Struct, frozen=True, kw_only=True):
    """Every record of an address by organization, channel and group (the all-groups record first).

    `channels` are the names of those searched.
    """

    canonical: str
    channels: tuple[str, ...]
    records: list[FoundRecord]


class SearchResult(msgspec.Struct, frozen=True, kw_only=True):
    """The addresses in the order in which they were typed, and what was typed but is not an address.

    `organizations` is the number of organizations searched. With `is_cut` there are more records than the MAX_FOUND
    shown, and the addresses in `unsearched` were not searched.
    """

    addresses: list[FoundAddress]
    unread: list[UnreadTerm]
    unsearched: list[str]
    organizations: int
    is_cut: bool


async def search(
    actor: Actor, database: Database, text: str, *, country: str = "", org_slug: str | None = None
) -> SearchResult:
    """Return every record of these addresses that the actor may see, closed organizations and retired groups included.

    `text` holds one address or several, in any spelling. With `org_slug`, only records of that organization. Refused as
    for `split_terms`, and if it holds no address.
    """
    terms, unread = await _read_terms(text, country)
    visible = await list_organizations(actor, database)
    organizations = [one for one in visible if org_slug in (None, one.slug)]
    addresses: list[FoundAddress] = []
    left, is_cut = MAX_FOUND, False
    for term in terms:
        feeds = {
            feed_id(organization.organization_id, channel): (organization, channel)
            for organization in organizations
            for channel in term.channels
        }
        rows = await _rows(database, list(feeds), term.canonical, most=left)
        is_cut = len(rows) > left
        if not is_cut or left:
            addresses.append(await _found(database, term, feeds, rows[:left]))
        if is_cut:
            break
        left -= len(rows)
        await yield_to_loop()
    return SearchResult(
        addresses=addresses,
        unread=unread,
        unsearched=[term.canonical for term in terms[len(addresses) :]],
        organizations=len(organizations),
        is_cut=is_cut,
    )


async def _read_terms(text: str, country: str) -> tuple[list[SearchTerm], list[UnreadTerm]]:
    """Return each address once, in the order of the text, and the terms that are not addresses."""
    terms: dict[str, SearchTerm] = {}
    unread: list[UnreadTerm] = []
    async for (typed,) in in_slices(split_terms(text, country=country), check_every=1):
        try:
            term = read_term(typed, country=country)
            terms.setdefault(term.canonical, term)
        except Refused as refusal:
            unread.append(UnreadTerm(typed=typed, problem=refusal.text))
    if not terms:
        raise Refused(unread[0].problem, field="address")
    return list(terms.values()), unread


async def _found(
    database: Database,
    term: SearchTerm,
    feeds: Mapping[int, tuple[Organization, Channel]],
    rows: Sequence[Row],
) -> FoundAddress:
    names = await group_names(database, {feeds[row["feed_id"]][0].organization_id for row in rows})
    feeds_with_all_barred = {
        row["feed_id"] for row in rows if row["group_no"] == ALL_GROUPS and row["status"] == UNSUBSCRIBED
    }
    return FoundAddress(
        canonical=term.canonical,
        channels=tuple(channel.name for channel in term.channels),
        records=[
            _record(row, *feeds[row["feed_id"]], names, all_groups_barred=row["feed_id"] in feeds_with_all_barred)
            for row in rows
        ],
    )


async def _rows(database: Database, feeds: Sequence[int], address: str, *, most: int) -> list[Row]:
    """Return the rows in the order of `feeds`, by group within each; more than `most` only if there are more."""
    feed_order = {feed: at for at, feed in enumerate(feeds)}
    rows: list[Row] = []
    for at in range(0, len(feeds), _FEEDS_AT_ONCE):
        if at:
            await yield_to_loop()
        feed_ids = json_text(feeds[at : at + _FEEDS_AT_ONCE])
        found = await database.all(_EVERYWHERE, feed_ids=feed_ids, address=address)
        if forms := await _erased_forms(database, feed_ids, address):
            found += await database.all(_ERASED_EVERYWHERE, forms=json_text(forms))
        rows += sorted(found, key=lambda row: (feed_order[row["feed_id"]], row["group_no"]))
        if len(rows) > most:
            break
    return rows


async def _erased_forms(database: Database, feed_ids: str, address: str) -> list[tuple[int, str]]:
    """Return the form that the address has in each of the feeds that have had erased records."""
    rows = await database.all(_DIGEST_KEYS, feed_ids=feed_ids)
    return [(row["feed_id"], erased_form(key_bytes(row["digest_key"]), address)) for row in rows]


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
        **state_fields(row, group_of(names, organization.organization_id, row["group_no"])),
    )
