"""Groups of which there are records, although the accounts do not know them: a restore took the accounts alone back.

A group that is created later would take the number of a lost one, and with it the opt-outs of other people.
Source: docs/interface.md section D1, Feeds apart.
"""

from functools import partial
from typing import NamedTuple

import msgspec

from stoplist.actor import Actor
from stoplist.clock import Clock
from stoplist.db import Database, Transaction
from stoplist.db.query import Query, load_queries
from stoplist.organizations.groups import recreate_group
from stoplist.organizations.organizations import list_organizations
from stoplist.organizations.store import lock_organization
from stoplist.organizations.target import ALL_GROUPS, group_ids
from stoplist.proof.feed_states import complete_states, drop_state

_QUERIES = load_queries(__package__)
_FEEDS = load_queries("stoplist.unsubscribes")["feeds"]
_OF_IMPORTS = _QUERIES["group_numbers_of_imports"]
_OF_READERS = _QUERIES["group_numbers_of_readers"]
_OF_RECORDS = _QUERIES["group_numbers_of_records"]
_OF_SUBMISSIONS = _QUERIES["group_numbers_of_submissions"]

ROWS_AT_ONCE = 50_000


class LostGroups(NamedTuple):
    """The numbers of the lost groups of which a feed has records, submissions, imports or readers."""

    feed_id: int
    organization_id: int
    numbers: frozenset[int]


async def find_lost_groups(database: Database) -> list[LostGroups]:
    """Return the feeds that have lost groups, by reading every record. Foreign feeds are left out."""
    found = []
    for feed in await database.all(_FEEDS):
        numbers = await _numbers_of_feed(database, feed["feed_id"])
        # Read after the records, each of which was stored after its group was created.
        known = await group_ids(database, feed["organization_id"])
        if lost := numbers - {ALL_GROUPS, *known}:
            found.append(LostGroups(feed["feed_id"], feed["organization_id"], frozenset(lost)))
    return found


async def recreate_lost_groups(actor: Actor, database: Database, clock: Clock) -> int:
    """Create the lost groups again, with their numbers; return how many. May be repeated.

    Their ids are new, so the states of their feeds are computed anew.
    """
    found, now_ms = await find_lost_groups(database), clock.now_ms()
    # First: if this ends in between, the next attempt still finds the groups.
    for lost in found:
        await drop_state(database, lost.feed_id)
    slugs = {one.organization_id: one.slug for one in await list_organizations(actor, database)}

    async def recreate(lost: LostGroups, transaction: Transaction) -> int:
        organization = await lock_organization(transaction, slugs[lost.organization_id])
        recreated = 0
        for number in sorted(lost.numbers):
            recreated += await recreate_group(transaction, actor, organization, number, now_ms=now_ms)
        return recreated

    count = 0
    for lost in found:
        count += await database.write(partial(recreate, lost))
    await complete_states(database, pause_s=0)
    return count


async def _numbers_of_feed(database: Database, feed_id: int) -> set[int]:
    rows = [row for query in (_OF_IMPORTS, _OF_READERS) for row in await database.all(query, feed_id=feed_id)]
    numbers = {row["group_no"] for row in rows}
    numbers |= await _numbers_of_pages(database, _OF_RECORDS, feed_id, start=0)
    return numbers | await _numbers_of_pages(database, _OF_SUBMISSIONS, feed_id, start="")


async def _numbers_of_pages(database: Database, query: Query, feed_id: int, *, start: int | str) -> set[int]:
    """Return the numbers of all rows, read page by page: one statement for a large feed would take too long."""
    numbers: set[int] = set()
    after = start
    while True:
        page = await database.one_large(query, feed_id=feed_id, after=after, most=ROWS_AT_ONCE)
        if page is None or page["last"] is None:
            return numbers
        numbers |= msgspec.json.decode(page["numbers"], type=set[int])
        after = page["last"]
