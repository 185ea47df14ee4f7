"""Invalidates what was issued before a restore, which takes the database back in time.

Cursors issued since the backup would skip changes that reuse numbers they have already seen. Tokens revoked since the
backup would be valid again, and so would ended sessions and used links. Notices may have been delivered since.
Source: docs/interface.md section D1, After a restore.
"""

from typing import NamedTuple

from stoplist.actor import Actor
from stoplist.audit import trail
from stoplist.clock import Clock
from stoplist.db import Database, Transaction
from stoplist.db.query import load_queries
from stoplist.oauth.credentials import revoke_everything
from stoplist.staff.cleanup import delete_links_and_sessions
from stoplist.unsubscribes.feed import renew_generations

_END_ALL_DELIVERIES = load_queries("stoplist.notices")["end_all_deliveries"]


class RestoreResult(NamedTuple):
    """The number of feeds with a new generation, and of credentials whose tokens were revoked."""

    feeds: int
    credentials: int


async def after_restore(actor: Actor, database: Database, clock: Clock) -> RestoreResult:
    """Invalidate every cursor, token, session and link issued so far, in one transaction. May be repeated."""
    actor.require_administrator()
    now_ms = clock.now_ms()

    async def renew(transaction: Transaction) -> RestoreResult:
        result = RestoreResult(await renew_generations(transaction), await revoke_everything(transaction))
        await delete_links_and_sessions(transaction)
        await transaction.run(_END_ALL_DELIVERIES, ended_ms=now_ms)
        await trail.record(transaction, actor, "database.restored", "database", at_ms=now_ms, **result._asdict())
        return result

    return await database.write(renew)
