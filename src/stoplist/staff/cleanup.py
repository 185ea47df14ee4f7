"""Deletes expired links, invitations and tickets, ended sessions, old attempts; after a restore all but attempts."""

from stoplist.db import Database, Transaction
from stoplist.db.query import load_queries
from stoplist.staff.lifetimes import ATTEMPT_MS, INVITATION_MS, active_session_bounds

_QUERIES = load_queries(__package__)
_MAY_DELETE = _QUERIES["may_delete_ended"]
_ATTEMPTS = _QUERIES["delete_old_attempts"]
_LINKS = _QUERIES["delete_expired_links"]
_INVITATIONS = _QUERIES["delete_expired_invitations"]
_TICKETS = _QUERIES["delete_expired_tickets"]
_SESSIONS = _QUERIES["delete_ended_sessions"]
_EVERY_LINK = _QUERIES["delete_every_link"]
_EVERY_INVITATION = _QUERIES["delete_every_invitation"]
_EVERY_TICKET = _QUERIES["delete_every_ticket"]
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
            + await transaction.run(_INVITATIONS, since_ms=now_ms - INVITATION_MS, max_rows=BATCH_ROWS)
            + await transaction.run(_TICKETS, now_ms=now_ms, max_rows=BATCH_ROWS)
            + await transaction.run(_SESSIONS, **active_session_bounds(now_ms), max_rows=BATCH_ROWS)
            + await transaction.run(_ATTEMPTS, since_ms=now_ms - ATTEMPT_MS, before_last=BATCH_ROWS - 1)
        )

    return await database.write(delete_batch)


async def delete_links_and_sessions(transaction: Transaction) -> None:
    """Delete every link, invitation and ticket and end every session, within a transaction; passwords stay valid."""
    await transaction.run(_EVERY_LINK)
    await transaction.run(_EVERY_INVITATION)
    await transaction.run(_EVERY_TICKET)
    await transaction.run(_EVERY_SESSION)
