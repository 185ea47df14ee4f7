"""The pair of databases of a deployment whose feeds are apart: each knows its part, and both the same random id.

So a server that was given one of them alone, or two that do not belong together, does not start.
Source: docs/interface.md section D1, Feeds apart.
"""

import secrets
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

from stoplist import __version__
from stoplist.db import Database, SchemaChange, Transaction, schema
from stoplist.db.query import Query, load_queries
from stoplist.db.remedies import ACCOUNTS_ARE_APART, FEEDS_ARE_APART
from stoplist.db.schema import later_release
from stoplist.db.split import SplitDatabase
from stoplist.errors import SettingsError

_QUERIES = load_queries(__package__)
_ANY_FEED = _QUERIES["any_feed"]
_ANY_ORGANIZATION = _QUERIES["any_organization"]
_PAIR = _QUERIES["pair"]
_SET_PAIR = _QUERIES["set_pair"]

ACCOUNTS: Final = "accounts"
FEEDS: Final = "feeds"
ACCOUNTS_URL: Final = "STOPLIST_DATABASE_URL"
FEEDS_URL: Final = "STOPLIST_FEEDS_URL"
SINCE: Final = 20
"""The first schema that knows pairs."""

_FEEDS_SINCE = 2

# A program that was started before takes the database for a whole deployment until it ends. It must not store opt-outs
# where nobody looks for them, nor create organizations beside the feeds of others.
_ACCEPT_FEEDS: Final = f"ALTER TABLE feeds DROP CONSTRAINT IF EXISTS {FEEDS_ARE_APART};"
_REFUSE_THE_OTHERS: Final = {
    ACCOUNTS: (f"{_ACCEPT_FEEDS}\nALTER TABLE feeds ADD CONSTRAINT {FEEDS_ARE_APART} CHECK (false);"),
    FEEDS: (
        f"ALTER TABLE organizations DROP CONSTRAINT IF EXISTS {ACCOUNTS_ARE_APART};\n"
        f"ALTER TABLE organizations ADD CONSTRAINT {ACCOUNTS_ARE_APART} CHECK (false);"
    ),
}


class SchemaWriter(Protocol):
    """The part of a migration that changes tables and rows."""

    async def run(self, query: Query, **values: Any) -> int: ...
    async def script(self, text: str) -> None: ...


class Place(NamedTuple):
    """The place of a database in a pair; `pair_part` is None if it holds a whole deployment.

    That has a `pair_id` if it is about to become one of a pair by `stoplist feeds split`.
    """

    pair_id: str | None
    pair_part: str | None
    oldest_program: str


async def require_joinable(database: SplitDatabase) -> tuple[Place, Place]:
    """Return the places of two databases that are a pair, or can become one. Nothing is changed.

    Either may be empty, or have an older schema. SettingsError if they must not be used together.
    """
    accounts, feeds = await place_of(database.accounts), await place_of(database.feeds)
    if accounts.pair_part is not None or await _has(database.accounts, _ANY_FEED):
        require_same(accounts, feeds)
        return accounts, feeds
    is_of_another = feeds.pair_part == ACCOUNTS or (feeds.pair_part == FEEDS and feeds.pair_id != accounts.pair_id)
    if is_of_another or (feeds.pair_part is None and await _has(database.feeds, _ANY_ORGANIZATION)):
        raise SettingsError("STOPLIST_FEEDS_URL names the database of another deployment: it needs one of its own.")
    if await _has(database.feeds, _ANY_FEED):
        raise SettingsError(
            "The database that STOPLIST_FEEDS_URL names holds feeds already, and the one of STOPLIST_DATABASE_URL does "
            "not know them. Name the database of their accounts, or an empty one for the feeds."
        )
    return accounts, feeds


async def join(database: SplitDatabase) -> None:
    """Make the two databases a pair, if both are new. May be repeated; goes on where an earlier attempt ended.

    From then on no program may run that knows no pairs. For databases with the schema of this release. SettingsError if
    they cannot be a pair: then nothing is changed.
    """
    accounts, feeds = await require_joinable(database)
    if accounts.pair_part is not None:
        return
    # Noted beside the accounts first: if this ends in between, the next attempt knows the feeds by it.
    pair_id = await database.accounts.under_schema_lock(_note_pair_id)
    now = await place_of(database.feeds)
    if now.pair_part is None and now.pair_id == pair_id:
        await database.accounts.write_one(_SET_PAIR, **accounts._asdict())
        raise SettingsError(
            "STOPLIST_DATABASE_URL and STOPLIST_FEEDS_URL name the same database. Name another one for the feeds, or "
            "unset STOPLIST_FEEDS_URL to keep them together."
        )
    oldest = later_release(feeds.oldest_program, __version__)
    for one, part in ((database.feeds, FEEDS), (database.accounts, ACCOUNTS)):
        assign = partial(assign_part, pair_id=pair_id, pair_part=part, oldest_program=oldest)
        await one.under_schema_lock(assign)


