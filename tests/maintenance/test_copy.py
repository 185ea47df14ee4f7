"""A deployment moved from SQLite to PostgreSQL: whole, verified, and nobody's until it is.

Source: docs/interface.md section D9.
"""

import asyncio
import random
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import asyncpg
import pytest

from stoplist.clock import Clock
from stoplist.db import schema
from stoplist.db.opening import single_server_lock
from stoplist.db.schema import load_migrations
from stoplist.errors import Refused, SettingsError, StoplistError
from stoplist.maintenance.copy import copy
from stoplist.maintenance.copy.copy import Step
from stoplist.maintenance.copy.target import CopyTarget
from stoplist.oauth.bearer import find_bearer
from stoplist.oauth.tokens import State, find_refresh_token, rotate_pair
from tests.builders import STRANGER, audit_rows, opened
from tests.migration_fixture import ADDRESSES, OWN, Interrupted, Move, ends_after, executed, make_move
from tests.services.pgbouncer import PgBouncer
from tests.services.postgresql import Server
from tests.unsubscribes.partner import Organization, Place, addresses, out

ROOT = Path(__file__).parents[2]
LAST = ("clients", "client_organizations")

# Copies in small chunks and says after each slice how far it is, to be killed at any moment. For that it waits when it
# has said so many lines as its third argument: the whole copy takes less time than its killer may be held up.
COPIES = """
import asyncio, signal, sys
from stoplist.maintenance.copy.copy import copy_deployment
from tests.builders import ADMINISTRATOR
from stoplist.clock import Clock

left = int(sys.argv[3])

def report(step):
    global left
    print(step.doing, step.rows, flush=True)
    left -= 1
    if left == 0:
        signal.pause()

asyncio.run(copy_deployment(
    ADMINISTRATOR, Clock(), source_url=sys.argv[1], target_url=sys.argv[2], chunk_rows=5, report=report,
))
print("done", flush=True)
"""

HIDDEN_CHANGE = """
    CREATE FUNCTION change() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        {}
    END $$
"""


class Template(NamedTuple):
    """A lived-in source and an empty target, of which each test takes copies."""

    move: Move
    server: Server

    def taken(self, folder: Path) -> Move:
        database = self.move.target_url.rsplit("/", 1)[1]
        target = self.server.fresh_database("move", template=database)
        source = folder / "data" / "stoplist.db"
        source.parent.mkdir()
        shutil.copy(self.move.path, source)
        return self.move._replace(source_url=f"sqlite:///{source}", target_url=target)


@pytest.fixture(scope="module")
def template(module_sqlite_url: str, module_postgresql_url: str, postgresql: Server) -> Template:
    """Made once for all the tests of this module."""
    return Template(make_move(module_sqlite_url, module_postgresql_url), postgresql)


@pytest.fixture
def move(template: Template, tmp_path: Path, request: pytest.FixtureRequest) -> Move:
    """A move that was not begun, of the test's own."""
    move = template.taken(tmp_path)
    request.addfinalizer(lambda: template.server.drop_database(move.target_url))  # noqa: PT021
    return move


def moved(move: Move) -> None:
    """Every row of the source is in the target, which is a deployment like any other."""
    target = move.target()
    arrived = max(target["audit"])
    assert arrived[6:8] == ("database.copied", "database")
    target["audit"].remove(arrived)
    assert target == move.source()
    assert move.target_is_served()


# What arrives


def test_the_source_of_these_tests_has_something_in_every_table(template: Template) -> None:
    """A migration that adds a table is heeded here: what is copied of it is seen to be copied."""
    assert [table for table, rows in template.move.source().items() if not rows] == []


def test_every_row_of_every_table_arrives(move: Move) -> None:
    """As it is, whatever its type, and nothing else but one row of the audit."""
    done = move.copy()
    assert done.environment == "development"
    assert done.rows == {table: len(rows) for table, rows in move.source().items()}
    assert done.rows_before == 0
    moved(move)


def test_a_whole_table_in_one_chunk_arrives_too(move: Move) -> None:
    """As the command does it."""
    move.copy(chunk_rows=copy.CHUNK_ROWS)
    moved(move)


def test_the_source_stays_as_it_is(move: Move) -> None:
    """It is only read: whoever changes his mind starts his server there again."""
    before = move.source()
    move.copy()
    assert move.source() == before


