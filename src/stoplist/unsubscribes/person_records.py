"""The records of one person, for opt-out links: the feed and the records are one statement, and read only once.

Source: docs/interface.md section D15; docs/decisions/0026-clicks.md.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from stoplist.db import Database
from stoplist.db.query import load_queries
from stoplist.unsubscribes.decision import CurrentRecord
from stoplist.unsubscribes.erased import erased_form
from stoplist.unsubscribes.feed import Feed
from stoplist.unsubscribes.feed_state import stored_state
from stoplist.unsubscribes.model import UNSUBSCRIBED

_FEED_AND_RECORDS = load_queries(__package__)["feed_and_records_of_address"]
_FEED_COLUMNS = (
    "generation",
    "head_seq",
    "writes",
    "state_seq",
    "state_records",
    "state_digest",
    "state_writes",
    "digest_key",
    "has_erased",
    "group_no",
)


class PersonRecords(NamedTuple):
    """The feed, None if it was never opened, and the records of one address by group number, of one moment.

    `erased_form` is that of the address, if any of its records is erased.
    """

    feed: Feed | None
    records: dict[int, CurrentRecord]
    erased_form: str | None = None

    def is_opted_out(self, group_no: int) -> bool:
        """Return whether the record of this group, or of all groups, says so."""
        record = self.records.get(group_no)
        return record is not None and record.status == UNSUBSCRIBED


async def find_person_records(database: Database, number: int, address: str) -> PersonRecords:
    """Return the records of an address, in its canonical form, in the feed of that number."""
    form = ""
    while True:
        rows = await database.rows(_FEED_AND_RECORDS, number, address, form)
        if not rows:
            return PersonRecords(None, {})
        feed = _feed(number, rows[0])
        key = feed.erasing_key
        known_form = "" if key is None else erased_form(key, address)
        if known_form == form:
            break
        form = known_form
    first = len(_FEED_COLUMNS)
    if rows[0][first - 1] is None:
        return PersonRecords(feed, {})
    records = {
        row[first - 1]: CurrentRecord(*row[first:]) for row in sorted(rows, key=lambda row: row[first] == address)
    }
    is_erased = any(row[first] == form for row in rows)
    return PersonRecords(feed, records, form if is_erased else None)


def _feed(number: int, columns: Sequence[Any]) -> Feed:
    row = dict(zip(_FEED_COLUMNS, columns, strict=False))
    head_seq = row["head_seq"]
    state = stored_state(row, head_seq=head_seq)
    key, has_erased = row["digest_key"], bool(row["has_erased"])
    return Feed(number, row["generation"], head_seq, row["writes"], state, key, has_erased)
