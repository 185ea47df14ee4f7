"""Creates, resumes, stops, finishes and discards imports.

The rows are stored by `run.py`. One process at a time works on an import: the one whose `lease_id` the import carries.
Source: docs/interface.md section D12.
"""

import secrets
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from stoplist import ids
from stoplist.actor import Actor
from stoplist.audit import trail
from stoplist.db import Database, Transaction
from stoplist.db.query import json_text, load_queries
from stoplist.errors import Refused
from stoplist.lists.imports.listing import find_import
from stoplist.lists.imports.model import (
    DISCARDED,
    DONE,
    LEASE_MS,
    REVERSED,
    REVERSING,
    RUNNING,
    STOPPED,
    Import,
    ImportCounts,
    ImportOptions,
    State,
)
from stoplist.notices import outbox
from stoplist.notices.model import IMPORT_ENDED, REVERSAL_ENDED
from stoplist.organizations.store import require_admin_of
from stoplist.organizations.target import ALL_GROUPS, Target
from stoplist.unsubscribes.channel import Channel, feed_id
from stoplist.unsubscribes.feed import open_feed
from stoplist.unsubscribes.model import OptOutStores

_QUERIES = load_queries(__package__)
_BEGIN = _QUERIES["begin_import"]
_CHANGE_STATE = _QUERIES["change_import_state"]
_TAKEN_BACK = _QUERIES["taken_back_of_import"]

_EMPTY_SHA256 = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
_NO_LEASE = ""


async def begin_import(
    actor: Actor,
    stores: OptOutStores,
    channel: Channel,
    target: Target,
    *,
    all_groups: bool,
    file_name: str,
    options: ImportOptions,
    import_id: str | None = None,
    rejects_bytes: int = 0,
    also: Callable[[Transaction], Awaitable[None]] | None = None,
) -> Import:
    """Create a running import for an actor and target that the caller has authorized; this process holds its lease.

    `import_id` is an id that no import has; `rejects_bytes` is the length of its file of rejected rows; `also` writes
    more in the same transaction.
    """
    await open_feed(stores.database, target, channel)
    import_id, lease_id, now_ms = import_id or ids.new_id(ids.IMPORT_ID), secrets.token_hex(16), stores.clock.now_ms()
    group_no = ALL_GROUPS if all_groups else target.group_no

    async def begin(transaction: Transaction) -> None:
        if also is not None:
            await also(transaction)
        await transaction.run(
            _BEGIN,
            feed_id=feed_id(target.organization_id, channel),
            import_id=import_id,
            group_no=group_no,
            state=RUNNING,
            file_name=file_name,
            options=json_text(msgspec.to_builtins(options)),
            actor_kind=actor.kind,
            actor_id=actor.id,
            started_ms=now_ms,
            file_hash=_EMPTY_SHA256,
            rejects_bytes=rejects_bytes,
            counts=json_text(msgspec.to_builtins(ImportCounts())),
            lease_id=lease_id,
            lease_until_ms=now_ms + LEASE_MS,
        )
        await _record(transaction, actor, "import.begin", import_id, target.org_slug, now_ms, channel=channel.name)

    await stores.database.write(begin, feed_id=feed_id(target.organization_id, channel))
    return await find_import(actor, stores.database, import_id)


async def find_resumable(actor: Actor, stores: OptOutStores, import_id: str) -> Import:
    """Return an import that can go on, or one that is done.

    Refused for an import that has ended otherwise than by a stop, and for one whose lease is valid: a process works on
    it, or did so less than a minute ago.
    """
    found = await _find_own(actor, stores.database, import_id)
    _require_unfinished(found)
    now_ms = stores.clock.now_ms()
    if found.is_held(now_ms):
        raise Refused(
            f"The import {import_id} is running: a process works on it. If that process is gone, the import can be "
            f"resumed in {(found.lease_until_ms - now_ms) // 1_000 + 1} seconds.",
            command=f"`stoplist import show {import_id}` shows how far it is.",
        )
    return found


async def take_over(actor: Actor, stores: OptOutStores, import_id: str, *, found: Import | None = None) -> Import:
    """Make this process the one that works on the import; return it as it stands.

    A process that worked on it until now stores nothing more. Refused for an import that has ended otherwise than by
    a stop. One that is done is returned as it is. `found`: the import as the caller saw it; ImportTaken if another
    process has taken it over since.
    """
    found = found or await _find_own(actor, stores.database, import_id)
    _require_unfinished(found)
    if found.state == DONE:
        return found
    await _change_state(stores, found, RUNNING, lease_id=secrets.token_hex(16))
    return await find_import(actor, stores.database, import_id)


async def stop_import(stores: OptOutStores, running: Import) -> Import:
    """Stop the import and return it. `running` is its last state in the process that holds the lease."""
    return await _change_state(stores, running, STOPPED)


async def finish_import(actor: Actor, stores: OptOutStores, running: Import) -> Import:
    """Mark an import as done, whose last row was taken, and return it. `running` is as for `stop_import`."""

    async def record(transaction: Transaction, now_ms: int) -> None:
        await _record(
            transaction,
            actor,
            "import.end",
            running.import_id,
            running.org_slug,
            now_ms,
            channel=running.channel,
            **_totals(running.counts),
        )
        await _notify_of_end(transaction, running, DONE, now_ms)

    return await _change_state(stores, running, DONE, is_end=True, record=record)