def test_the_audit_says_who_copied_when_and_how_much(move: Move) -> None:
    """One row, after all those of the source."""

    async def last() -> Any:
        async with opened(move.target_url, pool_size=2) as database:
            return (await audit_rows(database))[-1]

    done = move.copy()
    row = asyncio.run(last())
    assert (row.actor, row.action, row.target) == ("command tester", "database.copied", "database")
    assert row.detail == {"rows": sum(done.rows.values())}
    assert abs(row.at_ms - Clock().now_ms()) < 60_000  # by the clock of the target


def test_the_deployment_is_as_old_as_it_was(move: Move) -> None:
    """It was not made today."""
    move.change("UPDATE deployment SET created_ms = 1234567890123")
    move.copy()
    assert asyncio.run(executed(move.target_url, "SELECT created_ms FROM deployment"))[0][0] == 1234567890123


def test_what_partners_hold_stays_good(move: Move) -> None:
    """Access token and refresh token; the one that was used raises the alarm; the cursor skips nothing."""
    move.copy()
    held = move.handed_out

    async def body() -> None:
        async with opened(move.target_url, pool_size=2) as database:
            place = Place(database, move.clock)
            assert await find_bearer(database, move.clock, held.access_token) is not None
            used = await find_refresh_token(database, held.used_refresh_token, move.clock.now_ms())
            assert used is not None
            assert used.state is State.ROTATED
            renewed = await rotate_pair(database, move.clock, held.refresh_token)
            assert renewed is not None
            assert await find_bearer(database, move.clock, renewed.access_token) is not None
            there: Organization = held.organization._replace(place=place)
            await there.submit(out("new@example.org"))
            since = addresses(await there.feed(held.cursor))
            assert since[-1] == "new@example.org"
            assert set(since) >= set(ADDRESSES[10:])

    asyncio.run(body())


def test_what_numbers_its_rows_goes_on_after_the_last(move: Move) -> None:
    """A new organization, a new token and a new row of the audit meet no old number."""
    move.copy()
    before = move.target()

    async def body() -> None:
        async with opened(move.target_url, pool_size=2) as database:
            place = Place(database, move.clock)
            organization = await place.new_organization()
            assert organization.organization_id == max(row[0] for row in before["organizations"]) + 1

    asyncio.run(body())
    for table, column in (("token_pairs", "pair_id"), ("audit", "audit_id")):
        (row,) = asyncio.run(
            executed(move.target_url, f"SELECT nextval(pg_get_serial_sequence('{table}', '{column}'))")
        )
        assert row[0] > max(row[0] for row in before[table])


def test_it_works_through_a_pooler_in_transaction_mode(move: Move, pgbouncer: PgBouncer) -> None:
    """Nothing is prepared and nothing set beyond a transaction: the next program on that connection would meet it."""
    through = move._replace(target_url=pgbouncer.url(move.target_url))
    through.interrupted()
    for last_word in ("done\n", None):
        with _copying(through) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            said, wrong = process.stdout.readlines(), process.stderr.read()
        assert said[-1:] == ([last_word] if last_word else []), wrong
    assert "holds something already" in wrong
    moved(move)


def test_time_limits_of_the_target_do_not_stop_it(move: Move) -> None:
    """They are made for requests; a chunk, and above all the verification, may take longer."""
    name = move.target_url.rsplit("/", 1)[1]
    move.change_target(
        f"ALTER DATABASE \"{name}\" SET statement_timeout = '1h'",
        HIDDEN_CHANGE.format(
            "IF current_setting('statement_timeout') <> '0' THEN RAISE 'limited'; END IF; RETURN NEW;"
        ),
        "CREATE TRIGGER change BEFORE INSERT ON feeds FOR EACH ROW EXECUTE FUNCTION change()",
        "CREATE TRIGGER change BEFORE INSERT ON clients FOR EACH ROW EXECUTE FUNCTION change()",
    )
    move.copy()
    moved(move)


def test_it_takes_an_administrator(move: Move) -> None:
    """Nobody else reads all there is."""
    with pytest.raises(Refused, match="administrator"):
        move.copy(actor=STRANGER)


# Interrupted


