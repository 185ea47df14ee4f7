"""The options with which the file of an import is read. Source: docs/interface.md section D12."""

import msgspec
from stoplist_addresses.lists import ListOptions

from stoplist.db import Database
from stoplist.lists.imports.model import ImportOptions
from stoplist.unsubscribes.channel import Channel
from stoplist.unsubscribes.feed import find_feed_by_id
from stoplist.unsubscribes.model import OPT_OUT_REASONS


async def list_options(database: Database, number: int, channel: Channel, options: ImportOptions) -> ListOptions:
    """Return the options for the reader of lists, of an import into the feed of that number.

    They have the fingerprint of its digest key, so that erased persons come back into the feed that they came from.
    """
    feed = await find_feed_by_id(database, number)
    return ListOptions(
        channel=channel.name,
        reasons=frozenset(OPT_OUT_REASONS),
        key_fingerprint=None if feed is None else feed.key_fingerprint,
        **msgspec.structs.asdict(options),
    )
