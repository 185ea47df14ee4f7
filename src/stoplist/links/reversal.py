"""Reverses the opt-outs made with a stolen link key in a period, each by the rule for one submission.

An opt-out that only the same key repeated is reversed, too. One that anybody else sent again is left out.
Source: docs/interface.md sections D11 (Reversing) and D15.
"""

from collections.abc import AsyncIterator

from stoplist.actor import Actor
from stoplist.db import Transaction
from stoplist.db.query import load_queries
from stoplist.errors import Refused
from stoplist.links.keys import find_link_key_row
from stoplist.notices import outbox
from stoplist.notices.model import REVERSAL_ENDED
from stoplist.records.reversal import count_reversal, require_recent, reverse
from stoplist.records.reversal_plan import Reversal
from stoplist.unsubscribes.channel import CHANNELS, feed_id
from stoplist.unsubscribes.decision import CONFIRMED
from stoplist.unsubscribes.model import OptOutStores

_SUBMISSIONS = load_queries(__package__)["submissions_of_link_key"]

_PAGE_SIZE = 1_000
_END_OF_TIME_MS = 2**62


async def count_link_key_reversal(
    actor: Actor, stores: OptOutStores, link_key_id: str, *, since_ms: int, until_ms: int | None = None
) -> Reversal:
    """Return what `reverse_link_key` would do now, without changing anything. For administrators.

    A record that the key changed several times, with a change by somebody else in between, may be counted as superseded
    although it becomes reversible once the newer act is reversed.
    """
    total = Reversal()
    async for submission_id in _submissions(actor, stores, link_key_id, since_ms, until_ms):
        total += await count_reversal(actor, stores, submission_id, also_confirmed=CONFIRMED)
    return total


async def reverse_link_key(
    actor: Actor,
    stores: OptOutStores,
    link_key_id: str,
    *,
    since_ms: int,
    until_ms: int | None = None,
    expected: Reversal | None = None,
) -> AsyncIterator[Reversal]:
    """Reverse the acts by links of the key from `since_ms` on and before `until_ms`, the newest first.

    Yields the total counts after each act. For administrators. May be repeated, and continues after an interruption.
    `expected` is the result of `count_link_key_reversal`: Refused, and nothing changed, if it no longer holds. Refused,
    too, if the period begins too long ago.
    """
    if expected is not None and not expected.agrees_with(
        await count_link_key_reversal(actor, stores, link_key_id, since_ms=since_ms, until_ms=until_ms)
    ):
        raise Refused(
            "Some of its records were changed or sent again meanwhile, so the counts you were shown no longer hold. "
            "Nothing was changed. Check the new counts and confirm again."
        )
    total = Reversal()
    async for submission_id in _submissions(actor, stores, link_key_id, since_ms, until_ms):
        total += await reverse(actor, stores, submission_id, also_confirmed=CONFIRMED, notifies=False)
        yield total
    await _notify(actor, stores, link_key_id, total)
    yield total


async def _notify(actor: Actor, stores: OptOutStores, link_key_id: str, total: Reversal) -> None:
    """Add a notice of the reversal, unless there was nothing to take back."""
    if not total.changes + total.taken_back:
        return
    org_slug = (await find_link_key_row(actor, stores.database, link_key_id))["org_slug"]

    async def notify(transaction: Transaction) -> None:
        await outbox.add(
            transaction,
            REVERSAL_ENDED,
            link_key_id,
            at_ms=stores.clock.now_ms(),
            organizations=(org_slug,),
            link_key_id=link_key_id,
            **total.counts,
        )

    await stores.database.write(notify)


async def _submissions(
    actor: Actor, stores: OptOutStores, link_key_id: str, since_ms: int, until_ms: int | None
) -> AsyncIterator[str]:
    """Yield the ids of the key's submissions of the period, feed by feed, the newest first."""
    actor.require_administrator()
    row = await find_link_key_row(actor, stores.database, link_key_id)
    # By the period, not by what is found: the deletion of what is too old must change nothing.
    require_recent(stores, max(since_ms, row["created_ms"]))
    for channel in CHANNELS.values():
        before = (_END_OF_TIME_MS if until_ms is None else until_ms, "")
        while rows := await stores.database.all(
            _SUBMISSIONS,
            feed_id=feed_id(row["organization_id"], channel),
            link_key_id=link_key_id,
            since_ms=since_ms,
            until_ms=before[0],
            before_id=before[1],
            most=_PAGE_SIZE,
        ):
            for found in rows:
                yield found["submission_id"]
            before = (rows[-1]["received_ms"], rows[-1]["submission_id"])