def steps_of(move: Move) -> list[Step]:
    """All that one copy tells of."""
    steps: list[Step] = []
    move.copy(report=steps.append)
    return steps


def test_interrupted_anywhere_it_goes_on_to_the_same_end(template: Template, tmp_path: Path) -> None:
    """After every step that is told of: nobody can use the target meanwhile, and in the end all is there once."""
    (tmp_path / "counted").mkdir()
    count = len(steps_of(template.taken(tmp_path / "counted")))
    assert count > 30
    for steps in range(1, count + 1, 5):
        (tmp_path / str(steps)).mkdir()
        move = template.taken(tmp_path / str(steps))
        move.interrupted(after=steps)
        assert not move.target_is_served()
        there = move.target()
        assert not any(there[table] for table in LAST)
        done = move.copy()
        assert done.rows_before == sum(map(len, there.values()))
        moved(move)
        template.server.drop_database(move.target_url)


def test_interrupted_again_and_again_it_comes_to_its_end(move: Move) -> None:
    """Each run takes up where the last one was, and checks what is there."""
    runs = 0
    while not move.target_is_served() or not runs:
        runs += 1
        try:
            move.copy(report=ends_after(14 + runs))
        except Interrupted:
            continue
    assert runs > 3
    moved(move)


@pytest.mark.parametrize("moment", ["BEFORE UPDATE ON copy_progress", "BEFORE DELETE ON copy_progress"])
def test_a_connection_that_breaks_leaves_rows_and_progress_as_they_were(move: Move, moment: str) -> None:
    """Neither the rows without their progress, nor the last rows without all else; the text says how to go on."""
    move.change_target(
        HIDDEN_CHANGE.format("PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NEW;"),
        f"CREATE TRIGGER change {moment} FOR EACH ROW EXECUTE FUNCTION change()",
    )
    with pytest.raises(Refused, match=r"SQLSTATE (57P01|08).*run the same command again"):
        move.copy()
    assert not move.target_is_served()
    assert not move.target()["clients"]
    move.change_target("DROP TRIGGER change ON copy_progress")
    move.copy()
    moved(move)


def test_killed_at_any_moment_it_goes_on(move: Move) -> None:
    """By kill -9, in the middle of whatever it does: of a chunk too."""
    chance = random.Random(20)  # noqa: S311
    for _ in range(4):
        lines = chance.randint(1, 25)
        with _copying(move, most_lines=lines + 3) as process:
            assert process.stdout is not None
            for _ in range(lines):
                assert process.stdout.readline()
            process.kill()
    assert not move.target_is_served()
    with _copying(move) as process:
        assert process.stdout is not None
        assert process.stdout.readlines()[-1] == "done\n"
    moved(move)


def test_a_killed_copy_s_commit_that_is_still_under_way_is_waited_for(move: Move) -> None:
    """The server goes on with it when its client is gone, and what it brings is not to be copied again."""
    move.change_target(
        HIDDEN_CHANGE.format("PERFORM pg_advisory_xact_lock_shared(1); RETURN NULL;"),
        "CREATE CONSTRAINT TRIGGER change AFTER UPDATE ON copy_progress DEFERRABLE INITIALLY DEFERRED "
        "FOR EACH ROW EXECUTE FUNCTION change()",
    )

    async def body() -> None:
        holds_up = await asyncpg.connect(move.target_url)
        await holds_up.execute("SELECT pg_advisory_lock(1)")
        with _copying(move) as process:
            await _are_waiting(holds_up, 1)
            process.kill()
        goes_on = asyncio.create_task(asyncio.to_thread(move.copy))
        await _are_waiting(holds_up, 2)
        await holds_up.execute("SELECT pg_advisory_unlock(1)")
        done = await goes_on
        assert done.rows_before > 0
        await holds_up.close()

    asyncio.run(body())
    moved(move)


async def _are_waiting(connection: Any, number: int) -> None:
    """So many wait for a lock, within a while."""
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    async with asyncio.timeout(60):
        while await connection.fetchval(waiting) != number:
            pass


