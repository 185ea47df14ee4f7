"""Notes in the audit that somebody read a person's data: once for each reader, address and hour, never the address.

Source: docs/interface.md section D13, Access.
"""

import hmac
from collections.abc import Iterable

from stoplist.actor import Actor
from stoplist.audit import trail
from stoplist.db import Transaction
from stoplist.db.query import load_queries
from stoplist.unsubscribes.erased import key_bytes, new_digest_key
from stoplist.unsubscribes.model import OptOutStores

_QUERIES = load_queries(__package__)
_ADD = _QUERIES["add_read"]
_FORGET = _QUERIES["forget_reads"]
_KEY = _QUERIES["reading_key"]
_MAKE_KEY = _QUERIES["make_reading_key"]
_WAS_READ = _QUERIES["was_read"]

READ_ACTION = "person.read"
_SHOWN_DIGITS = 32
_HOUR_MS = 60 * 60 * 1000


async def note_read(actor: Actor, stores: OptOutStores, address: str, *, organizations: Iterable[str]) -> None:
    """Note that the actor has read what is stored about a canonical address; only people and commands are noted.

    `organizations` are the slugs of those whose records were read.
    """
    if actor.kind not in ("person", "command"):
        return
    database, now_ms = stores.database, stores.clock.now_ms()
    key = await database.one(_KEY)
    if key is None or key["reading_key"] is None:
        await database.write_one(_MAKE_KEY, reading_key=new_digest_key())
        key = await database.one(_KEY)
    if key is None:
        raise RuntimeError("the deployment's row is gone")
    digest = hmac.digest(key_bytes(key["reading_key"]), address.encode(), "sha256").hex()[:_SHOWN_DIGITS]
    read = {"actor_id": f"{actor.kind}:{actor.id}", "digest": digest, "hour": now_ms // _HOUR_MS}
    if await database.one(_WAS_READ, **read) is not None:
        return

    async def note(transaction: Transaction) -> None:
        if not await transaction.run(_ADD, **read):
            return
        await transaction.run(_FORGET, hour=read["hour"])
        await trail.record(transaction, actor, READ_ACTION, digest, at_ms=now_ms, organizations=organizations)

    await database.write(note)
