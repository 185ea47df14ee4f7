"""Tells the operator when a key falls behind, and when it has caught up.

Source: docs/interface.md sections D14 (Propagation) and D16.
"""

from collections.abc import Mapping

from stoplist.db import Transaction
from stoplist.notices import outbox
from stoplist.notices.model import KEY_BEHIND
from stoplist.proof.propagation import WATCHER, KeyPropagation, propagation
from stoplist.unsubscribes.model import OptOutStores

_BEHIND, _IN_TIME = "behind", "in_time"


async def notify_of_keys_behind(stores: OptOutStores, *, hours: int) -> None:
    """Add a notice for each key and feed whose state changed since any process looked last; a chore.

    A key that cannot be behind any more (deactivated, marked as stopped, of a closed organization) makes none.
    """
    watched = {_subject(one): one for one in await propagation(WATCHER, stores, hours=hours, only_watched=True)}
    behind = {subject for subject, one in watched.items() if one.is_behind}
    noted = await outbox.noted_subjects(stores.database, KEY_BEHIND)
    if behind != noted:
        await stores.database.write(
            lambda transaction: _note(transaction, watched, behind ^ noted, now_ms=stores.clock.now_ms())
        )


async def _note(
    transaction: Transaction, watched: Mapping[str, KeyPropagation], changed: set[str], *, now_ms: int
) -> None:
    for subject in sorted(changed):
        one = watched.get(subject)
        if one is None:
            await outbox.forget_state(transaction, KEY_BEHIND, subject)
            continue
        await outbox.state_changed(
            transaction,
            KEY_BEHIND,
            subject,
            _BEHIND if one.is_behind else _IN_TIME,
            normal=_IN_TIME,
            at_ms=now_ms,
            organizations=(one.org_slug,),
            client_id=one.client_id,
            channel=one.channel,
            group_id=one.group_id,
            changes_behind=one.changes_behind,
        )


def _subject(one: KeyPropagation) -> str:
    return f"{one.client_id} {one.org_slug} {one.channel} {one.group_id or '*'}"
