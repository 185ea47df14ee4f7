"""The behaviour of the driver interface is the same on both databases."""

import asyncio
from typing import Any

import pytest

from stoplist.db import HEAVY_ROWS, Database, Transaction
from tests.builders import execute, on_each_database, sql

MAKE = "CREATE TABLE things (number BIGINT NOT NULL PRIMARY KEY, content TEXT)"
ADD = sql("INSERT INTO things (number, content) VALUES (:number, :content) RETURNING number")
CHANGE = sql("UPDATE things SET content = :content WHERE number >= :number")
FIND = sql("SELECT number, content FROM things WHERE number = :number")
ALL = sql("SELECT number, content FROM things ORDER BY number")

pytestmark = pytest.mark.interpreter


@pytest.fixture(params=["sqlite", "postgresql", "pooled"])
def database_url(request: pytest.FixtureRequest) -> str:
    """Return an empty database; on PostgreSQL the test also runs through a pooler."""
    url: str = request.getfixturevalue(f"{request.param}_url")
    return url


async def create_table(database: Database) -> dict[int, str]:
    return {row["number"]: row["content"] for row in await database.all(ALL)}


@on_each_database
async def test_a_row_is_read_by_column_names(database: Database) -> None:
    """`one` is the first row, or None."""
    await execute(database, MAKE)
    await database.write_one(ADD, number=1, content="one")
    row = await database.one(FIND, number=1)
    assert row is not None
    assert (row["number"], row["content"]) == (1, "one")
    assert await database.one(FIND, number=2) is None
    assert (await database.one(ALL))["number"] == 1  # type: ignore[index]


@on_each_database
async def test_all_rows_come_in_order(database: Database) -> None:
    """Slices of a long read are joined without loss."""
    await execute(database, MAKE)
    add = sql("INSERT INTO things (number, content) VALUES (:number, '')")

    async def fill(transaction: Transaction) -> None:
        for number in range(1_001):
            await transaction.run(add, number=number)

    await database.write(fill)
    for least in (0, 1, 801, 802, 1_000, 1_001):
        rows_found = await database.all(
            sql("SELECT number FROM things WHERE number >= :least ORDER BY number"), least=least
        )
        assert [row["number"] for row in rows_found] == list(range(least, 1_001))


@on_each_database
async def test_a_write_of_one_statement_returns_its_row(database: Database) -> None:
    """RETURNING gives the row; None means that nothing was changed."""
    await execute(database, MAKE)
    row = await database.write_one(ADD, number=7, content="")
    assert row is not None
    assert row["number"] == 7
    assert await database.write_one(CHANGE, number=100, content="x") is None
    assert await create_table(database) == {7: ""}


@on_each_database
async def test_statements_of_a_unit_see_one_another(database: Database) -> None:
    """`one`, `all` and `run` in one transaction; `run` returns the row count; the unit's result is returned."""
    await execute(database, MAKE)

    async def unit(transaction: Transaction) -> list[Any]:
        touched = [await transaction.run(ADD, number=number, content="new") for number in (1, 2, 3)]
        changed = await transaction.run(CHANGE, number=2, content="changed")
        none = await transaction.run(CHANGE, number=9, content="changed")
        first = await transaction.one(FIND, number=1)
        assert first is not None
        return [touched, changed, none, first["content"], len(await transaction.all(ALL)), await _gone(transaction)]

    async def _gone(transaction: Transaction) -> object:
        return await transaction.one(FIND, number=9)

    assert await database.write(unit) == [[1, 1, 1], 2, 0, "new", 3, None]
    assert await create_table(database) == {1: "new", 2: "changed", 3: "changed"}


@on_each_database
async def test_an_exception_undoes_the_whole_unit(database: Database) -> None:
    """It reaches the caller unchanged."""
    await execute(database, MAKE)
    await database.write_one(ADD, number=1, content="before")

    async def fails(transaction: Transaction) -> None:
        await transaction.run(CHANGE, number=1, content="after")
        await transaction.run(ADD, number=2, content="after")
        raise LookupError("as it is")

    with pytest.raises(LookupError, match="as it is"):
        await database.write(fails)
    assert await create_table(database) == {1: "before"}


@on_each_database
async def test_a_returned_refusal_keeps_its_changes(database: Database) -> None:
    """A reuse alarm raised as an exception would undo itself."""
    await execute(database, MAKE)

    async def refuses(transaction: Transaction) -> LookupError:
        await transaction.run(ADD, number=1, content="the mark")
        return LookupError("refused")

    assert isinstance(await database.write(refuses), LookupError)
    assert await create_table(database) == {1: "the mark"}


@on_each_database
async def test_concurrent_units_lose_no_change(database: Database) -> None:
    """Fifty units add to one row, each by a statement that reads and writes."""
    await execute(database, MAKE)
    await database.write_one(ADD, number=1, content="0")
    more = sql("UPDATE things SET content = CAST(CAST(content AS bigint) + 1 AS text) WHERE number = 1")
    await asyncio.gather(*(database.write(lambda transaction: transaction.run(more)) for _ in range(50)))
    assert await create_table(database) == {1: "50"}


@on_each_database
async def test_the_driver_counts_its_writes(database: Database) -> None:
    """The metrics show units, commits and waits. Afterwards nothing waits, including failed units."""
    await execute(database, MAKE)
    before, commits_before = database.counts.writes, database.counts.commits
    answers = await asyncio.gather(
        *(database.write_one(ADD, number=number, content="") for number in (1, 2, 2)), return_exceptions=True
    )
    assert sum(isinstance(answer, Exception) for answer in answers) == 1
    assert database.counts.writes == before + 3
    # SQLite commits waiting units together; failed units are in no commit.
    assert database.counts.commits == commits_before + (1 if database.kind == "sqlite" else 2)
    assert database.counts.write_wait_ns > 0
    assert database.counts.waiting == 0


@on_each_database
async def test_a_statement_that_returns_rows_counts_them_all(database: Database) -> None:
    """It does so in small units and in heavy ones."""
    await execute(database, MAKE)
    for number in range(3):
        await database.write_one(ADD, number=number, content="")
    changed = sql("UPDATE things SET content = 'x' WHERE number < 2 RETURNING number")

    async def change(transaction: Transaction) -> int:
        return await transaction.run(changed)

    assert [await database.write(change, queue_key=1, rows=rows) for rows in (1, HEAVY_ROWS + 1)] == [2, 2]


@on_each_database
async def test_only_postgresql_has_its_own_clock(database: Database) -> None:
    """SQLite uses this machine's clock."""
    assert (await database.clock_ms() is None) == (database.kind == "sqlite")


def test_on_each_database_gives_a_migrated_database(database_url: str) -> None:
    """The decorator opens the database its name says; each kind is tried."""
    kinds: list[str] = []

    @on_each_database
    async def looks(database: Database) -> None:
        assert await database.one(sql("SELECT environment FROM deployment")) is not None
        kinds.append(database.kind)

    looks(database_url=database_url)
    assert kinds == [database_url.split(":")[0]]
