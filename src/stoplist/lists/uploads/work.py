"""The work of servers on imports: requested by people, done by any process of any host, under a lease.

Source: docs/interface.md section D12, On the pages; docs/decisions/0031.
"""

import secrets
from typing import Any, NamedTuple

import msgspec

from stoplist.actor import Actor
from stoplist.clock import Clock
from stoplist.db import Database, Row, Transaction
from stoplist.db.query import json_text, load_queries
from stoplist.lists.imports.model import LEASE_MS
from stoplist.lists.uploads.model import ImportWork, Work, WorkResult

_QUERIES = load_queries(__package__)
_CANCEL = _QUERIES["cancel_work"]
_CLAIM = _QUERIES["claim_work"]
_END = _QUERIES["end_work"]
_FIND = _QUERIES["find_work"]
_RENEW = _QUERIES["renew_work"]
_REQUEST = _QUERIES["request_work"]
_SET_RESULT = _QUERIES["set_result"]
_WAITING = _QUERIES["waiting_work"]


class ClaimedWork(NamedTuple):
    """Work of which this process holds the lease, and the organization and channel of its import."""

    work: ImportWork
    organization_id: int
    channel: str


async def request_work(
    transaction: Transaction,
    actor: Actor,
    clock: Clock,
    work: Work,
    *,
    number: int,
    import_id: str,
    result: WorkResult,
    total: int = 0,
) -> bool:
    """Request work on an import. Return False if other work is in progress."""
    return bool(
        await transaction.run(
            _REQUEST,
            feed_id=number,
            import_id=import_id,
            work=work,
            actor_kind=actor.kind,
            actor_id=actor.id,
            requested_ms=clock.now_ms(),
            total=total,
            result=json_text(msgspec.to_builtins(result)),
        )
    )


async def find_work(database: Database, number: int, import_id: str) -> ImportWork | None:
    """Return the current or last work on an import, or None."""
    row = await database.one(_FIND, feed_id=number, import_id=import_id)
    return None if row is None else _work(row)


async def cancel_work(transaction: Transaction, number: int, import_id: str) -> None:
    """Cancel the work; its worker stops at its next step."""
    await transaction.run(_CANCEL, feed_id=number, import_id=import_id)


async def set_result(transaction: Transaction, number: int, import_id: str, result: WorkResult) -> bool:
    """Replace the results of earlier work. Return False while work is in progress."""
    text = json_text(msgspec.to_builtins(result))
    return bool(await transaction.run(_SET_RESULT, feed_id=number, import_id=import_id, result=text))


async def claim_next(database: Database, clock: Clock) -> ClaimedWork | None:
    """Take the lease of the oldest work without a valid lease, or return None."""
    for row in await database.all(_WAITING, now_ms=clock.now_ms()):
        found, lease_id = _work(row), secrets.token_hex(16)
        claimed = await _run(
            database,
            _CLAIM,
            feed_id=found.feed_id,
            import_id=found.import_id,
            work=found.work,
            seen_lease_id=found.lease_id or "",
            lease_id=lease_id,
            lease_until_ms=clock.now_ms() + LEASE_MS,
        )
        if claimed:
            work = msgspec.structs.replace(found, lease_id=lease_id)
            return ClaimedWork(work, row["organization_id"], row["channel"])
    return None


async def renew_work(database: Database, work: ImportWork, *, until_ms: int, done: int, total: int) -> bool:
    """Extend the lease until that time, and store the progress. Return False if another process has the lease."""
    key = {"feed_id": work.feed_id, "import_id": work.import_id, "lease_id": work.lease_id}
    return bool(await _run(database, _RENEW, **key, lease_until_ms=until_ms, done=done, total=total))


async def end_work(database: Database, work: ImportWork, result: WorkResult) -> None:
    """Store the result and end the work. Do nothing if another process has the lease."""
    key = {"feed_id": work.feed_id, "import_id": work.import_id, "lease_id": work.lease_id}
    await _run(database, _END, **key, result=json_text(msgspec.to_builtins(result)))


async def _run(database: Database, query: Any, **values: Any) -> int:
    return await database.write(lambda transaction: transaction.run(query, **values), feed_id=values["feed_id"])


def _work(row: Row) -> ImportWork:
    return ImportWork(
        feed_id=row["feed_id"],
        import_id=row["import_id"],
        work=row["work"],
        actor_kind=row["actor_kind"],
        actor_id=row["actor_id"],
        requested_ms=row["requested_ms"],
        lease_id=row["lease_id"],
        lease_until_ms=row["lease_until_ms"],
        done=row["done"],
        total=row["total"],
        result=msgspec.json.decode(row["result"], type=WorkResult),
    )
