"""What has expired or ended is deleted: links, sessions, attempts that count no more; after a restore all of them."""

from stoplist.db import Database, Transaction
from stoplist.db.query import load_queries
from stoplist.staff.lifetimes import ATTEMPT_MS, living

_QUERIES = load_queries(__package__)
_MAY_DELETE = _QUERIES["may_delete_ended"]
_ATTEMPTS = _QUERIES["delete_old_attempts"]
_LINKS = _QUERIES["delete_expired_links"]
_SESSIONS = _QUERIES["delete_ended_sessions"]
_EVERY_LINK = _QUERIES["delete_every_link"]
_EVERY_SESSION = _QUERIES["end_every_session"]

BITE_ROWS = 500


async def delete_ended(database: Database, now_ms: int) -> int:
    """Delete a bite of each kind; returns how many rows went.

    None while another process is at it, which will come to the rest.
    """

    async def bite(transaction: Transaction) -> int:
        row = await transaction.one(_MAY_DELETE)
        if row is None or not row["may"]:
            return 0
        return (
            await transaction.run(_LINKS, now_ms=now_ms, bite=BITE_ROWS)
            + await transaction.run(_SESSIONS, **living(now_ms), bite=BITE_ROWS)
            + await transaction.run(_ATTEMPTS, since_ms=now_ms - ATTEMPT_MS, before_last=BITE_ROWS - 1)
        )

    return await database.write(bite)


async def end_everything(transaction: Transaction) -> None:
    """Within a transaction: nobody is signed in, and no link is good; passwords are."""
    await transaction.run(_EVERY_LINK)
    await transaction.run(_EVERY_SESSION)
