"""Reverses an import: all its submissions, the newest first, by the rule for one of them.

Source: docs/interface.md sections D11 (Reversing) and D12.
"""

from collections.abc import AsyncIterator

from stoplist.actor import Actor
from stoplist.db.query import load_queries
from stoplist.errors import Refused
from stoplist.lists.imports.lifecycle import begin_reversal, finish_reversal
from stoplist.lists.imports.listing import find_import
from stoplist.lists.imports.model import REVERSING, Import
from stoplist.records.reversal import count_reversal, require_recent, reverse
from stoplist.records.reversal_plan import Reversal
from stoplist.records.reversal_unit import ReversedImport
from stoplist.unsubscribes.model import OptOutStores

_QUERIES = load_queries(__package__)
_INTERRUPTED = _QUERIES["interrupted_reversal"]
_SUBMISSIONS = _QUERIES["submissions_of_import"]


async def count_import_reversal(actor: Actor, stores: OptOutStores, found: Import) -> Reversal:
    """Return what `reverse_import` would do at this moment. For administrators alone.

    A record that two parts of the import changed, with another's change in between, may be counted as superseded
    although reversing the newer part makes it reversible again.
    """
    total = Reversal()
    async for _, _, counted in counting_import_reversal(actor, stores, found):
        total = counted
    return total


async def counting_import_reversal(
    actor: Actor, stores: OptOutStores, found: Import
) -> AsyncIterator[tuple[int, int, Reversal]]:
    """Yield how many of the import's submissions were counted, of how many, and the counts so far.

    For administrators alone.
    """
    actor.require_administrator()
    require_recent(stores, found.started_ms)
    submissions, total = await submissions_of(stores, found), Reversal()
    yield 0, len(submissions), total
    for done, submission_id in enumerate(submissions, 1):
        total += await count_reversal(actor, stores, submission_id)
        yield done, len(submissions), total


async def reverse_import(
    actor: Actor, stores: OptOutStores, import_id: str, *, expected: Reversal | None = None
) -> AsyncIterator[Reversal]:
    """Take back what the import stored, and yield the counts so far after each of its submissions.

    For administrators alone. May be repeated: an interrupted reversal goes on. The import stores nothing more from the
    first moment on. `expected` is the result of `count_import_reversal`: Refused, and nothing changed, if it
    no longer holds. Refused, too, if the import began too long ago.
    """
    found = await find_import(actor, stores.database, import_id)
    require_recent(stores, found.started_ms)
    if expected is not None and not expected.agrees_with(await count_import_reversal(actor, stores, found)):
        raise Refused(
            "Some of its records were changed or sent again meanwhile, so the counts you were shown no longer hold. "
            "Nothing was changed. Check the new counts and confirm again."
        )
    first_id = await _interrupted_reversal(stores, found)
    found = await begin_reversal(actor, stores, found)
    total = Reversal()
    for submission_id in await submissions_of(stores, found):
        of_import = ReversedImport(found.import_id, first_id)
        part = await reverse(actor, stores, submission_id, notifies=False, of_import=of_import)
        first_id = first_id or part.submission_id
        total += part
        yield total
    await finish_reversal(stores, found, total.counts)
    yield total


async def _interrupted_reversal(stores: OptOutStores, found: Import) -> str | None:
    """Return the first submission of a reversal that was interrupted, if there is one."""
    if found.state != REVERSING:
        return None
    row = await stores.database.one(_INTERRUPTED, feed_id=found.feed_id, import_id=found.import_id)
    return None if row is None else str(row["part_of"])


async def submissions_of(stores: OptOutStores, found: Import) -> list[str]:
    """Return the ids of the import's submissions, the newest first."""
    rows = await stores.database.all(_SUBMISSIONS, feed_id=found.feed_id, import_id=found.import_id)
    return [row["submission_id"] for row in rows]
