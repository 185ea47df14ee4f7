"""What has to follow a restore: the database has gone back in time, and nobody may go on as if it had not.

Cursors given out since the backup would skip what is written anew under the numbers they have seen; tokens revoked
since would live again, and so would sessions that were ended and links that were used.
Source: docs/interface.md section D1, After a restore.
"""

from typing import NamedTuple

from stoplist.actor import Actor
from stoplist.audit import trail
from stoplist.clock import Clock
from stoplist.db import Database, Transaction
from stoplist.oauth.credentials import revoke_everything
from stoplist.staff.cleanup import delete_links_and_sessions
from stoplist.unsubscribes.feed import renew_generations


class Restored(NamedTuple):
    """How many feeds have a new generation, and of how many credentials every token was revoked."""

    feeds: int
    credentials: int


async def after_restore(actor: Actor, database: Database, clock: Clock) -> Restored:
    """Every cursor, token, session and link given out before is refused from now on; in one step, and repeatable."""
    actor.require_administrator()
    now_ms = clock.now_ms()

    async def renew(transaction: Transaction) -> Restored:
        done = Restored(await renew_generations(transaction), await revoke_everything(transaction))
        await delete_links_and_sessions(transaction)
        await trail.record(transaction, actor, "database.restored", "database", at_ms=now_ms, **done._asdict())
        return done

    return await database.write(renew)
