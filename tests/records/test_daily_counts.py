"""Counts by day, totals and reasons, compared with the records. docs/interface.md sections D6 and D11."""

import random
from collections import Counter
from typing import Any

import msgspec
import pytest

from stoplist.actor import Actor
from stoplist.errors import Missing
from stoplist.records import daily_counts
from stoplist.records.daily_counts import DayCount, ReasonCount, Total, recent_changes, totals
from tests.constants import DAY_MS
from tests.deployment import in_loop
from tests.unsubscribes.partner import OptOutDeployment, Organization, back, out
from tests.unsubscribes.people import BOSS, viewer

CHANNELS = ("email", "sms", "phone")


async def busy(deployment: OptOutDeployment, chance: random.Random, *, days: int = 40) -> Organization:
    """Return an organization whose people opt out and come back on every channel for some days."""
    organization = await deployment.new_organization()
    for _ in range(days):
        deployment.clock.advance(chance.randrange(24 * 60 * 60))
        channel = chance.choice(CHANNELS)
        items = []
        for n in chance.choices(range(12), k=4):
            who = f"p{n}@x.org" if channel == "email" else f"+4420794600{n + 10}"
            reason = chance.choice(["complaint", "bounce", "manual"])
            items.append(chance.choice([out(who, reason=reason), back(who, deployment.ago(0))]))
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


async def by_day(deployment: OptOutDeployment, actor: Actor, **arguments: Any) -> list[DayCount]:
    return (await recent_changes(actor, deployment.database, deployment.clock, **arguments)).days


@in_loop
async def test_counts_equal_those_of_all_changes(deployment: OptOutDeployment) -> None:
    """They are summed over all organizations that the actor sees, or belong to one of them."""
    chance = random.Random(9)  # noqa: S311 - the same examples every time
    ours, also_ours, theirs = [await busy(deployment, chance) for _ in range(3)]
    actor = viewer(ours, also_ours)
    for seen, org_slug in (([ours, also_ours], None), ([ours], ours.slug), ([also_ours], also_ours.slug)):
        all_changes = await changes(seen)
        today = deployment.now_ms // DAY_MS
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
            assert await by_day(deployment, actor, days=days, org_slug=org_slug) == expected
            assert (
                await recent_changes(actor, deployment.database, deployment.clock, days=days, org_slug=org_slug)
            ).days_before == [
                msgspec.structs.replace(
                    one,
                    day=one.day - days,
                    unsubscribed=counted[one.channel, one.day - days, "unsubscribed"],
                    resubscribed=counted[one.channel, one.day - days, "resubscribed"],
                )
                for one in expected
            ]
            why = Counter(
                (reason, day > today - days)
                for _, day, status, reason in all_changes
                if status == "unsubscribed" and day > today - 2 * days
            )
            reasons = (
                await recent_changes(actor, deployment.database, deployment.clock, days=days, org_slug=org_slug)
            ).reasons
            assert {one.reason: (one.unsubscribed, one.before) for one in reasons} == {
                reason: (why[reason, True], why[reason, False]) for reason, _ in why
            }
            assert [one.unsubscribed for one in reasons] == sorted((one.unsubscribed for one in reasons), reverse=True)
        now = Counter((channel, row["status"]) for channel, row in await states(seen, "unsubscribes"))
        assert await totals(actor, deployment.database, org_slug=org_slug) == [
            Total(channel=one, unsubscribed=now[one, "unsubscribed"], resubscribed=now[one, "resubscribed"])
            for one in CHANNELS
        ]
    assert await totals(viewer(theirs), deployment.database) != await totals(actor, deployment.database)


@in_loop
async def test_counts_without_records_are_zero(deployment: OptOutDeployment) -> None:
    """An actor without an organization gets zeros too."""
    organization = await deployment.new_organization()
    for actor in (viewer(), viewer(organization)):
        assert [(one.unsubscribed, one.resubscribed) for one in await by_day(deployment, actor)] == [(0, 0)] * 90
        assert [(one.channel, one.unsubscribed) for one in await totals(actor, deployment.database)] == [
            (channel, 0) for channel in CHANNELS
        ]
        assert (await recent_changes(actor, deployment.database, deployment.clock)).reasons == []


@in_loop
async def test_days_end_at_midnight_utc(deployment: OptOutDeployment) -> None:
    """The last day is today."""
    organization = await deployment.new_organization()
    deployment.clock.advance((DAY_MS - deployment.now_ms % DAY_MS) / 1000)
    deployment.clock.advance(-0.001)
    await organization.submit(out("a@x.org"))
    deployment.clock.advance(0.001)
    await organization.submit(out("b@x.org"), out("c@x.org"))
    days = [one for one in await by_day(deployment, viewer(organization), days=3) if one.channel == "email"]
    today = deployment.now_ms // DAY_MS
    assert [(one.day - today, one.unsubscribed) for one in days] == [(-2, 0), (-1, 1), (0, 2)]


@in_loop
async def test_an_administrator_counts_every_organization_in_slices(
    deployment: OptOutDeployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No organization is lost between slices."""
    before = (await totals(BOSS, deployment.database))[0].unsubscribed
    organizations = [await deployment.new_organization() for _ in range(5)]
    for one in organizations:
        await one.submit(out("a@x.org", reason="legal"))
    for at_once in (1, 2, 3, 1_000):
        monkeypatch.setattr(daily_counts, "_FEEDS_AT_ONCE", at_once)
        assert (await totals(BOSS, deployment.database))[0].unsubscribed == before + 5
        assert (await totals(viewer(*organizations), deployment.database))[0].unsubscribed == 5
        reasons = (await recent_changes(viewer(*organizations), deployment.database, deployment.clock)).reasons
        assert reasons == [ReasonCount(reason="legal", unsubscribed=5)]


@in_loop
async def test_counts_need_a_visible_organization(deployment: OptOutDeployment) -> None:
    """The answer is that there is none."""
    ours, theirs = await deployment.new_organization(), await deployment.new_organization()
    for arguments in (
        recent_changes(viewer(ours), deployment.database, deployment.clock, org_slug=theirs.slug),
        totals(viewer(ours), deployment.database, org_slug=theirs.slug),
    ):
        with pytest.raises(Missing):
            await arguments
