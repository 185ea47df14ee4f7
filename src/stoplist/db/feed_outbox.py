"""The outbox of a feed: what its transactions have to say to the accounts, where these are in another database.

An entry is durable with the change that it is about, and is moved exactly once (stoplist.databases.moving).
Source: docs/interface.md section D1, Feeds apart.
"""

import secrets
from typing import Final

from stoplist.db import Transaction
from stoplist.db.query import json_text, load_queries

ADD_ENTRY = load_queries(__package__)["add_entry"]

AUDIT: Final = "audit"
NOTICE: Final = "notice"


async def add_entry(transaction: Transaction, kind: str, body: object, *, at_ms: int) -> None:
    """Keep an entry of that kind in the outbox of the transaction's feed. `body` is anything that msgspec encodes."""
    await transaction.run(
        ADD_ENTRY,
        feed_id=transaction.outbox_feed_id,
        entry_id=secrets.token_hex(16),
        kind=kind,
        body=json_text(body),
        added_ms=at_ms,
    )
