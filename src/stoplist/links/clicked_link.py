"""Finds out whom a link is about: its key, organization, group and address.

An unclear link opts out of more, never of less. Source: docs/interface.md section D15; what is read, and how often:
docs/decisions/0026-clicks.md.
"""

from typing import NamedTuple

from stoplist_addresses import AddressError
from stoplist_addresses.link_tokens import LinkContent, LinkKey, SealedContent, parse_content, read_token

from stoplist import ids
from stoplist.db import Database
from stoplist.db.query import load_queries
from stoplist.errors import StoreUnavailable
from stoplist.links.key_secrets import readable_link_key
from stoplist.links.model import LOST
from stoplist.unsubscribes.channel import CHANNELS, Channel, feed_id
from stoplist.unsubscribes.model import OptOutStores

_LINK_KEY = load_queries(__package__)["link_key_and_group"]

_MAX_KNOWN_KEYS = 1024


class LinkOrganization(NamedTuple):
    """The organization of a link, as the page shows it."""

    organization_id: int
    slug: str
    name: str
    contact_line: str | None
    accent_colour: str | None


class LinkGroup(NamedTuple):
    """The group that a link names."""

    number: int
    group_id: str
    name: str


class ClickedLink(NamedTuple):
    """A link that works: `address` is canonical. Without a group it is for all groups."""

    link_key_id: str
    organization: LinkOrganization
    channel: Channel
    group: LinkGroup | None
    address: str
    source: str | None

    @property
    def feed_id(self) -> int:
        return feed_id(self.organization.organization_id, self.channel)

    def __repr__(self) -> str:
        return f"ClickedLink({self.link_key_id})"


class UnknownLink(NamedTuple):
    """A link that no key of this deployment made."""


class EndedLink(NamedTuple):
    """A link whose key was revoked or forgotten. `person` tells people apart; None if the link cannot be read."""

    link_key_id: str
    organization: LinkOrganization
    person: bytes | None


class UnusableLink(NamedTuple):
    """A link without an acceptable address or channel."""

    link_key_id: str
    organization: LinkOrganization


AnyLink = ClickedLink | UnknownLink | EndedLink | UnusableLink


class _KeyRow(NamedTuple):
    """A link key with its organization, and the group of the link if it is one of that organization."""

    secret: str
    revoked_ms: int | None
    organization_id: int
    slug: str
    name: str
    contact_line: str | None
    accent_colour: str | None
    group_no: int | None
    group_id: str | None
    group_name: str | None


class _KnownKey(NamedTuple):
    """A link key that was decrypted, and the stored text that it was decrypted from."""

    secret_keys: tuple[str, ...]
    stored: str
    key: LinkKey


_known_keys: dict[str, _KnownKey] = {}


async def find_link(stores: OptOutStores, token: str) -> AnyLink:
    """Return what the token of a link stands for.

    StoreUnavailable if the database is unavailable, or if this process cannot read the link key.
    """
    sealed = read_token(token)
    if sealed is None:
        return UnknownLink()
    known = _known_keys.get(sealed.key_id)
    # Opened with the key as it was last stored, so that one statement can read the group, too. The loop runs again only
    # if that key was not known, or was encrypted again meanwhile.
    while True:
        opened = None if known is None else known.key.unseal(sealed)
        content = None if opened is None else parse_content(opened)
        row = await _find_row(stores.database, sealed, content)
        if row is None:
            return UnknownLink()
        organization = LinkOrganization(*row[2:7])
        if row.secret == LOST:
            return EndedLink(sealed.key_id, organization, None)
        if known is not None and known.stored == row.secret and known.secret_keys == stores.secret_keys:
            break
        known = _decrypt(stores.secret_keys, sealed.key_id, row.secret)
    if opened is None:
        return UnknownLink()
    if row.revoked_ms is not None:
        return EndedLink(sealed.key_id, organization, _person(content))
    return _clicked(sealed.key_id, organization, _group(row), content)


async def _find_row(database: Database, sealed: SealedContent, content: LinkContent | None) -> _KeyRow | None:
    group_id = None if content is None else content.group_id
    if group_id is not None and not ids.could_be_id(group_id, ids.GROUP_ID):
        group_id = None  # not every text can be looked up
    rows = await database.rows(_LINK_KEY, group_id, sealed.key_id)
    return _KeyRow(*rows[0]) if rows else None


def _decrypt(secret_keys: tuple[str, ...], link_key_id: str, stored: str) -> _KnownKey:
    """Return the link key, and remember it. Its state is never remembered."""
    link_key = readable_link_key(secret_keys, link_key_id, stored)
    if link_key is None:
        raise StoreUnavailable("A link key cannot be read with the secret keys of this process.", retry_after_s=60)
    if len(_known_keys) >= _MAX_KNOWN_KEYS:
        _known_keys.clear()
    known = _known_keys[link_key_id] = _KnownKey(secret_keys, stored, LinkKey(link_key))
    return known


def _group(row: _KeyRow) -> LinkGroup | None:
    """Return the group of the link. A link that names no group of its organization is for all groups."""
    if row.group_no is None or row.group_id is None or row.group_name is None:
        return None
    return LinkGroup(row.group_no, row.group_id, row.group_name)


def _clicked(
    link_key_id: str,
    organization: LinkOrganization,
    group: LinkGroup | None,
    content: LinkContent | None,
) -> ClickedLink | UnusableLink:
    channel = None if content is None else CHANNELS.get(content.channel)
    if content is None or channel is None:
        return UnusableLink(link_key_id, organization)
    try:
        address = channel.canonical(content.address)
    except AddressError:
        return UnusableLink(link_key_id, organization)
    source = content.source and content.source.replace("\0", " ").encode("utf-8", "replace").decode()
    return ClickedLink(link_key_id, organization, channel, group, address, source)


def _person(content: LinkContent | None) -> bytes | None:
    return None if content is None else f"{content.channel}\0{content.address}".encode("utf-8", "replace")
