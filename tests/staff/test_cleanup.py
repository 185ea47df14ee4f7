"""What expired is deleted, in bites, and nothing else."""

from stoplist import ids
from stoplist.chores import delete_all_ended
from stoplist.staff.cleanup import BITE_ROWS, delete_ended
from stoplist.staff.model import SignedIn
from tests.builders import execute, value
from tests.staff.staff_fixture import Office, in_an_office


@in_an_office
async def test_links_sessions_and_attempts_go_when_their_time_is_over(office: Office) -> None:
    """Not a millisecond earlier."""
    made = await office.invite("ann@example.org")
    await office.invite("bob@example.org")
    assert isinstance(await office.use_link(made.link_token), SignedIn)
    await attempt(office)
    assert await counts(office) == (1, 1, 1)
    office.clock.advance(899.999)
    await delete_all_ended(office.database, office.clock)
    assert await counts(office) == (1, 1, 1)
    office.clock.advance(0.001)
    await delete_all_ended(office.database, office.clock)
    assert await counts(office) == (1, 1, 0)
    office.clock.advance(43_200 - 900)
    await delete_all_ended(office.database, office.clock)
    assert await counts(office) == (1, 0, 0)
    office.clock.advance(43_200)
    await delete_all_ended(office.database, office.clock)
    assert await counts(office) == (0, 0, 0)


@in_an_office
async def test_a_session_of_seven_days_goes_however_lately_it_was_used(office: Office) -> None:
    """Its time is over."""
    await office.hire("ann@example.org")
    office.clock.advance(604_800)
    await execute(office.database, "UPDATE sessions SET seen_ms = :now_ms", now_ms=office.clock.now_ms())
    await delete_all_ended(office.database, office.clock)
    assert await counts(office) == (0, 0, 0)


@in_an_office
async def test_much_goes_in_bites(office: Office) -> None:
    """So that others write in between."""
    for after in (1, 501):
        await execute(
            office.database,
            # Rows by the thousand come from digits, which both databases can multiply.
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
    await attempt(office)
    now_ms = office.clock.now_ms()
    assert [await delete_ended(office.database, now_ms) for _ in range(3)] == [BITE_ROWS, BITE_ROWS, 0]
    assert await counts(office) == (0, 0, 1)


async def attempt(office: Office) -> None:
    """A failed attempt of now."""
    await execute(
        office.database,
        "INSERT INTO sign_in_attempts (attempt_id, source, account_hash, at_ms) VALUES (:id, 'x', :hash, :now_ms)",
        id=ids.new_id(""),
        hash=bytes(32),
        now_ms=office.clock.now_ms(),
    )


async def counts(office: Office) -> tuple[int, ...]:
    """How many links, sessions and attempts there are."""
    return tuple(
        [
            int(await value(office.database, f"SELECT COUNT(*) AS n FROM {table}"))  # noqa: S608
            for table in ("sign_in_links", "sessions", "sign_in_attempts")
        ]
    )
