"""Invalidates what was issued before a restore, which takes the database back in time.

Cursors issued since the backup would skip changes that reuse numbers they have already seen. Tokens revoked since the
backup would be valid again, and so would ended sessions and used links. Notices may have been delivered since. Where
the feeds are apart, they may have records of organizations and groups that the accounts have lost.
Source: docs/interface.md section D1, After a restore and Feeds apart.
"""

from typing import Any, NamedTuple

from stoplist.actor import Actor
from stoplist.audit import trail
from stoplist.clock import Clock
from stoplist.databases.foreign_feeds import skip_used_numbers
from stoplist.db import ALL_FEEDS, Database, Transaction
from stoplist.db.query import load_queries
from stoplist.maintenance.lost_groups import recreate_lost_groups
from stoplist.oauth.credentials import revoke_everything
from stoplist.staff.cleanup import delete_links_and_sessions
from stoplist.unsubscribes.feed import renew_generations

_END_ALL_DELIVERIES = load_queries("stoplist.notices")["end_all_deliveries"]


class RestoreResult(NamedTuple):
    """The number of feeds with a new generation, of credentials whose tokens were revoked, and of recreated groups."""

    feeds: int
    credentials: int
    groups: int = 0


async def after_restore(actor: Actor, database: Database, clock: Clock) -> RestoreResult:
    """Invalidate every cursor, token, session and link issued so far. May be repeated.

    In one transaction. Where the feeds are apart, in one for them and one for the accounts, each with its audit entry;
    and first the groups of which there are records are created again, if the accounts have lost them.
    """
    actor.require_administrator()
    now_ms = clock.now_ms()

    async def record(transaction: Transaction, **counts: Any) -> None:
        await trail.record(transaction, actor, "database.restored", "database", at_ms=now_ms, **counts)

    async def renew(transaction: Transaction) -> int:
        feeds = await renew_generations(transaction)
        await record(transaction, feeds=feeds)
        return feeds

    async def revoke(transaction: Transaction) -> int:
        credentials = await _revoke(transaction, now_ms)
        await record(transaction, credentials=credentials)
        return credentials

    async def renew_and_revoke(transaction: Transaction) -> RestoreResult:
        result = RestoreResult(await renew_generations(transaction), await _revoke(transaction, now_ms))
        await record(transaction, feeds=result.feeds, credentials=result.credentials)
        return result

    if not database.feeds_are_apart:
        return await database.write(renew_and_revoke)
    await skip_used_numbers(database)
    groups = await recreate_lost_groups(actor, database, clock)
    return RestoreResult(await database.write(renew, feed_id=ALL_FEEDS), await database.write(revoke), groups)


async def _revoke(transaction: Transaction, now_ms: int) -> int:
    """End all tokens, sessions, links and deliveries; return the number of credentials whose tokens were revoked."""
    credentials = await revoke_everything(transaction)
    await delete_links_and_sessions(transaction)
    await transaction.run(_END_ALL_DELIVERIES, ended_ms=now_ms)
    return credentials
