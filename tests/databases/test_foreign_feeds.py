"""A feed is never taken for that of another organization with the same number, which a restore can make.

Source: docs/interface.md section D1, Feeds apart.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

import pytest

from stoplist.databases.foreign_feeds import ForeignFeed, find_foreign_feeds, skip_used_numbers, watch_foreign_feeds
from stoplist.db.split import SplitDatabase
from stoplist.errors import Missing, StoreUnavailable
from stoplist.maintenance.after_restore import after_restore
from stoplist.organizations.target import Target
from stoplist.proof.propagation import propagation
from stoplist.records.daily_counts import totals
from stoplist.records.search import search
from stoplist.records.submission_list import list_submissions
from stoplist.records.submissions import find_submission
from stoplist.unsubscribes.channel import CHANNELS
from stoplist.unsubscribes.feed import open_feed
from tests.builders import ADMINISTRATOR, execute, sql, value
from tests.deployment import in_loop
from tests.records.test_manual_entry import by_hand
from tests.unsubscribes.partner import OptOutDeployment, Organization, addresses, out


def pair(deployment: OptOutDeployment) -> SplitDatabase:
    return cast(SplitDatabase, deployment.database)


@asynccontextmanager
async def restored(deployment: OptOutDeployment) -> AsyncIterator[tuple[Organization, Organization]]:
    """Yield an organization whose feed another one opened that had its number, and an untouched one.

    As after a restore of the accounts alone. Later tests find no foreign feed.
    """
    taken, own = await deployment.new_organization(), await deployment.new_organization()
    for organization in (taken, own):
        await organization.submit(out("ann@x.org"))
    uid = "SELECT uid FROM organizations WHERE organization_id = :id"
    before = await value(deployment.database, uid, id=taken.organization_id)
    change = "UPDATE organizations SET uid = :uid WHERE organization_id = :id"
    await execute(deployment.database, change, uid="f" * 32, id=taken.organization_id)
    await watch_foreign_feeds(deployment.database)
    yield taken, own
    await execute(deployment.database, change, uid=before, id=taken.organization_id)
    await watch_foreign_feeds(deployment.database)


@in_loop
async def test_nothing_of_it_is_read_or_written(deployment: OptOutDeployment) -> None:
    async with restored(deployment) as (taken, own):
        for attempt in (
            taken.look_up("ann@x.org"),
            taken.follow(),
            taken.submit(out("ben@x.org")),
            by_hand(taken, "ben@x.org"),
        ):
            with pytest.raises(StoreUnavailable, match="another organization"):
                await attempt
        assert addresses(await own.look_up("ann@x.org")) == ["ann@x.org"]
        await own.submit(out("ben@x.org"))


@in_loop
async def test_it_is_left_out_of_what_is_read_of_many_feeds(deployment: OptOutDeployment) -> None:
    """And a search that includes it is refused: it would show the records of strangers."""
    async with restored(deployment) as (taken, own):
        rows = await deployment.database.all(sql("SELECT feed_id FROM feeds"))
        assert taken.feed_id not in {row["feed_id"] for row in rows}
        assert own.feed_id in {row["feed_id"] for row in rows}
        page = await list_submissions(ADMINISTRATOR, deployment.database, limit=1_000)
        assert {one.org_slug for one in page.submissions} & {taken.slug, own.slug} == {own.slug}
        assert await totals(ADMINISTRATOR, deployment.database)
        assert taken.slug not in {one.org_slug for one in await propagation(ADMINISTRATOR, deployment.stores, hours=1)}
        for attempt in (
            list_submissions(ADMINISTRATOR, deployment.database, org_slug=taken.slug),
            totals(ADMINISTRATOR, deployment.database, org_slug=taken.slug),
        ):
            with pytest.raises(StoreUnavailable, match="another organization"):
                await attempt
        with pytest.raises(StoreUnavailable, match="another organization"):
            await search(ADMINISTRATOR, deployment.database, "ann@x.org")


@in_loop
async def test_nothing_of_it_is_found_by_its_id(deployment: OptOutDeployment) -> None:
    """The organization that has the number now would be shown what strangers sent."""
    async with restored(deployment) as (taken, own):
        submission_of = "SELECT submission_id FROM submissions WHERE feed_id = :feed_id"
        strange, visible = [
            await value(pair(deployment).feeds, submission_of, feed_id=organization.feed_id)
            for organization in (taken, own)
        ]
        assert (await find_submission(ADMINISTRATOR, deployment.database, visible)).org_slug == own.slug
        with pytest.raises(Missing):
            await find_submission(ADMINISTRATOR, deployment.database, strange)


@in_loop
async def test_a_feed_is_checked_when_it_is_opened(deployment: OptOutDeployment) -> None:
    """Before any process has looked for foreign feeds."""
    async with restored(deployment) as (taken, _):
        pair(deployment).foreign_feeds = frozenset()
        target = Target(taken.organization_id, taken.slug, group=None, default_group=None)
        with pytest.raises(StoreUnavailable, match="another organization"):
            await open_feed(deployment.database, target, CHANNELS["email"])


@in_loop
async def test_feeds_of_lost_organizations_are_named_too(deployment: OptOutDeployment) -> None:
    async with restored(deployment) as (taken, _):
        lost = 1_000_001
        insert = (
            "INSERT INTO feeds (feed_id, organization_id, organization_uid, channel, generation, head_seq, writes) "
            "VALUES (:feed_id, :lost, 'u', 'email', 'g', 0, 0)"
        )
        await execute(deployment.database, insert, feed_id=16 * lost + 1, lost=lost)
        assert await find_foreign_feeds(pair(deployment)) == [
            ForeignFeed(taken.feed_id, taken.organization_id, is_lost=False),
            ForeignFeed(16 * lost + 1, lost, is_lost=True),
        ]
        await skip_used_numbers(deployment.database)
        next_number = "SELECT nextval(pg_get_serial_sequence('organizations', 'organization_id'))"
        being_created = await value(deployment.database, next_number)
        await skip_used_numbers(deployment.database)
        assert (await deployment.new_organization()).organization_id > being_created > lost
        await execute(deployment.database, "DELETE FROM feeds WHERE feed_id = :feed_id", feed_id=16 * lost + 1)


@in_loop
async def test_numbers_are_not_skipped_backwards(deployment: OptOutDeployment) -> None:
    """After a restore, too, the next organization has the next number."""
    first = await deployment.new_organization()
    await first.submit(out("ann@x.org"))
    await after_restore(ADMINISTRATOR, deployment.database, deployment.clock)
    assert (await deployment.new_organization()).organization_id == first.organization_id + 1
