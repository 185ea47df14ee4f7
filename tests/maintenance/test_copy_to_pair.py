"""A deployment copied from SQLite to a pair of databases: as complete as in one, and no server starts on half of it.

Source: docs/interface.md sections D9 and D1, Feeds apart.
"""

import asyncio
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from stoplist import __version__
from stoplist.databases.foreign_feeds import find_foreign_feeds
from stoplist.databases.opening import check_databases
from stoplist.db.sharding import FEED_TABLES, distribute
from stoplist.db.split import SplitDatabase
from stoplist.errors import Refused, SettingsError, StoplistError
from stoplist.maintenance.copy.copy import Step
from stoplist.maintenance.copy.target import CopyTarget
from tests.builders import apart, opened
from tests.migration_fixture import Interrupted, Move, interrupt_after, make_move, rows_of
from tests.services.citus import Citus
from tests.services.postgresql import PostgresqlServer, run_statements

FEEDS_WITHOUT_OWNERS = "UPDATE feeds SET organization_uid = NULL"


@pytest.fixture(scope="module")
def template(module_sqlite_url: str, postgresql: PostgresqlServer) -> Iterator[Move]:
    """A filled source and an empty pair, once for this module. The feeds carry no owner yet, as of an older program."""
    urls = [postgresql.fresh_database(name) for name in ("accounts", "feeds")]
    move = make_move(module_sqlite_url, apart(*urls))
    move.change_source(FEEDS_WITHOUT_OWNERS)
    yield move
    for url in urls:
        postgresql.drop_database(url)


@pytest.fixture
def move(template: Move, postgresql: PostgresqlServer, tmp_path: Path) -> Iterator[Move]:
    """Copies of them for this test."""
    assert template.feeds_url is not None
    urls = [
        postgresql.fresh_database("move", template=url.rsplit("/", 1)[1])
        for url in (template.target_url, template.feeds_url)
    ]
    source = shutil.copy(template.path, tmp_path / "stoplist.db")
    yield template._replace(source_url=f"sqlite:///{source}", target_url=urls[0], feeds_url=urls[1])
    for url in urls:
        postgresql.drop_database(url)


def feeds_url(move: Move) -> str:
    assert move.feeds_url is not None
    return move.feeds_url


@asynccontextmanager
async def pair_of(move: Move) -> AsyncIterator[SplitDatabase]:
    async with opened(apart(move.target_url, feeds_url(move)), pool_size=2) as database:
        assert isinstance(database, SplitDatabase)
        yield database


def start(move: Move) -> None:
    """Check the pair as a server does before it starts."""

    async def body() -> None:
        async with pair_of(move) as database:
            assert await check_databases(database, environment="development") is not None
            assert await find_foreign_feeds(database) == []

    asyncio.run(body())


def assert_unusable(move: Move) -> None:
    with pytest.raises(SettingsError, match="`stoplist copy` has not finished"):
        start(move)


def assert_copied(move: Move) -> None:
    """Assert that each row is in the database where it belongs and in no other, and that the pair is usable."""
    accounts, feeds, source = rows_of(move.target_url), rows_of(feeds_url(move)), move.source_rows()
    assert not any(rows for table, rows in accounts.items() if table in FEED_TABLES)
    assert not any(rows for table, rows in feeds.items() if table not in FEED_TABLES)
    arrived = max(accounts["audit"])
    assert arrived[6:8] == ("database.copied", "database")
    accounts["audit"].remove(arrived)
    both = {table: (feeds if table in FEED_TABLES else accounts)[table] for table in source}
    # Of a feed its organization is named in the last column.
    for rows in (both, source):
        rows["feeds"] = sorted(row[:-1] for row in rows["feeds"])
    assert both == source
    start(move)


def test_each_row_arrives_where_it_belongs(move: Move) -> None:
    """Every feed carries the id of its organization, without which it would count as that of a stranger."""
    source = move.source_rows()
    result = move.copy()
    assert result.rows == {table: len(rows) for table, rows in source.items()}
    assert_copied(move)


def test_organizations_without_an_id_get_one(move: Move) -> None:
    """An older program created them."""
    move.change_source("UPDATE organizations SET uid = NULL")
    move.copy()
    start(move)


def test_no_older_program_may_use_the_pair(move: Move) -> None:
    """Even where the first erasure was by an older one."""
    move.change_source("UPDATE deployment SET oldest_program = '0.1.0'")
    move.copy()
    (row,) = run_statements(move.target_url, "SELECT oldest_program, first_erasure_ms FROM deployment")
    assert row[0] == __version__
    assert row[1] is not None


@pytest.mark.parametrize("steps", [1, 9, 24, 40])
def test_an_interrupted_copy_can_be_resumed(move: Move, steps: int) -> None:
    move.interrupt(after=steps)
    assert_unusable(move)
    assert move.copy().rows_before > 0 or steps == 1
    assert_copied(move)


def test_feeds_are_copied_to_a_citus(sqlite_url: str, citus: Citus, postgresql: PostgresqlServer) -> None:
    """After an interruption as well."""
    accounts, feeds = postgresql.fresh_database("accounts"), citus.fresh_database("feeds")
    move = make_move(sqlite_url, apart(accounts, feeds))

    async def spread() -> None:
        async with pair_of(move) as database:
            await distribute(database.feeds, has_accounts=False)

    asyncio.run(spread())
    move.interrupt(after=24)
    assert_unusable(move)
    move.copy()
    assert_copied(move)
    postgresql.drop_database(accounts)
    citus.drop_database(feeds)


