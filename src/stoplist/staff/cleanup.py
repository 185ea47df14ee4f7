"""Deletes expired links, ended sessions and old sign-in attempts; after a restore, all links and sessions."""

from stoplist.db import Database, Transaction
from stoplist.db.query import load_queries
from stoplist.staff.lifetimes import ATTEMPT_MS, active_session_bounds

_QUERIES = load_queries(__package__)
_MAY_DELETE = _QUERIES["may_delete_ended"]
_ATTEMPTS = _QUERIES["delete_old_attempts"]
_LINKS = _QUERIES["delete_expired_links"]
_SESSIONS = _QUERIES["delete_ended_sessions"]
_EVERY_LINK = _QUERIES["delete_every_link"]
_EVERY_SESSION = _QUERIES["end_every_session"]

BATCH_ROWS = 500


async def delete_ended(database: Database, now_ms: int) -> int:
    """Delete a batch of each kind, and return the number of rows deleted.

    Returns 0 while another process is deleting; that process deletes the rest.
    """

    async def delete_batch(transaction: Transaction) -> int:
        row = await transaction.one(_MAY_DELETE)
        if row is None or not row["may"]:
            return 0
        return (
            await transaction.run(_LINKS, now_ms=now_ms, max_rows=BATCH_ROWS)
            + await transaction.run(_SESSIONS, **active_session_bounds(now_ms), max_rows=BATCH_ROWS)
            + await transaction.run(_ATTEMPTS, since_ms=now_ms - ATTEMPT_MS, before_last=BATCH_ROWS - 1)
        )

    return await database.write(delete_batch)


async def delete_links_and_sessions(transaction: Transaction) -> None:
    """Delete every link and end every session, within a transaction; passwords stay valid."""
    await transaction.run(_EVERY_LINK)
    await transaction.run(_EVERY_SESSION)
