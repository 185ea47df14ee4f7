"""Makes a deployment and its copy a pair, or a pair one deployment again. Nothing is lost, whenever this ends.

The database of the accounts stays locked until the other is durable, and is itself changed last, at once: until then it
is a whole deployment as before, and no program uses the two as a pair. Rows are deleted in the transaction that says to
whom the database belongs from then on. Source: docs/interface.md section D1, Feeds apart.
"""

import secrets
from typing import NamedTuple

from stoplist import __version__
from stoplist.actor import Actor
from stoplist.audit import trail
from stoplist.clock import Clock
from stoplist.databases import pair
from stoplist.databases.foreign_feeds import complete_owners, complete_uids
from stoplist.databases.moving import move_entries
from stoplist.databases.opening import check_databases, open_databases
from stoplist.databases.pair import ACCOUNTS, ACCOUNTS_URL, FEEDS, FEEDS_URL, Place
from stoplist.db.opening import sqlite_path
from stoplist.db.query import load_queries
from stoplist.db.schema import later_release
from stoplist.db.sharding import FEED_TABLES
from stoplist.errors import Refused, SettingsError
from stoplist.maintenance.copy.connection import LongTransaction
from stoplist.maintenance.split.exclusive import (
    ExclusiveDatabase,
    Report,
    listed,
    open_exclusive,
    require_same_rows,
)
from stoplist.settings import Settings

_QUERIES = load_queries(__package__)
_ANY_ENTRY = _QUERIES["any_entry"]
_FORGET_READING_KEY = _QUERIES["forget_reading_key"]

_OUTBOX = "feed_outbox"


class SplitResult(NamedTuple):
    """The rows about feeds, which are now in another database; None if they were there before."""

    rows: int | None


async def split_feeds(actor: Actor, clock: Clock, settings: Settings, report: Report) -> SplitResult:
    """Make the database of the accounts and its copy a pair, and delete from each what belongs to the other.

    May be repeated. Raise Refused or SettingsError, with the remedy, if they do not hold the same or anything else is
    connected; then the deployment is as before.
    """
    actor.require_administrator()
    accounts_url, feeds_url = _urls(settings)
    async with open_exclusive(accounts_url, ACCOUNTS_URL) as accounts, open_exclusive(feeds_url, FEEDS_URL) as feeds:
        if not await _prepare(accounts, feeds):
            return SplitResult(None)
        async with accounts.locked() as of_accounts:
            async with feeds.locked() as of_feeds:
                own, other = await _places(accounts, of_accounts, feeds, of_feeds)
                _require_copy(own, other)
                rows = await _take_feeds(of_accounts, of_feeds, own, other, report)
            # The feeds are durable in their database.
            await _keep_accounts_alone(of_accounts, own)
            await trail.record(of_accounts, actor, "database.split", "database", at_ms=clock.now_ms(), rows=rows)
    return SplitResult(rows)


async def join_feeds(actor: Actor, clock: Clock, settings: Settings, report: Report) -> SplitResult:
    """Make the database of the accounts a whole deployment, once the rows of the feeds were copied back into it.

    May be repeated. The database of the feeds is left as it is, of no use to any program. Errors as of `split_feeds`.
    """
    actor.require_administrator()
    accounts_url, feeds_url = _urls(settings)
    await _skip_used_numbers(accounts_url)
    await _empty_outbox(settings)
    async with (
        open_exclusive(accounts_url, ACCOUNTS_URL) as accounts,
        open_exclusive(feeds_url, FEEDS_URL) as feeds,
        accounts.locked() as of_accounts,
        feeds.locked() as of_feeds,
    ):
        own, other = await _places(accounts, of_accounts, feeds, of_feeds)
        pair.require_same(own, other)
        if await of_feeds.one(_ANY_ENTRY) is not None:
            raise Refused(
                "Entries for the audit, or notices, still wait beside the feeds, and would be lost. Nothing was "
                "changed. Run this again; if it does not help, `stoplist doctor` says why."
            )
        tables = [table for table in FEED_TABLES if table != _OUTBOX]
        rows = sum((await require_same_rows(of_accounts, of_feeds, tables, report)).values())
        await of_accounts.execute(f"TRUNCATE {listed([_OUTBOX])}")
        await pair.leave_pair(of_accounts, own)
        await trail.record(of_accounts, actor, "database.joined", "database", at_ms=clock.now_ms(), rows=rows)
    return SplitResult(rows)