def _copying(move: Move, *, most_lines: int = 0) -> "subprocess.Popen[str]":
    """A process that copies, to the end or until it has said so many lines."""
    return subprocess.Popen(
        [sys.executable, "-c", COPIES, move.source_url, move.target_url, str(most_lines)],
        cwd=ROOT,
        env={"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE submissions SET received = received + 1 WHERE rowid = 1",
        "DELETE FROM audit WHERE audit_id = 1",
        "UPDATE feeds SET head_seq = head_seq + 1 WHERE rowid = 1",
    ],
)
def test_a_source_that_changed_since_it_was_interrupted_is_refused(move: Move, change: str) -> None:
    """A server ran on it again: what was copied before is old by now, and opt-outs would be lost."""
    move.interrupted(after=len(steps_of_plain(move)) - 1)
    move.change(change)
    with pytest.raises(Refused, match=r"not what it was.*stoplist migrate"):
        move.copy()
    assert not move.target_is_served()


def steps_of_plain(move: Move) -> list[int]:
    """As many as there are steps before the verification begins, with chunks of 7 rows."""
    return [0 for table, rows in move.source().items() if table not in LAST for _ in range(0, len(rows), 7)]


def test_rows_that_came_after_the_last_copied_one_are_copied_too(move: Move) -> None:
    """What is only new was not missed: it goes along."""
    move.interrupted(after=3)
    move.change(
        "INSERT INTO audit SELECT audit_id + 1000, at_ms, actor_kind, actor_id, NULL, NULL, action, target, detail "
        "FROM audit"
    )
    move.copy()
    moved(move)


# Verified

CHANGES = {
    "a value of one row": ("unsubscribes", "IF NEW.seq = 5 THEN NEW.reason := 'complaint'; END IF; RETURN NEW;"),
    "two values that change places": ("feed_days", "NEW.changes := NEW.day; NEW.day := 1; RETURN NEW;"),
    "an empty text in place of nothing": ("unsubscribes", "NEW.source := coalesce(NEW.source, ''); RETURN NEW;"),
    "a row that is lost": ("feeds", "IF NEW.channel = 'sms' THEN RETURN NULL; END IF; RETURN NEW;"),
    "a byte of a hash": ("token_pairs", "NEW.access_hash := set_byte(NEW.access_hash, 31, 1); RETURN NEW;"),
    "a key, in the last transaction": ("clients", "NEW.epoch := NEW.epoch + 1; RETURN NEW;"),
}  # fmt: skip


@pytest.mark.parametrize(("table", "body"), CHANGES.values(), ids=CHANGES)
def test_a_target_that_stores_something_else_is_found(move: Move, table: str, body: str) -> None:
    """Whatever the reason, the table is named, and nothing ever works on that target."""
    move.change_target(
        HIDDEN_CHANGE.format(body),
        f"CREATE TRIGGER change BEFORE INSERT ON {table} FOR EACH ROW EXECUTE FUNCTION change()",
    )
    for _ in range(2):
        with pytest.raises(Refused, match=rf"The table {table} is not the same.*stoplist migrate"):
            move.copy()
        assert not move.target_is_served()
        assert move.target()["clients"] == []


def test_a_row_that_is_changed_after_it_was_copied_is_found(move: Move) -> None:
    """By whoever works on the target nevertheless."""

    def report(step: Step) -> None:
        if step.doing == "verify":
            meanwhile(move.change_target, "UPDATE unsubscribes SET status = 'resubscribed' WHERE seq = 7")

    with pytest.raises(Refused, match="The table unsubscribes is not the same"):
        move.copy(report=report)


UNFIT = {
    "a text in a column of integers": "UPDATE audit SET at_ms = 'hush' WHERE rowid = 3",
    "a fraction": "UPDATE audit SET at_ms = 1.5 WHERE rowid = 3",
    "an integer out of range": "UPDATE submissions SET received = 3000000000 WHERE rowid = 3",
    "a zero byte in a text": "UPDATE audit SET actor_id = 'hu' || char(0) || 'sh' WHERE rowid = 3",
    "bytes in a column of texts": "UPDATE audit SET actor_id = x'6875' WHERE rowid = 3",
    "a text that is not UTF-8": "UPDATE audit SET actor_id = CAST(x'68ff' AS TEXT) WHERE rowid = 3",
    "a surrogate": "UPDATE audit SET actor_id = CAST(x'eda080' AS TEXT) WHERE rowid = 3",
    "a text in a column of bytes": "UPDATE token_pairs SET access_hash = 'hush' WHERE rowid = 2",
}


