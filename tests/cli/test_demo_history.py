"""The history that `serve --demo` adds to an empty database (docs/interface.md section D9)."""

import re
from itertools import pairwise
from typing import Any

from stoplist.cli import demo_history
from stoplist.db import Database
from stoplist.oauth.key_alerts import list_key_alerts
from stoplist.organizations.groups import list_groups
from stoplist.records.daily_counts import recent_changes, totals
from tests.builders import ADMINISTRATOR, on_each_database, on_sqlite, sql
from tests.constants import DAY_MS
from tests.fakes import FakeClock

# RFC 2606; 555-01xx of the North American plan; Ofcom's numbers for drama.
RESERVED = re.compile(
    r"[a-z0-9.]+@example\.(com|net|org)|\+1\d{3}55501\d\d|\+447700900\d{3}|\+442079460\d{3}", re.ASCII
)


async def records(database: Database) -> list[dict[str, Any]]:
    """Return all records in the order of their changes."""
    text = "SELECT feed_id, address, group_no, status, reason, occurred_ms, recorded_ms FROM unsubscribes"
    return [dict(row) for row in await database.all(sql(f"{text} ORDER BY feed_id, seq"))]


@on_each_database
async def test_a_demo_has_two_months_of_plausible_opt_outs(database: Database, clock: FakeClock) -> None:
    """A few thousand on every channel, for several groups and reasons, fewer at weekends, with some resubscriptions."""
    await demo_history.fill(ADMINISTRATOR, database, clock)
    sums = await totals(ADMINISTRATOR, database)
    assert all(one.unsubscribed > 100 and one.resubscribed > 0 for one in sums)
    assert 2_000 < sum(one.unsubscribed for one in sums) < 10_000
    days = (await recent_changes(ADMINISTRATOR, database, clock, days=demo_history.DAYS)).days
    by_mail = [one for one in days if one.channel == "email"]
    assert all(one.unsubscribed for one in by_mail)
    weekends = [one.unsubscribed for one in by_mail if one.day % 7 in (2, 3)]  # 1970 began on a Thursday
    workdays = [one.unsubscribed for one in by_mail if one.day % 7 not in (2, 3)]
    assert sum(weekends) / len(weekends) < sum(workdays) / len(workdays)
    assert len((await recent_changes(ADMINISTRATOR, database, clock)).reasons) > 5
    groups = await list_groups(ADMINISTRATOR, database, org_slug=demo_history.SLUG)
    assert len(groups) == 3
    assert {row["group_no"] for row in await records(database)} == {0, 1, 2}
    (key,) = await list_key_alerts(ADMINISTRATOR, database, clock)
    assert key.limit_refusals


@on_sqlite
async def test_demo_addresses_are_reserved_ones(database: Database, clock: FakeClock) -> None:
    """Reserved domains, and numbers reserved for fiction."""
    await demo_history.fill(ADMINISTRATOR, database, clock)
    strange = [row["address"] for row in await records(database) if not RESERVED.fullmatch(row["address"])]
    assert strange == []


@on_sqlite
async def test_demo_opt_outs_are_in_the_past_and_in_order(database: Database, clock: FakeClock) -> None:
    """None is dated in the future, and later changes are not recorded on an earlier day."""
    await demo_history.fill(ADMINISTRATOR, database, clock)
    rows = await records(database)
    # The clocks set back go on while the database is filled, which takes less than a minute.
    end_ms = clock.now_ms() + 60_000
    assert all(row["occurred_ms"] < row["recorded_ms"] < end_ms for row in rows)
    assert min(row["recorded_ms"] for row in rows) < clock.now_ms() - (demo_history.DAYS - 1) * DAY_MS
    for earlier, later in pairwise(rows):
        if earlier["feed_id"] == later["feed_id"]:
            assert earlier["recorded_ms"] // DAY_MS <= later["recorded_ms"] // DAY_MS


@on_sqlite
async def test_the_demo_key_was_used_every_day(database: Database, clock: FakeClock) -> None:
    """So that the page of the key has something to show."""
    await demo_history.fill(ADMINISTRATOR, database, clock)
    rows = await database.all(sql("SELECT day, requests, limit_refusals FROM client_days ORDER BY day"))
    assert len(rows) >= demo_history.DAYS - 1
    assert all(row["requests"] > row["limit_refusals"] for row in rows)