def _urls(settings: Settings) -> tuple[str, str]:
    if sqlite_path(settings.database_url) is not None:
        raise SettingsError(
            "STOPLIST_DATABASE_URL names no PostgreSQL database. To move a SQLite file to two databases, use `stoplist "
            "copy --to … --to-feeds …`."
        )
    if settings.feeds_url is None:
        raise SettingsError("Set STOPLIST_FEEDS_URL, too: it names the database of the feeds.")
    return settings.database_url, settings.feeds_url


async def _prepare(accounts: ExclusiveDatabase, feeds: ExclusiveDatabase) -> bool:
    """Keep the id of the pair beside the accounts, by which a later attempt knows the feeds that this one leaves.

    Return False if the two are a pair already; what lies in the wrong one, such as a copy to join them, is deleted.
    """
    async with accounts.transaction() as of_accounts, feeds.transaction() as of_feeds:
        own, other = await _places(accounts, of_accounts, feeds, of_feeds)
        if own.pair_part is not None:
            pair.require_same(own, other)
            await _keep_accounts_alone(of_accounts, own)
            await _keep_feeds_alone(of_feeds, own)
            return False
        await complete_uids(of_accounts)
        await pair.keep_pair_id(of_accounts, own, own.pair_id or secrets.token_hex(16))
        return True


def _require_copy(own: Place, other: Place) -> None:
    """Raise unless the first is a whole deployment, and the second a copy of it or what an attempt made of the copy."""
    if own.pair_part is not None:
        raise Refused("Another `stoplist feeds split` was faster: run this again.")
    if other.pair_part is not None and (other.pair_part, other.pair_id) != (FEEDS, own.pair_id):
        raise SettingsError("STOPLIST_FEEDS_URL names a database of another deployment: name the copy of this one.")


async def _places(
    accounts: ExclusiveDatabase, of_accounts: LongTransaction, feeds: ExclusiveDatabase, of_feeds: LongTransaction
) -> tuple[Place, Place]:
    environment, own = await accounts.check(of_accounts, environment=None)
    _, other = await feeds.check(of_feeds, environment=environment)
    return own, other


async def _take_feeds(
    accounts: LongTransaction, feeds: LongTransaction, own: Place, other: Place, report: Report
) -> int:
    """Leave nothing but the feeds in their database, if it is certain that they are all there; return their rows."""
    names = [table.name for table in await feeds.tables()]
    # An attempt that ended in between has deleted the copy of the accounts.
    rows = await require_same_rows(accounts, feeds, names if other.pair_part is None else FEED_TABLES, report)
    await complete_owners(accounts, feeds, feeds.run)
    await _keep_feeds_alone(feeds, own)
    return sum(rows[table] for table in FEED_TABLES)


async def _keep_accounts_alone(accounts: LongTransaction, own: Place) -> None:
    await accounts.execute(f"TRUNCATE {listed(FEED_TABLES)}")
    await _assign_part(accounts, own, ACCOUNTS)


async def _keep_feeds_alone(feeds: LongTransaction, own: Place) -> None:
    names = [table.name for table in await feeds.tables() if table.name not in FEED_TABLES]
    await feeds.execute(f"TRUNCATE {listed(names)}")
    await feeds.run(_FORGET_READING_KEY)
    await _assign_part(feeds, own, FEEDS)


async def _assign_part(change: LongTransaction, own: Place, part: str) -> None:
    if own.pair_id is None:
        raise RuntimeError("the accounts have no id of a pair")
    oldest = later_release(own.oldest_program, __version__)
    await pair.assign_part(change, pair_id=own.pair_id, pair_part=part, oldest_program=oldest)


async def _skip_used_numbers(accounts_url: str) -> None:
    """Let identities go on after the numbers in use: a dump of more than the feeds has set them back."""
    async with open_exclusive(accounts_url, ACCOUNTS_URL) as accounts, accounts.transaction() as transaction:
        await accounts.check(transaction, environment=None)
        await transaction.advance_identities(await transaction.tables())


async def _empty_outbox(settings: Settings) -> None:
    """Move what the feeds have left for the accounts."""
    database = await open_databases(settings, create=False, pool_size=2)
    try:
        await check_databases(database, environment=None)
        await move_entries(database)
    finally:
        await database.close()