async def discard_import(actor: Actor, stores: OptOutStores, import_id: str) -> Import:
    """Give up what an import has not stored yet; what it has stored stays, and can still be reversed.

    A process that works on it stores nothing more. Refused for an import that is done, reversed or being reversed.
    """
    found = await _find_own(actor, stores.database, import_id)
    if found.state == DISCARDED:
        return found
    if found.state not in (RUNNING, STOPPED):
        raise Refused(
            f"The import is {found.state}: nothing of it is left to discard. "
            "`stoplist import reverse` takes back what it stored."
        )

    async def record(transaction: Transaction, now_ms: int) -> None:
        await _record(transaction, actor, "import.discard", import_id, found.org_slug, now_ms, rows=found.counts.rows)
        await _notify_of_end(transaction, found, DISCARDED, now_ms)

    return await _change_state(stores, found, DISCARDED, is_end=True, record=record)


async def begin_reversal(actor: Actor, stores: OptOutStores, found: Import) -> Import:
    """Mark an import as being reversed, so that it stores nothing more. For administrators alone."""
    actor.require_administrator()
    if found.state in (REVERSING, REVERSED):
        return found

    async def record(transaction: Transaction, now_ms: int) -> None:
        await _record(transaction, actor, "import.reverse", found.import_id, found.org_slug, now_ms)

    return await _change_state(stores, found, REVERSING, record=record)


async def finish_reversal(stores: OptOutStores, found: Import, counts: dict[str, int]) -> Import:
    """Mark an import as reversed. `counts` are those of the process that finishes its reversal.

    The notice counts what all processes took back.
    """
    if found.state == REVERSED:
        return found

    async def record(transaction: Transaction, now_ms: int) -> None:
        (taken_back,) = await transaction.all(_TAKEN_BACK, feed_id=found.feed_id, import_id=found.import_id)
        await outbox.add(
            transaction,
            REVERSAL_ENDED,
            found.import_id,
            at_ms=now_ms,
            organizations=(found.org_slug,),
            import_id=found.import_id,
            **counts | dict(taken_back),
        )

    return await _change_state(stores, found, REVERSED, is_end=True, record=record)


def _require_unfinished(found: Import) -> None:
    if found.state not in (RUNNING, STOPPED, DONE):
        raise Refused(f"The import is {found.state}, so nothing more can be imported by it. Begin a new one.")


async def _find_own(actor: Actor, database: Database, import_id: str) -> Import:
    found = await find_import(actor, database, import_id)
    require_admin_of(actor, found.org_slug)
    return found


async def _change_state(
    stores: OptOutStores,
    found: Import,
    state: State,
    *,
    lease_id: str | None = None,
    is_end: bool = False,
    record: Any = None,
) -> Import:
    """Change the state. Raise ImportTaken if the state or the lease has changed since `found` was read."""
    now_ms = stores.clock.now_ms()
    ended_ms = now_ms if is_end else found.ended_ms
    lease_until_ms = 0 if lease_id is None else now_ms + LEASE_MS

    async def change(transaction: Transaction) -> bool:
        changed = await transaction.run(
            _CHANGE_STATE,
            feed_id=found.feed_id,
            import_id=found.import_id,
            from_state=found.state,
            lease_id=found.lease_id or _NO_LEASE,
            state=state,
            new_lease_id=lease_id,
            lease_until_ms=lease_until_ms,
            ended_ms=ended_ms,
        )
        if changed and record is not None:
            await record(transaction, now_ms)
        return bool(changed)

    if not await stores.database.write(change, feed_id=found.feed_id):
        raise ImportTaken(found.import_id)
    return msgspec.structs.replace(
        found, state=state, lease_id=lease_id, lease_until_ms=lease_until_ms, ended_ms=ended_ms
    )


class ImportTaken(Refused):
    """Another process works on the import now, or changed its state."""

    def __init__(self, import_id: str) -> None:
        super().__init__(
            f"Another process has taken over the import {import_id}, or changed its state. Nothing more is stored.",
            command=f"`stoplist import show {import_id}` shows how it stands.",
        )


async def _record(
    transaction: Transaction, actor: Actor, action: str, import_id: str, org_slug: str, at_ms: int, **detail: Any
) -> None:
    await trail.record(transaction, actor, action, import_id, at_ms=at_ms, organizations=(org_slug,), **detail)


async def _notify_of_end(transaction: Transaction, ended: Import, state: State, at_ms: int) -> None:
    await outbox.add(
        transaction,
        IMPORT_ENDED,
        ended.import_id,
        at_ms=at_ms,
        organizations=(ended.org_slug,),
        import_id=ended.import_id,
        channel=ended.channel,
        state=state,
        **_totals(ended.counts),
    )


def _totals(counts: ImportCounts) -> dict[str, int]:
    """Return what the audit and the notice say of an import that has ended."""
    return {
        "rows": counts.rows,
        "bad": counts.bad_rows,
        "created": counts.created,
        "updated": counts.updated,
        "unchanged": counts.unchanged,
        "outranked": counts.outranked,
    }