@pytest.mark.slow
def test_a_copy_interrupted_repeatedly_finishes(move: Move) -> None:
    runs = 0
    while True:
        runs += 1
        try:
            move.copy(report=interrupt_after(14 + 4 * runs))
        except Interrupted:
            assert_unusable(move)
        else:
            break
    assert runs > 3
    assert_copied(move)


def interrupt_at(patch: pytest.MonkeyPatch, method: str, *, call: int, does_it: bool) -> None:
    """End the copy at that call of a method of its targets, before it or after it."""
    original, calls = getattr(CopyTarget, method), iter(range(1, call))

    async def ending(target: CopyTarget, *values: Any, **named: Any) -> Any:
        is_end = next(calls, None) is None
        result = await original(target, *values, **named) if does_it or not is_end else None
        if is_end:
            raise Interrupted
        return result

    patch.setattr(CopyTarget, method, ending)


@pytest.mark.parametrize(("call", "does_it"), [(1, True), (2, False), (2, True)])
def test_an_end_between_the_two_beginnings_is_gone_on_with(
    move: Move, monkeypatch: pytest.MonkeyPatch, call: int, does_it: bool
) -> None:
    with monkeypatch.context() as patch:
        interrupt_at(patch, "begin", call=call, does_it=does_it)
        with pytest.raises(Interrupted):
            move.copy()
    assert_unusable(move)
    move.copy()
    assert_copied(move)


def interrupt_between_completions(move: Move, patch: pytest.MonkeyPatch) -> None:
    """Complete the accounts, and end before the feeds are."""
    original, calls = CopyTarget.completion, iter(range(1))

    def ending(target: CopyTarget) -> Any:
        if next(calls, None) is None:
            raise Interrupted
        return original(target)

    with patch.context() as inner:
        inner.setattr(CopyTarget, "completion", ending)
        with pytest.raises(Interrupted):
            move.copy()


def test_an_end_between_the_two_completions_is_gone_on_with(move: Move, monkeypatch: pytest.MonkeyPatch) -> None:
    """The accounts are complete; the feeds are too, but do not say so yet. Nothing is in the audit twice."""
    interrupt_between_completions(move, monkeypatch)
    assert_unusable(move)
    result = move.copy()
    assert result.rows_before == sum(result.rows.values())
    assert_copied(move)


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE submissions SET received = received + 1 WHERE rowid = 1",
        "INSERT INTO feed_outbox (feed_id, entry_id, kind, body, added_ms) VALUES (17, 'late', 'audit', '{}', 1)",
    ],
)
def test_a_source_that_changed_between_the_two_completions_is_refused(
    move: Move, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    """A server ran on it again, and what it accepted would be lost."""
    interrupt_between_completions(move, monkeypatch)
    move.change_source(change)
    with pytest.raises(Refused, match="has changed since"):
        move.copy()
    assert_unusable(move)


def test_a_row_changed_in_the_feeds_after_it_was_copied_is_detected(move: Move) -> None:
    def report(step: Step) -> None:
        if step.doing == "verify" and step.rows == 0:
            in_feeds(move, "UPDATE unsubscribes SET status = 'resubscribed' WHERE seq = 7")

    with pytest.raises(Refused, match="The table unsubscribes differs"):
        move.copy(report=report)
    assert_unusable(move)


def in_feeds(move: Move, *statements: str) -> None:
    """Execute statements in the database of the feeds, also during a copy."""
    run_statements(feeds_url(move), *statements)


UNSUITABLE = {
    "exchanged": (lambda move: move._replace(target_url=feeds_url(move), feeds_url=move.target_url), "accounts first"),
    "the accounts alone": (lambda move: move._replace(feeds_url=None), "--to: .*name both"),
    "the feeds alone": (lambda move: move._replace(target_url=feeds_url(move), feeds_url=None), "--to: .*name both"),
    "twice the same": (lambda move: move._replace(feeds_url=move.target_url), "--to-feeds: .*accounts first"),
}


@pytest.mark.parametrize(("change", "text"), UNSUITABLE.values(), ids=UNSUITABLE)
def test_only_a_pair_is_filled(move: Move, change: Any, text: str) -> None:
    with pytest.raises(StoplistError, match=text):
        change(move).copy()
    assert not any(rows_of(move.target_url).values())
    assert not any(rows_of(feeds_url(move)).values())


def test_halves_of_two_pairs_are_not_filled(move: Move) -> None:
    in_feeds(move, "UPDATE deployment SET pair_id = 'another'")
    with pytest.raises(SettingsError, match="not the two databases of one deployment"):
        move.copy()


def test_feeds_of_another_environment_are_refused(move: Move) -> None:
    in_feeds(move, "UPDATE deployment SET environment = 'production'")
    with pytest.raises(SettingsError, match=r"the development .*production"):
        move.copy()


@pytest.mark.parametrize("row", ["import_rejects VALUES (17, 'i', 1, 'x')", "moved_entries VALUES ('a', 1)"])
def test_feeds_that_are_not_empty_are_refused(move: Move, row: str) -> None:
    """Nothing is begun in the accounts either."""
    in_feeds(move, f"INSERT INTO {row}")
    with pytest.raises(Refused, match="is not empty"):
        move.copy()
    (count,) = run_statements(move.target_url, "SELECT count(*) FROM copy_progress")
    assert count[0] == 0