async def require_pair(database: Database) -> None:
    """Raise SettingsError unless this is a whole deployment: one database, or two that belong together."""
    if isinstance(database, SplitDatabase):
        require_same(await place_of(database.accounts), await place_of(database.feeds))
        return
    place = await place_of(database)
    if place.pair_part == ACCOUNTS:
        raise SettingsError(
            "The feeds of this deployment are in a database of their own: set STOPLIST_FEEDS_URL to it, as everywhere."
        )
    if place.pair_part == FEEDS:
        raise SettingsError(
            "STOPLIST_DATABASE_URL names the database of a deployment's feeds: set STOPLIST_FEEDS_URL to it, and "
            "STOPLIST_DATABASE_URL to the database of its accounts."
        )


async def place_of(source: schema.RowSource) -> Place:
    """Return the place of a database; one that is empty, or has a schema that knows no pairs, is in none."""
    deployment = await schema.read(source)
    row = await source.one(_PAIR) if deployment is not None and deployment.schema_version >= SINCE else None
    if row is None:
        return Place(None, None, "0.0.0" if deployment is None else deployment.oldest_program)
    return Place(row["pair_id"], row["pair_part"], row["oldest_program"])


async def assign_part(change: SchemaWriter, *, pair_id: str, pair_part: str, oldest_program: str) -> None:
    """Make a database one part of a pair: ACCOUNTS or FEEDS. It must be empty of what belongs to the other part."""
    await change.script(_REFUSE_THE_OTHERS[pair_part])
    await change.run(_SET_PAIR, pair_id=pair_id, pair_part=pair_part, oldest_program=oldest_program)


async def keep_pair_id(transaction: Transaction, place: Place, pair_id: str) -> None:
    """Note that a whole deployment is about to become one of this pair."""
    await transaction.run(_SET_PAIR, pair_id=pair_id, pair_part=None, oldest_program=place.oldest_program)


async def _note_pair_id(change: SchemaChange) -> str:
    """Return the id of the pair that the accounts belong to, or are about to; note a new one if there is none.

    Of two attempts at once, both make the pair of the one that was first.
    """
    place = await place_of(change)
    if place.pair_id is not None:
        return place.pair_id
    pair_id = secrets.token_hex(16)
    await change.run(_SET_PAIR, **place._replace(pair_id=pair_id)._asdict())
    return pair_id


async def leave_pair(change: SchemaWriter, place: Place) -> None:
    """Make the database of the accounts a whole deployment."""
    await change.script(_ACCEPT_FEEDS)
    await change.run(_SET_PAIR, pair_id=None, pair_part=None, oldest_program=place.oldest_program)


def require_same(accounts: Place, feeds: Place) -> None:
    """Raise SettingsError unless these are the places of the two databases of a pair."""
    if (accounts.pair_part, feeds.pair_part) == (FEEDS, ACCOUNTS):
        raise SettingsError("STOPLIST_DATABASE_URL and STOPLIST_FEEDS_URL are exchanged: name each where it belongs.")
    if accounts.pair_part != ACCOUNTS:
        raise SettingsError(
            "STOPLIST_FEEDS_URL is set, but the database of STOPLIST_DATABASE_URL holds the feeds itself. Unset it; or "
            "give them a database of their own with `stoplist feeds split`. (Two new databases become a pair by "
            "`stoplist migrate`.)"
        )
    if feeds.pair_part != FEEDS or accounts.pair_id != feeds.pair_id:
        raise SettingsError(
            "STOPLIST_DATABASE_URL and STOPLIST_FEEDS_URL name databases that do not belong together: feeds would be "
            "read as those of other organizations. Name the two that `stoplist migrate` or `stoplist copy` made a pair."
        )


async def _has(database: Database, any_row: Query) -> bool:
    """Return whether the database has any row of what `any_row` is about, in whatever schema."""
    deployment = await schema.read(database)
    return (
        deployment is not None and deployment.schema_version >= _FEEDS_SINCE and await database.one(any_row) is not None
    )
