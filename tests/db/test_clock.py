"""All hosts of a deployment have one time (docs/interface.md section D1, Clock)."""

from stoplist.clock import Clock
from stoplist.db import Database
from stoplist.db.clock import follow_clock
from tests.builders import on_each_database, value
from tests.constants import DAY_S
from tests.fakes import FakeClock


@on_each_database
async def test_the_clock_follows_the_database(database: Database) -> None:
    """PostgreSQL's server has the clock; with SQLite it stays that of this machine."""
    fast, right = FakeClock(), Clock()
    fast.jump(-7 * DAY_S)
    before_ms = fast.now_ms()
    await follow_clock(fast, database)
    if database.kind == "sqlite":
        assert fast.now_ms() == before_ms
        return
    theirs_ms = await value(database, "SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000 AS bigint) AS ms")
    # The clock was far off; less than a minute passes between the two queries.
    assert abs(fast.now_ms() - theirs_ms) < 60_000
    await follow_clock(right, database)
    assert abs(right.now_ms() - theirs_ms) < 60_000
