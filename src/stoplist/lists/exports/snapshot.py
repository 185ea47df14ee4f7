"""Reads all records of a feed as they stood at one change, in short reads instead of one long transaction.

A long transaction would keep SQLite's write-ahead log and PostgreSQL's dead rows from being cleared, for as long as the
slowest download takes. Instead the records are read by number up to that change; a record that has changed since is
found among the versions, which keep its former state under the same number.
Source: docs/interface.md sections D6 and D12.
"""

from collections.abc import AsyncIterator
from operator import attrgetter

import msgspec

from stoplist.db import Database, Row
from stoplist.db.query import load_queries

_QUERIES = load_queries(__package__)
_ALL = _QUERIES["all_states"]
_CHANGED = _QUERIES["states_changed_since"]
_CURRENT = _QUERIES["current_states"]

# Read in one C call, and decoded in less than a millisecond.
PAGE_STATES = 1_000


class State(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A state of a record, from the change `seq` on. Times are milliseconds since 1970 UTC.

    The last three fields are None unless the history is read: the submission that made the state, and its sender.
    """

    seq: int
    id: str
    address: str
    group_no: int
    status: str
    reason: str
    source: str | None
    occurred_ms: int
    recorded_ms: int
    submission_id: str | None = None
    actor_kind: str | None = None
    actor_id: str | None = None


_STATES = msgspec.json.Decoder(list[State])
_SEQ = attrgetter("seq")


async def states_at(
    database: Database, feed_id: int, *, head: int, after: int = 0, until: int | None = None
) -> AsyncIterator[list[State]]:
    """Yield the state of each record at the change `head`, by number, in lists of at most twice PAGE_STATES.

    Only states after the number `after`, and none after the list that reaches `until`.
    """
    end = head if until is None else min(until, head)
    while after < end:
        row = await database.one_large(_CURRENT, feed_id=feed_id, after=after, head=head, most=PAGE_STATES)
        states = _states(row)
        after_page = states[-1].seq if len(states) == PAGE_STATES else head
        if row is None or row["head_now"] != head:
            # Read after the current states: a record that changes in between is then found twice, and never missed.
            changed = await database.one_large(
                _CHANGED, feed_id=feed_id, after=after, until=after_page, head=head, most=PAGE_STATES
            )
            if changed is not None and changed["examined"] == PAGE_STATES:
                after_page = changed["last_seq"]
            found = {state.seq: state for state in (*states, *_states(changed)) if state.seq <= after_page}
            states = sorted(found.values(), key=_SEQ)
        yield states
        after = after_page


async def history_until(database: Database, feed_id: int, *, head: int) -> AsyncIterator[list[State]]:
    """Yield every state that a record ever had up to the change `head`, by number, with its sender."""
    after = 0
    while after < head:
        states = _states(await database.one_large(_ALL, feed_id=feed_id, after=after, head=head, most=PAGE_STATES))
        yield states
        after = states[-1].seq if len(states) == PAGE_STATES else head


def _states(row: Row | None) -> list[State]:
    text = None if row is None else row["states"]
    return [] if text is None else sorted(_STATES.decode(text), key=_SEQ)
