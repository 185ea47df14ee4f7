"""Counts by day, totals and reasons, compared with the records. docs/interface.md sections D6 and D11."""

import random
from collections import Counter
from typing import Any

import pytest

from stoplist.actor import Actor
from stoplist.errors import Missing
from stoplist.records import daily_counts
from stoplist.records.daily_counts import DayCount, ReasonCount, Total, recent_changes, totals
from tests.unsubscribes.partner import InLoop, Organization, back, in_loop, out
from tests.unsubscribes.people import BOSS, viewer

DAY_MS = 24 * 60 * 60 * 1000
CHANNELS = ("email", "sms", "phone")


async def busy(place: InLoop, chance: random.Random, *, days: int = 40) -> Organization:
    """Return an organization whose people opt out and come back on every channel for some days."""
    organization = await place.new_organization()
    for _ in range(days):
        place.clock.advance(chance.randrange(24 * 60 * 60))
        channel = chance.choice(CHANNELS)
        items = []
        for n in chance.choices(range(12), k=4):
            who = f"p{n}@x.org" if channel == "email" else f"+4420794600{n + 10}"
            reason = chance.choice(["complaint", "bounce", "manual"])
            items.append(chance.choice([out(who, reason=reason), back(who, place.ago(0))]))
        await organization.on(channel).submit(*items, all_groups=chance.random() < 0.3)
    return organization


async def states(organizations: list[Organization], table: str) -> list[tuple[str, dict[str, Any]]]:
    """Return each row with its channel."""
    return [
        (channel, row)
        for one in organizations
        for channel in CHANNELS
        for row in await one.on(channel).rows(table, "seq")
    ]


async def changes(organizations: list[Organization]) -> list[tuple[str, int, str, str]]:
    """Return every change one by one: channel, day, status, reason."""
    rows = await states(organizations, "unsubscribes") + await states(organizations, "unsubscribe_versions")
    return [(channel, row["recorded_ms"] // DAY_MS, row["status"], row["reason"]) for channel, row in rows]


async def by_day(place: InLoop, actor: Actor, **arguments: Any) -> list[DayCount]:
    return (await recent_changes(actor, place.database, place.clock, **arguments)).days


@in_loop
async def test_counts_equal_those_of_all_changes(place: InLoop) -> None:
    """Over all organizations that the actor sees, and for one of them."""
    chance = random.Random(9)  # noqa: S311 - the same examples every time
    ours, also_ours, theirs = [await busy(place, chance) for _ in range(3)]
    actor = viewer(ours, also_ours)
    for seen, org_slug in (([ours, also_ours], None), ([ours], ours.slug), ([also_ours], also_ours.slug)):
        all_changes = await changes(seen)
        today = place.now_ms // DAY_MS
        for days in (1, 7, 30, 400):
            counted = Counter((channel, day, status) for channel, day, status, _ in all_changes)
            expected = [
                DayCount(
                    day=day,
                    channel=channel,
                    unsubscribed=counted[channel, day, "unsubscribed"],
                    resubscribed=counted[channel, day, "resubscribed"],
                )
                for day in range(today - days + 1, today + 1)
                for channel in CHANNELS
            ]
            assert await by_day(place, actor, days=days, org_slug=org_slug) == expected
            why = Counter(
                reason for _, day, status, reason in all_changes if status == "unsubscribed" and day > today - days
            )
            reasons = (await recent_changes(actor, place.database, place.clock, days=days, org_slug=org_slug)).reasons
            assert {one.reason: one.unsubscribed for one in reasons} == why
            assert [one.unsubscribed for one in reasons] == sorted(why.values(), reverse=True)
        now = Counter((channel, row["status"]) for channel, row in await states(seen, "unsubscribes"))
        assert await totals(actor, place.database, org_slug=org_slug) == [
            Total(channel=one, unsubscribed=now[one, "unsubscribed"], resubscribed=now[one, "resubscribed"])
            for one in CHANNELS
        ]
    assert await totals(viewer(theirs), place.database) != await totals(actor, place.database)


@in_loop
async def test_counts_without_records_are_zero(place: InLoop) -> None:
    """Also for an actor without an organization."""
    organization = await place.new_organization()
    for actor in (viewer(), viewer(organization)):
        assert [(one.unsubscribed, one.resubscribed) for one in await by_day(place, actor)] == [(0, 0)] * 90
        assert [(one.channel, one.unsubscribed) for one in await totals(actor, place.database)] == [
            (channel, 0) for channel in CHANNELS
        ]
        assert (await recent_changes(actor, place.database, place.clock)).reasons == []


@in_loop
async def test_days_end_at_midnight_utc(place: InLoop) -> None:
    """The last day is today."""
    organization = await place.new_organization()
    place.clock.advance((DAY_MS - place.now_ms % DAY_MS) / 1000)
    place.clock.advance(-0.001)
    await organization.submit(out("a@x.org"))
    place.clock.advance(0.001)
    await organization.submit(out("b@x.org"), out("c@x.org"))
    days = [one for one in await by_day(place, viewer(organization), days=3) if one.channel == "email"]
    today = place.now_ms // DAY_MS
    assert [(one.day - today, one.unsubscribed) for one in days] == [(-2, 0), (-1, 1), (0, 2)]


@in_loop
async def test_an_administrator_counts_every_organization_in_slices(
    place: InLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No organization is lost between slices."""
    before = (await totals(BOSS, place.database))[0].unsubscribed
    organizations = [await place.new_organization() for _ in range(5)]
    for one in organizations:
        await one.submit(out("a@x.org", reason="legal"))
    for at_once in (1, 2, 3, 1_000):
        monkeypatch.setattr(daily_counts, "_FEEDS_AT_ONCE", at_once)
        assert (await totals(BOSS, place.database))[0].unsubscribed == before + 5
        assert (await totals(viewer(*organizations), place.database))[0].unsubscribed == 5
        reasons = (await recent_changes(viewer(*organizations), place.database, place.clock)).reasons
        assert reasons == [ReasonCount(reason="legal", unsubscribed=5)]


@in_loop
async def test_counts_need_a_visible_organization(place: InLoop) -> None:
    """The answer is that there is none."""
    ours, theirs = await place.new_organization(), await place.new_organization()
    for arguments in (
        recent_changes(viewer(ours), place.database, place.clock, org_slug=theirs.slug),
        totals(viewer(ours), place.database, org_slug=theirs.slug),
    ):
        with pytest.raises(Missing):
            await arguments
