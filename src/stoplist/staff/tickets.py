"""Tickets, which prove between the two steps of signing in that the password was correct.

A ticket is random, and only its hash is stored, so that neither a copy of the database nor the secret key makes one.
It ends after 5 minutes, with its use, and with the password. Source: docs/interface.md section D11.
"""

from stoplist import ids
from stoplist.db import Database, Transaction
from stoplist.db.query import load_queries
from stoplist.staff.store import Account, account_from_row

_QUERIES = load_queries(__package__)
_ADD = _QUERIES["add_ticket"]
_ACCOUNT = _QUERIES["account_of_ticket"]
_DELETE = _QUERIES["delete_tickets"]
_USE = _QUERIES["use_ticket"]

TICKET_MS = 300_000


async def add_ticket(transaction: Transaction, person_id: int, now_ms: int) -> str:
    """Return a new ticket of this person, within a transaction that holds the person's lock."""
    ticket = ids.new_secret(ids.SIGN_IN_TICKET)
    await transaction.run(_ADD, ticket_hash=ids.hash_secret(ticket), person_id=person_id, expires_ms=now_ms + TICKET_MS)
    return ticket


async def account_of_ticket(source: Database | Transaction, ticket: str, now_ms: int) -> Account | None:
    """Return the account of a valid ticket, or None for any other text."""
    if not ids.is_well_formed(ticket, ids.SIGN_IN_TICKET):
        return None
    return account_from_row(await source.one(_ACCOUNT, ticket_hash=ids.hash_secret(ticket), now_ms=now_ms))


async def use_ticket(transaction: Transaction, ticket: str) -> None:
    """Use the ticket up, within a transaction that holds the person's lock."""
    await transaction.run(_USE, ticket_hash=ids.hash_secret(ticket))


async def delete_tickets(transaction: Transaction, person_id: int) -> None:
    """Delete all tickets of the person, within a transaction that holds the person's lock."""
    await transaction.run(_DELETE, person_id=person_id)
