"""The cleanup deletes expired rows, in batches, and nothing else."""

from stoplist import ids
from stoplist.chores import delete_all_ended
from stoplist.db import Transaction
from stoplist.db.query import load_queries
from stoplist.staff.cleanup import BATCH_ROWS, delete_ended
from stoplist.staff.model import SignedIn
from tests.builders import execute, migrated, opened, value
from tests.deployment import in_own_loop
from tests.staff.staff_fixture import StaffDeployment, with_staff


@with_staff
async def test_links_sessions_and_attempts_are_deleted_on_expiry(staff: StaffDeployment) -> None:
    """They are not deleted a millisecond earlier."""
    link = await staff.invite("ann@example.org")
    await staff.invite("bob@example.org")
    assert isinstance(await staff.use_link(link.link_token), SignedIn)
    await attempt(staff)
    assert await counts(staff) == (1, 1, 1)
    staff.clock.advance(899.999)
    await delete_all_ended(staff.database, staff.clock)
    assert await counts(staff) == (1, 1, 1)
    staff.clock.advance(0.001)
    await delete_all_ended(staff.database, staff.clock)
    assert await counts(staff) == (1, 1, 0)
    staff.clock.advance(43_200 - 900)
    await delete_all_ended(staff.database, staff.clock)
    assert await counts(staff) == (1, 0, 0)
    staff.clock.advance(43_200)
    await delete_all_ended(staff.database, staff.clock)
    assert await counts(staff) == (0, 0, 0)


@with_staff
async def test_a_session_of_seven_days_is_deleted_even_if_in_use(staff: StaffDeployment) -> None:
    await staff.create("ann@example.org")
    staff.clock.advance(604_800)
    await execute(staff.database, "UPDATE sessions SET seen_ms = :now_ms", now_ms=staff.clock.now_ms())
    await delete_all_ended(staff.database, staff.clock)
    assert await counts(staff) == (0, 0, 0)


@with_staff
async def test_many_rows_are_deleted_in_batches(staff: StaffDeployment) -> None:
    """Other writers run in between."""
    for after in (1, 501):
        await execute(
            staff.database,
            # Both databases can make thousands of rows by joining digits.
            """INSERT INTO sign_in_attempts (attempt_id, source, account_hash, at_ms)
            SELECT :mark || a.d || b.d || c.d, 'x', :hash, a.d * 100 + b.d * 10 + c.d + :after
            FROM (SELECT 0 AS d UNION SELECT 1 UNION SELECT 2 UNION SELECT 3 UNION SELECT 4) a
            CROSS JOIN (SELECT 0 AS d UNION SELECT 1 UNION SELECT 2 UNION SELECT 3 UNION SELECT 4 UNION SELECT 5
                        UNION SELECT 6 UNION SELECT 7 UNION SELECT 8 UNION SELECT 9) b
            CROSS JOIN (SELECT 0 AS d UNION SELECT 1 UNION SELECT 2 UNION SELECT 3 UNION SELECT 4 UNION SELECT 5
                        UNION SELECT 6 UNION SELECT 7 UNION SELECT 8 UNION SELECT 9) c""",
            mark=ids.new_id(""),
            after=after,
            hash=bytes(32),
        )
    await attempt(staff)
    now_ms = staff.clock.now_ms()
    assert [await delete_ended(staff.database, now_ms) for _ in range(3)] == [BATCH_ROWS, BATCH_ROWS, 0]
    assert await counts(staff) == (0, 0, 1)


@in_own_loop
async def test_only_one_process_deletes_at_a_time(postgresql_url: str) -> None:
    """Another one deletes nothing, and waits for nothing. SQLite has one process."""
    async with migrated(postgresql_url) as one, opened(postgresql_url) as other:
        staff = StaffDeployment(one)
        await attempt(staff)
        staff.clock.advance(900)

        async def delete_beside_another(transaction: Transaction) -> int:
            await transaction.one(load_queries("stoplist.staff")["may_delete_ended"])
            return await delete_ended(other, staff.clock.now_ms())

        assert await one.write(delete_beside_another) == 0
        assert await delete_ended(other, staff.clock.now_ms()) == 1


async def attempt(staff: StaffDeployment) -> None:
    """Add a failed attempt made now."""
    await execute(
        staff.database,
        "INSERT INTO sign_in_attempts (attempt_id, source, account_hash, at_ms) VALUES (:id, 'x', :hash, :now_ms)",
        id=ids.new_id(""),
        hash=bytes(32),
        now_ms=staff.clock.now_ms(),
    )


async def counts(staff: StaffDeployment) -> tuple[int, ...]:
    """Return the numbers of links, sessions and attempts."""
    return tuple(
        [
            int(await value(staff.database, f"SELECT COUNT(*) AS n FROM {table}"))  # noqa: S608
            for table in ("sign_in_links", "sessions", "sign_in_attempts")
        ]
    )
