"""Browsing an organization's records, newest first. docs/interface.md sections D5, D6 and D11."""

import asyncio
import itertools
import random
from collections.abc import Callable
from typing import Any

import pytest

from stoplist.errors import Missing, Refused
from stoplist.records.filters import ALL_GROUPS_FILTER, DISORDER_MS
from stoplist.records.listing import ListedRecord, Listing, list_records
from stoplist.unsubscribes.channel import CHANNELS
from tests.builders import execute
from tests.constants import MINUTE_MS
from tests.deployment import in_loop
from tests.records.scan_limit import limit_scans
from tests.unsubscribes.partner import OptOutDeployment, Organization, back, out
from tests.unsubscribes.people import BOSS, viewer


async def page(organization: Organization, **arguments: Any) -> Listing:
    """Return one page as a viewer of the organization sees it."""
    channel = CHANNELS[organization.channel]
    arguments.setdefault("org_slug", organization.slug)
    return await list_records(viewer(organization), organization.deployment.database, channel=channel, **arguments)


async def pages(organization: Organization, **arguments: Any) -> list[Listing]:
    """Return all pages in order."""
    found = [await page(organization, **arguments)]
    while found[-1].older is not None:
        found.append(await page(organization, before_seq=found[-1].older, **arguments))
    return found


def records(found: list[Listing]) -> list[ListedRecord]:
    return [record for one in found for record in one.records]


def seqs(found: list[Listing] | Listing) -> list[int]:
    return [record.seq for record in records(found if isinstance(found, list) else [found])]


async def naively(organization: Organization, groups: dict[str | None, int], **wanted: Any) -> list[int]:
    """Return the numbers of the matching records by scanning all records."""
    tests: dict[str, Callable[[dict[str, Any], Any], bool]] = {
        "group": lambda row, group: row["group_no"] == groups[group],
        "status": lambda row, status: row["status"] == status,
        "reason": lambda row, reason: row["reason"] == reason,
        "recorded_from_ms": lambda row, at_ms: row["recorded_ms"] >= at_ms,
        "recorded_until_ms": lambda row, at_ms: row["recorded_ms"] < at_ms,
    }
    given = {name: value for name, value in wanted.items() if value is not None}
    rows = await organization.rows("unsubscribes", "seq DESC")
    return [row["seq"] for row in rows if all(tests[name](row, value) for name, value in given.items())]


async def busy(
    deployment: OptOutDeployment, chance: random.Random, *, batches: int = 40
) -> tuple[Organization, dict[str | None, int]]:
    """Return an organization with hours of opt-outs and returns, and the numbers of its groups by filter."""
    organization = await deployment.new_organization()
    reminders = await organization.new_group("Reminders")
    for _ in range(batches):
        deployment.clock.advance(chance.randrange(600))
        items = [
            chance.choice([
                out(f"p{n}@x.org", reason=chance.choice(["complaint", "bounce", "unsubscribe"])),
                back(f"p{n}@x.org", deployment.ago(0)),
            ])
            for n in chance.sample(range(25), 3)
        ]  # fmt: skip
        group = chance.choice([None, reminders, ALL_GROUPS_FILTER])
        all_groups, group_id = group == ALL_GROUPS_FILTER, None if group == ALL_GROUPS_FILTER else group
        await organization.submit(*items, group_id=group_id, all_groups=all_groups)
    return organization, {organization.default_group: 1, reminders: 2, ALL_GROUPS_FILTER: 0}