@pytest.mark.parametrize("change", UNFIT.values(), ids=UNFIT)
def test_a_value_that_postgresql_cannot_take_is_refused_by_table_and_row(move: Move, change: str) -> None:
    """Never with the value itself; once it is put right the copy goes on."""
    table, rowid = change.split()[1], change.split()[-1]
    move.change(change)
    with pytest.raises(Refused, match=f"The row {rowid} of the source's table {table} ") as refusal:
        move.copy()
    assert "hu" not in refusal.value.text.replace("thus", "")
    assert not move.target_is_served()


def test_a_row_that_breaks_a_rule_of_the_schema_is_refused(move: Move) -> None:
    """SQLite does not look at what was there before a rule, nor where it is told not to."""
    move.change("PRAGMA foreign_keys=OFF", "UPDATE groups SET organization_id = 4711")
    with pytest.raises(Refused, match="table groups breaks the rule groups_organization_id_fkey"):
        move.copy()


def test_a_damaged_source_is_refused(move: Move) -> None:
    """An index that has more or fewer rows than the table: what is counted by it is not what is there."""
    for other in ("token_pairs_refresh", "unsubscribes_seq"):
        root = f"SELECT rootpage FROM sqlite_master WHERE name = '{other}'"  # noqa: S608
        move.change(
            "PRAGMA writable_schema=ON",
            f"UPDATE sqlite_master SET rootpage = ({root}) WHERE name = 'audit_time'",  # noqa: S608
        )
        with pytest.raises(Refused, match=r"table audit is damaged: \d+ rows are counted, and 18 can be read"):
            move.copy(chunk_rows=1)
        assert not move.target_is_served()


# Refused before anything is written

Change = Callable[[Move], Any]
REFUSED_TARGETS: dict[str, tuple[str, str]] = {
    "an organization": ("INSERT INTO organizations (slug, name, created_ms) VALUES ('a', 'A', 0)", "holds something"),
    "the use of a key": ("INSERT INTO client_days VALUES ('svc_ci_x', 1, 1, 1, 1, 1)", "in the table client_days"),
    "an old schema": ("UPDATE deployment SET schema_version = 2", "--to: .*run `stoplist migrate`"),
    "the schema of a later release": ("UPDATE deployment SET schema_version = 99", "--to: .*the release that made it"),
    "the other environment": ("UPDATE deployment SET environment = 'production'", "the development .*production"),
    "a table more": ("CREATE TABLE theirs (a TEXT)", "not the same tables and columns .theirs"),
    "a column more": ("ALTER TABLE feeds ADD COLUMN a TEXT", "not the same tables and columns .feeds"),
    "a type that is not known": ("ALTER TABLE feeds ALTER COLUMN channel TYPE varchar(9)", "cannot copy all columns"),
    "something else": ("ALTER TABLE deployment RENAME TO other", "--to: there is no Stoplist database"),
}  # fmt: skip


@pytest.mark.parametrize(("change", "text"), REFUSED_TARGETS.values(), ids=REFUSED_TARGETS)
def test_a_target_that_is_not_empty_and_of_this_schema_is_refused(move: Move, change: str, text: str) -> None:
    """And is left as it was."""
    move.change_target(change)
    before = move.target()
    with pytest.raises(StoplistError, match=text):
        move.copy()
    assert move.target() == before


@pytest.mark.parametrize("change", ["UPDATE deployment SET schema_version = 2", "DROP TABLE deployment"])
def test_a_source_that_is_not_of_this_schema_is_refused(move: Move, change: str) -> None:
    """The text says which of the two is meant."""
    move.change(change)
    with pytest.raises(SettingsError, match=r"--from: .*`stoplist migrate`"):
        move.copy()


def test_a_source_with_a_table_more_is_refused(move: Move) -> None:
    """What it holds would be left behind."""
    move.change("CREATE TABLE theirs (a TEXT)")
    with pytest.raises(Refused, match="theirs"):
        move.copy()


