"""Adds notices, in the transaction of what they tell of: none is lost, and none tells of what was rolled back.

Whether anything delivers them is a setting of the servers, which the caller need not know: what nobody delivers within
three days ends by itself. Source: docs/interface.md section D16.
"""

from collections.abc import Iterable

import msgspec

from stoplist import ids
from stoplist.db import Database, Transaction, feed_outbox
from stoplist.db.query import json_text, load_queries
from stoplist.notices.model import TRIED_FOR_MS, body_text

_QUERIES = load_queries(__package__)
_ADD = _QUERIES["add_notice"]
_ADD_DELIVERIES = _QUERIES["add_deliveries"]
_END_STATE = _QUERIES["end_state"]
_SET_STATE = _QUERIES["set_notice_state"]
_SUBJECTS = _QUERIES["noted_subjects"]


class Notice(msgspec.Struct, frozen=True):
    """A notice that is to be delivered. `body` as in `body_text`; `organizations` are slugs."""

    notice_id: str
    kind: str
    subject: str
    body: str
    created_ms: int
    organizations: list[str]


async def add(
    transaction: Transaction, kind: str, subject: str, *, at_ms: int, organizations: Iterable[str] = (), **facts: object
) -> str:
    """Add a notice to the webhook, the administrators, and the admins of these organizations; return its id.

    `subject` is the id of what it is about. `facts` are ids, counts, slugs and times for its body, never an address, a
    secret, a file name or a label. `organizations` are slugs.
    """
    slugs = sorted(set(organizations))
    facts = facts | ({"organizations": slugs} if slugs else {})
    notice = Notice(ids.new_id(ids.NOTICE_ID), kind, subject, body_text(kind, at_ms, facts), at_ms, slugs)
    if transaction.outbox_feed_id is None:
        await insert(transaction, notice)
    else:
        await feed_outbox.add_entry(transaction, feed_outbox.NOTICE, notice, at_ms=at_ms)
    return notice.notice_id


async def insert(transaction: Transaction, notice: Notice) -> None:
    """Write a notice and its deliveries."""
    slugs, at_ms = json_text(notice.organizations), notice.created_ms
    await transaction.run(
        _ADD,
        notice_id=notice.notice_id,
        kind=notice.kind,
        subject=notice.subject,
        body=notice.body,
        created_ms=at_ms,
    )
    await transaction.run(
        _ADD_DELIVERIES, notice_id=notice.notice_id, slugs=slugs, next_ms=at_ms, until_ms=at_ms + TRIED_FOR_MS
    )


async def state_changed(
    transaction: Transaction,
    kind: str,
    subject: str,
    state: str,
    *,
    normal: str,
    at_ms: int,
    organizations: Iterable[str] = (),
    **facts: object,
) -> bool:
    """Add a notice if the state of the subject differs from the one that was noted last; return whether it does.

    `normal` is the state in which subjects begin. The notice says the new `state` beside the `facts`. Of several
    transactions that see the same change, one adds the notice.
    """
    if state == normal:
        changed = await transaction.run(_END_STATE, kind=kind, subject=subject)
    else:
        changed = await transaction.run(_SET_STATE, kind=kind, subject=subject, state=state, since_ms=at_ms)
    if changed:
        await add(transaction, kind, subject, at_ms=at_ms, organizations=organizations, state=state, **facts)
    return bool(changed)


async def forget_state(transaction: Transaction, kind: str, subject: str) -> None:
    """Take the subject for one in its normal state, without a notice: nobody watches it any longer."""
    await transaction.run(_END_STATE, kind=kind, subject=subject)


async def noted_subjects(database: Database, kind: str) -> set[str]:
    """Return the subjects whose state is not the normal one, as it was noted last."""
    return {row["subject"] for row in await database.all(_SUBJECTS, kind=kind)}