@in_loop
async def test_every_filter_finds_the_same_as_a_full_scan(
    deployment: OptOutDeployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each filter alone and all together, page by page, newest first, for any size of page and scan."""
    chance = random.Random(6)  # noqa: S311 - the same examples every time
    start_ms = deployment.now_ms
    organization, groups = await busy(deployment, chance)
    length_ms = deployment.now_ms - start_ms
    statuses, reasons = [None, "unsubscribed", "resubscribed"], [None, "complaint", "consent", "correction"]
    filters = list(itertools.product([None, *groups], statuses, reasons))
    for limit, at_once, scanned in ((3, 2, 4), (7, 5, 10), (50, 1_000, 4_000)):
        limit_scans(monkeypatch, scanned // at_once, rows=at_once)
        for group, status, reason in chance.sample(filters, 12):
            first, end = sorted(start_ms + chance.randrange(length_ms) for _ in range(2))
            for from_ms, until_ms in ((None, None), (first, None), (None, end), (first, end)):
                wanted = {
                    "group": group,
                    "status": status,
                    "reason": reason,
                    "recorded_from_ms": from_ms,
                    "recorded_until_ms": until_ms,
                }
                found = await pages(organization, **wanted, limit=limit)
                assert seqs(found) == await naively(organization, groups, **wanted), wanted
                assert all(len(one.records) <= limit and one.examined <= scanned for one in found)


@in_loop
async def test_a_listed_record_has_all_fields(deployment: OptOutDeployment) -> None:
    """It has the name of its group; records of other channels are not listed."""
    organization = await deployment.new_organization()
    await organization.on("sms").submit(out("+442079460018"))
    await organization.submit(out("a@x.org", deployment.ago(90), source="a form"))
    answer = await organization.submit(out("b@x.org", reason="legal"), all_groups=True)
    listing = await page(organization)
    assert (listing.org_slug, listing.org_name, listing.channel) == (
        organization.slug,
        organization.slug.title(),
        "email",
    )
    for_all, ours = listing.records
    assert (for_all.id, for_all.group_id, for_all.group_name) == (answer.items[0].id, None, None)  # type: ignore[index]
    assert ours == ListedRecord(
        id=ours.id,
        address="a@x.org",
        group_id=organization.default_group,
        group_name="Newsletter",
        status="unsubscribed",
        reason="unsubscribe",
        source="a form",
        occurred_ms=deployment.now_ms - 90,
        recorded_ms=deployment.now_ms,
        seq=1,
    )
    assert (listing.older, listing.examined, listing.is_cut) == (None, 2, False)


@in_loop
async def test_paging_during_writes_shows_no_record_twice(deployment: OptOutDeployment) -> None:
    """A record that changes meanwhile moves to the newest, so it may be left out; all others are shown."""
    chance = random.Random(7)  # noqa: S311 - the same examples every time
    organization = await deployment.new_organization()
    for at in range(5):
        await organization.submit(*(out(f"p{n}@x.org") for n in range(at * 40, at * 40 + 40)))
    before = {row["id"]: row["seq"] for row in await organization.rows("unsubscribes", "seq")}

    async def write() -> None:
        for _ in range(30):
            deployment.clock.advance(1)
            people = chance.sample(range(230), 5)
            await organization.submit(*(back(f"p{n}@x.org", deployment.ago(0)) for n in people))
            await asyncio.sleep(0)

    async def read() -> list[ListedRecord]:
        found, older = [], None
        while True:
            listing = await page(organization, before_seq=older, limit=7, status=chance.choice([None, "unsubscribed"]))
            found += listing.records
            older = listing.older
            if older is None:
                return found

    _, found = await asyncio.gather(write(), read())
    ids = [record.id for record in found]
    assert len(ids) == len(set(ids))
    after = {row["id"]: row["seq"] for row in await organization.rows("unsubscribes", "seq")}
    assert {id_ for id_, seq in before.items() if after[id_] == seq} <= set(ids)
    assert [record.seq for record in found] == sorted((record.seq for record in found), reverse=True)


@in_loop
async def test_a_search_ends_with_its_time_and_says_so(
    deployment: OptOutDeployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page shows the matches up to there, possibly none, and the next page continues below."""
    organization = await deployment.new_organization()
    await organization.submit(out("legal@x.org", reason="legal"))
    size, searched = 600, 51 + 200 + 200  # a page, to begin with
    await organization.submit(*(out(f"p{n}@x.org") for n in range(size - 2)), is_minimal=True)
    oldest_ms = deployment.now_ms
    deployment.clock.advance(60)
    await organization.submit(out("last@x.org"))
    limit_scans(monkeypatch, 3, rows=200)
    first, second = await pages(organization, reason="legal")
    assert (first.records, first.is_cut, first.examined) == ([], True, searched)
    assert (first.oldest_ms, first.newest_ms) == (oldest_ms, deployment.now_ms)
    assert first.older == size - searched + 1
    assert (seqs(second), second.is_cut, second.examined, second.older) == ([1], False, size - searched, None)
    assert (second.oldest_ms, second.newest_ms) == (None, None)
    full = await page(organization, reason="unsubscribe", limit=20)
    assert (len(full.records), full.is_cut, full.examined, full.older) == (20, False, 20, size - 19)
    plain = await page(organization, limit=20)
    assert (len(plain.records), plain.is_cut, plain.examined, plain.older) == (20, False, 20, size - 19)


@in_loop
async def test_the_last_page_has_no_next_page(deployment: OptOutDeployment) -> None:
    """The page may be exactly full, or empty."""
    organization = await deployment.new_organization()
    assert await pages(organization) == [await page(organization)]
    assert (await page(organization)).records == []
    assert (await page(organization, recorded_from_ms=0, recorded_until_ms=deployment.now_ms)).examined == 0
    await organization.submit(*(out(f"p{n}@x.org") for n in range(6)))
    for status in (None, "unsubscribed"):
        found = await pages(organization, limit=3, status=status)
        assert [seqs(one) for one in found] == [[6, 5, 4], [3, 2, 1]]
        assert [one.older for one in found] == [4, None]


@in_loop
async def test_dates_are_found_despite_clocks_that_differ(deployment: OptOutDeployment) -> None:
    """Records may be dated some minutes out of the order of their numbers."""
    chance = random.Random(8)  # noqa: S311 - the same examples every time
    organization = await deployment.new_organization()
    start_ms = deployment.now_ms
    for n in range(120):
        deployment.clock.advance(chance.randrange(90))
        people = [f"p{n}@x.org", f"p{chance.randrange(n + 1)}@x.org"]
        await organization.submit(
            *(out(who) for who in people[:1]), *(back(who, deployment.ago(0)) for who in people[1:])
        )
    # Programs before this release dated records by their own clocks.
    for row in await organization.rows("unsubscribes", "seq"):
        skew_ms = chance.choice([0, 0, chance.randrange(DISORDER_MS)])
        await execute(
            deployment.database,
            "UPDATE unsubscribes SET recorded_ms = recorded_ms + :skew_ms WHERE feed_id = :feed_id AND seq = :seq",
            skew_ms=skew_ms,
            feed_id=organization.feed_id,
            seq=row["seq"],
        )
    times = [row["recorded_ms"] for row in await organization.rows("unsubscribes", "seq")]
    assert times != sorted(times)
    for _ in range(12):
        first, end = sorted(chance.choice([chance.choice(times), start_ms + chance.randrange(9_000_000)]) for _ in "ab")
        for wanted in (
            {"recorded_from_ms": first},
            {"recorded_until_ms": end},
            {"recorded_from_ms": first, "recorded_until_ms": end},
        ):
            assert seqs(await pages(organization, **wanted, limit=9)) == await naively(organization, {}, **wanted)


@in_loop
async def test_a_date_is_found_by_binary_search(deployment: OptOutDeployment) -> None:
    """Records above and below it are not examined, however many there are."""
    organization = await deployment.new_organization()
    for n in range(30):
        await organization.submit(*(out(f"p{n}-{m}@x.org") for m in range(100)), is_minimal=True)
        deployment.clock.advance(60 * 60)
    day_ms = deployment.now_ms - 15 * 60 * MINUTE_MS
    found = await pages(organization, recorded_from_ms=day_ms, recorded_until_ms=day_ms + 1, limit=60)
    assert [len(one.records) for one in found] == [60, 40]
    # The day's own hundred records, and the last record before them, at which the search ended.
    assert [one.examined for one in found] == [60, 41]


@in_loop
async def test_listing_needs_a_visible_organization(deployment: OptOutDeployment) -> None:
    """The answer is the same as if there were none."""
    ours, theirs = await deployment.new_organization(), await deployment.new_organization()
    told = []
    for slug in (theirs.slug, "nobody", "no slug", "\0"):
        with pytest.raises(Missing) as refusal:
            await page(ours, org_slug=slug)
        told.append(refusal.value.text.replace(repr(slug), "…"))
    assert len(set(told)) == 1
    assert (
        await list_records(BOSS, deployment.database, org_slug=theirs.slug, channel=CHANNELS["email"])
    ).records == []


@in_loop
async def test_an_impossible_filter_is_refused(deployment: OptOutDeployment) -> None:
    """Such as a group of another organization; the refusal names the filter."""
    ours, theirs = await deployment.new_organization(), await deployment.new_organization()
    for field, text in (
        ("group", theirs.default_group),
        ("group", ""),
        ("group", "\0"),
        ("status", "gone"),
        ("reason", "\0"),
    ):
        with pytest.raises(Refused) as refusal:
            await page(ours, **{field: text})
        assert refusal.value.field == field


@in_loop
async def test_out_of_range_numbers_are_accepted(deployment: OptOutDeployment) -> None:
    """They come from URLs of pages, which people edit."""
    organization = await deployment.new_organization()
    await organization.submit(out("a@x.org"))
    assert seqs(await page(organization, before_seq=2**80)) == [1]
    assert seqs(await page(organization, before_seq=-(2**80))) == []