def test_a_target_in_another_encoding_is_refused(move: Move, postgresql: Server) -> None:
    """It could not take every address."""
    name = f"{move.target_url.rsplit('/', 1)[1]}_latin"
    postgresql.execute(f'CREATE DATABASE "{name}" TEMPLATE template0 ENCODING LATIN1 LOCALE "C"')
    latin = move._replace(target_url=postgresql.url(name))

    async def migrate() -> None:
        async with opened(latin.target_url, pool_size=2) as database:
            await schema.migrate(database, environment="development", now_ms=0)

    try:
        asyncio.run(migrate())
        with pytest.raises(Refused, match="UTF8"):
            latin.copy()
    finally:
        postgresql.drop_database(latin.target_url)


def test_a_source_that_a_server_runs_on_is_refused(move: Move) -> None:
    """It writes what the copy would not have."""
    with single_server_lock(move.source_url), pytest.raises(SettingsError, match="stop it first"):
        move.copy()


def test_a_source_that_a_command_writes_to_is_refused(move: Move, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until it has finished."""
    monkeypatch.setattr("stoplist.maintenance.copy.source._LOCK_WAIT_MS", 10)
    with closing(sqlite3.connect(move.path, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        with pytest.raises(Refused, match="Another command writes"):
            move.copy()


def test_while_it_lasts_nobody_serves_or_changes_the_source(move: Move) -> None:
    """Neither a server, nor a command that is quick."""
    failures: list[str] = []

    def report(_: Step) -> None:
        if not failures:
            with pytest.raises(SettingsError, match="stoplist copy"), single_server_lock(move.source_url):
                pass
            with closing(sqlite3.connect(move.path, timeout=0)) as connection:
                with pytest.raises(sqlite3.OperationalError) as failure:
                    connection.execute("UPDATE feeds SET writes = 0")
                failures.append(failure.value.sqlite_errorname)

    move.copy(report=report)
    assert failures == ["SQLITE_BUSY"]


def test_while_it_is_not_finished_no_program_works_on_the_target(move: Move) -> None:
    """Servers, commands and `migrate` alike are told how it is finished."""
    move.interrupted()

    async def body() -> None:
        async with opened(move.target_url, pool_size=2) as database:
            known = await schema.read(database)
            assert known is not None
            newest = load_migrations()[-1].number
            with pytest.raises(SettingsError, match=r"stoplist copy.*same command again"):
                schema.check(known, environment=None, newest=newest)
            with pytest.raises(SettingsError, match="stoplist copy"):
                await schema.migrate(database, environment="development", now_ms=0)

    asyncio.run(body())


@pytest.mark.parametrize(
    ("step", "text"), [("begin", "holds something"), ("fill", "Another .*copy"), ("completing", "Another .*copy")]
)
def test_two_copies_into_one_target_do_not_mix(
    move: Move, tmp_path: Path, step: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From another file, as one file is read by one copy: the slower one is refused, and the other is whole."""
    other = copy_of(move, tmp_path / "other")
    overtake(move, step, other.copy, text, monkeypatch)
    moved(other)


def test_of_two_copies_that_begin_at_once_one_begins(
    move: Move, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have seen an empty database."""
    other = copy_of(move, tmp_path / "other")
    overtake(move, "begin", other.interrupted, "Another .*copy", monkeypatch)
    other.copy()
    moved(other)


def copy_of(move: Move, folder: Path) -> Move:
    """A move of the same things, from another file."""
    folder.mkdir()
    return move._replace(source_url=f"sqlite:///{shutil.copy(move.path, folder / 'stoplist.db')}")


def overtake(move: Move, step: str, overtaking: Callable[[], Any], text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another copy goes by at the first such step of this one, which is then refused."""
    original = getattr(CopyTarget, step)

    def overtaken(*values: Any, **named: Any) -> Any:
        monkeypatch.setattr(CopyTarget, step, original)
        meanwhile(overtaking)
        return original(*values, **named)

    monkeypatch.setattr(CopyTarget, step, overtaken)
    with pytest.raises(Refused, match=text):
        move.copy()


def meanwhile(work: Callable[..., Any], *values: Any) -> None:
    """Do this to its end in the middle of a copy, whose own loop stands still."""
    with ThreadPoolExecutor(max_workers=1) as thread:
        thread.submit(work, *values).result()


def test_each_database_keeps_what_is_its_own() -> None:
    """Nothing but the two tables that say so is left out."""
    assert set(OWN) == copy._OWN
