"""Reads from a database what the checks of other things need to know: feeds, people, link keys and notices."""

from collections.abc import Sequence
from typing import NamedTuple

from stoplist.clock import Clock
from stoplist.db import schema
from stoplist.db.query import load_queries
from stoplist.db.schema import Deployment
from stoplist.maintenance.doctor.accounts import AccountFacts, AccountSource, read_accounts
from stoplist.maintenance.doctor.link_keys import LinkKeyFacts, read_link_keys
from stoplist.maintenance.doctor.notices import NoticeFailures, read_notices
from stoplist.secret_key import existing_secret_keys
from stoplist.settings import Settings

_HOLDS_FEEDS = load_queries(__package__)["holds_feeds"]
_FEEDS_SINCE, _PEOPLE_SINCE, _LINK_KEYS_SINCE, _NOTICES_SINCE = 2, 5, 11, 14


class Contents(NamedTuple):
    """The facts on accounts, link keys and notices: None or nothing if their tables are not there yet."""

    accounts: AccountFacts | None = None
    link_keys: LinkKeyFacts | None = None
    notices: Sequence[NoticeFailures] = ()


async def read_contents(source: AccountSource, deployment: Deployment | None, settings: Settings) -> Contents:
    """Return the contents of a database of accounts, which may have an old schema or none."""
    version = 0 if deployment is None else deployment.schema_version
    keys = existing_secret_keys(settings)
    return Contents(
        await read_accounts(source, keys) if version >= _PEOPLE_SINCE else None,
        await read_link_keys(source, keys) if version >= _LINK_KEYS_SINCE else None,
        await read_notices(source, Clock().now_ms()) if version >= _NOTICES_SINCE else (),
    )


async def holds_feeds(source: schema.RowSource, deployment: Deployment | None) -> bool:
    """Return whether the database has a feed: then cursors may have been issued for it."""
    has_table = deployment is not None and deployment.schema_version >= _FEEDS_SINCE
    return has_table and await source.one(_HOLDS_FEEDS) is not None
