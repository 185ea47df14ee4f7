"""A deployment copied from SQLite to PostgreSQL: complete, verified, and unusable until then.

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
from stoplist.db import Database, schema
from stoplist.db.opening import single_server_lock
from stoplist.errors import Refused, SettingsError, StoplistError
from stoplist.maintenance.copy import copy
from stoplist.maintenance.copy.copy import Step
from stoplist.maintenance.copy.tables import OWN_TABLES
from stoplist.maintenance.copy.target import CopyTarget
from stoplist.oauth.tokens import TokenState, find_refresh_token
from tests.builders import NEWEST, STRANGER, audit_rows, find_bearer, migrate_to, on_database, opened, rotate_token
from tests.constants import ROOT
from tests.migration_fixture import (
    ADDRESSES,
    NOT_COPIED,
    Interrupted,
    Move,
    assert_copied,
    interrupt_after,
    make_move,
)
from tests.services.pgbouncer import PgBouncer
from tests.services.postgresql import PostgresqlServer, run_statements
from tests.unsubscribes.partner import OptOutDeployment, Organization, addresses, out

LAST_TABLES = ("clients", "client_organizations")

# Copies in small chunks and reports after each slice, to be killed at any moment. To give its killer time, it pauses
# once it has printed as many lines as its third argument says.
COPY_PROGRAM = """
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

TRIGGER_FUNCTION = """
    CREATE FUNCTION change() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        {}
    END $$
"""


class Template(NamedTuple):
    """A filled source and an empty target; each test works on its own copies of them."""

    move: Move
    server: PostgresqlServer

    def copy(self, folder: Path) -> Move:
        database = self.move.target_url.rsplit("/", 1)[1]
        target = self.server.fresh_database("move", template=database)
        source = folder / "data" / "stoplist.db"
        source.parent.mkdir()
        shutil.copy(self.move.path, source)
        return self.move._replace(source_url=f"sqlite:///{source}", target_url=target)


@pytest.fixture(scope="module")
def template(module_sqlite_url: str, module_postgresql_url: str, postgresql: PostgresqlServer) -> Template:
    """Create the source and target once for this module."""
    return Template(make_move(module_sqlite_url, module_postgresql_url), postgresql)


@pytest.fixture
def move(template: Template, tmp_path: Path, request: pytest.FixtureRequest) -> Move:
    """Return a source and target for this test."""
    move = template.copy(tmp_path)
    request.addfinalizer(lambda: template.server.drop_database(move.target_url))  # noqa: PT021
    return move


# What arrives


def test_the_source_has_rows_in_every_table(template: Template) -> None:
    """A migration that adds a table must add rows here, so that copying them is tested."""
    assert [table for table, rows in template.move.source_rows().items() if not rows] == []


def test_every_row_of_every_table_arrives(move: Move) -> None:
    """Unchanged, whatever its type. The target has one audit row more."""
    result = move.copy()
    assert result.environment == "development"
    assert result.rows == {table: len(rows) for table, rows in move.source_rows().items()}
    assert result.rows_before == 0
    assert_copied(move)


def test_an_erasure_goes_on_ending_older_programs(move: Move) -> None:
    """The key by which reads of the same person are told apart arrives, too."""
    facts = "SELECT first_erasure_ms, oldest_program, reading_key FROM deployment"
    with closing(sqlite3.connect(move.path)) as connection:
        (source,) = connection.execute(facts).fetchall()
    assert None not in source
    move.copy()
    assert tuple(run_statements(move.target_url, facts)[0]) == source


def test_a_table_in_one_chunk_arrives_too(move: Move) -> None:
    """The command copies it this way."""
    move.copy(chunk_rows=copy.CHUNK_ROWS)
    assert_copied(move)


def test_the_source_is_not_changed(move: Move) -> None:
    """An operator may decide to start the server on it again."""
    before = move.source_rows()
    move.copy()
    assert move.source_rows() == before


def test_the_audit_says_who_copied_when_and_how_much(move: Move) -> None:
    """One row, after all those of the source."""
    result = move.copy()
    row = on_database(move.target_url, audit_rows)[-1]
    assert (row.actor, row.action, row.target) == ("command tester", "database.copied", "database")
    assert row.detail == {"rows": sum(result.rows.values())}
    assert abs(row.at_ms - Clock().now_ms()) < 60_000  # by the clock of the target


def test_the_creation_time_is_copied(move: Move) -> None:
    move.change_source("UPDATE deployment SET created_ms = 1234567890123")
    move.copy()
    assert PostgresqlServer(move.target_url).value("SELECT created_ms FROM deployment") == 1234567890123


def test_issued_tokens_and_cursors_stay_valid(move: Move) -> None:
    """Access and refresh token are valid; a used refresh token raises the alarm; the cursor skips nothing."""
    move.copy()
    issued = move.issued

    async def body() -> None:
        async with opened(move.target_url, pool_size=2) as database:
            deployment = OptOutDeployment(database, move.clock)
            assert await find_bearer(database, move.clock, issued.access_token) is not None
            used = await find_refresh_token(database, issued.used_refresh_token, move.clock.now_ms())
            assert used is not None
            assert used.state is TokenState.ROTATED
            renewed = await rotate_token(database, move.clock, issued.refresh_token)
            assert renewed is not None
            assert await find_bearer(database, move.clock, renewed.access_token) is not None
            copied: Organization = issued.organization._replace(deployment=deployment)
            await copied.submit(out("new@example.org"))
            since = addresses(await copied.feed(issued.cursor))
            assert since[-1] == "new@example.org"
            assert set(since) >= set(ADDRESSES[10:])

    asyncio.run(body())


def test_numbering_continues_after_the_last_row(move: Move) -> None:
    """A new organization, token and audit row get unused numbers."""
    move.copy()
    before = move.target_rows()

    async def body(database: Database) -> None:
        organization = await OptOutDeployment(database, move.clock).new_organization()
        assert organization.organization_id == max(row[0] for row in before["organizations"]) + 1

    on_database(move.target_url, body)
    for table, column in (("token_pairs", "pair_id"), ("audit", "audit_id")):
        query = f"SELECT nextval(pg_get_serial_sequence('{table}', '{column}'))"
        assert PostgresqlServer(move.target_url).value(query) > max(row[0] for row in before[table])


def test_it_works_through_a_pooler_in_transaction_mode(move: Move, pgbouncer: PgBouncer) -> None:
    """Nothing is prepared or set beyond a transaction: the next client of that server connection would see it."""
    through = move._replace(target_url=pgbouncer.url(move.target_url))
    through.interrupt()
    for last_line in ("done\n", None):
        with _copy_process(through) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            lines, errors = process.stdout.readlines(), process.stderr.read()
        assert lines[-1:] == ([last_line] if last_line else []), errors
    assert "is not empty" in errors
    assert_copied(move)


def test_statement_timeouts_of_the_target_do_not_apply(move: Move) -> None:
    """They are meant for requests; a chunk, and above all the verification, may take longer."""
    name = move.target_url.rsplit("/", 1)[1]
    move.change_target(
        f"ALTER DATABASE \"{name}\" SET statement_timeout = '1h'",
        TRIGGER_FUNCTION.format(
            "IF current_setting('statement_timeout') <> '0' THEN RAISE 'limited'; END IF; RETURN NEW;"
        ),
        "CREATE TRIGGER change BEFORE INSERT ON feeds FOR EACH ROW EXECUTE FUNCTION change()",
        "CREATE TRIGGER change BEFORE INSERT ON clients FOR EACH ROW EXECUTE FUNCTION change()",
    )
    move.copy()
    assert_copied(move)


def test_only_an_administrator_may_copy(move: Move) -> None:
    with pytest.raises(Refused, match="administrator"):
        move.copy(actor=STRANGER)


# Interrupted


def steps_of_copy(move: Move) -> list[Step]:
    """Return all steps that one copy reports."""
    steps: list[Step] = []
    move.copy(report=steps.append)
    return steps


@pytest.mark.slow
def test_a_copy_interrupted_anywhere_can_be_resumed(template: Template, tmp_path: Path) -> None:
    """It stops after any step. The target is unusable meanwhile, and in the end has every row once."""
    (tmp_path / "counted").mkdir()
    count = len(steps_of_copy(template.copy(tmp_path / "counted")))
    assert count > 30
    for steps in range(1, count + 1, 5):
        (tmp_path / str(steps)).mkdir()
        move = template.copy(tmp_path / str(steps))
        move.interrupt(after=steps)
        assert not move.is_target_usable()
        copied = move.target_rows()
        assert not any(copied[table] for table in LAST_TABLES)
        result = move.copy()
        assert result.rows_before == sum(map(len, copied.values()))
        assert_copied(move)
        template.server.drop_database(move.target_url)


@pytest.mark.slow
def test_a_copy_interrupted_repeatedly_finishes(move: Move) -> None:
    """Each run resumes where the last one ended, and checks the existing rows."""
    runs = 0
    while not move.is_target_usable() or not runs:
        runs += 1
        try:
            move.copy(report=interrupt_after(14 + 4 * runs))
        except Interrupted:
            continue
    assert runs > 3
    assert_copied(move)


@pytest.mark.parametrize("moment", ["BEFORE UPDATE ON copy_progress", "BEFORE DELETE ON copy_progress"])
def test_a_broken_connection_leaves_rows_and_progress_consistent(move: Move, moment: str) -> None:
    """No rows are stored without their progress, nor the last tables without the others.

    The text says how to resume.
    """
    move.change_target(
        TRIGGER_FUNCTION.format("PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NEW;"),
        f"CREATE TRIGGER change {moment} FOR EACH ROW EXECUTE FUNCTION change()",
    )
    with pytest.raises(Refused, match=r"SQLSTATE (57P01|08).*run the same command again"):
        move.copy()
    assert not move.is_target_usable()
    assert not move.target_rows()["clients"]
    move.change_target("DROP TRIGGER change ON copy_progress")
    move.copy()
    assert_copied(move)


def test_a_copy_killed_at_any_moment_can_be_resumed(move: Move) -> None:
    """It is killed by kill -9, also in the middle of a chunk."""
    random_numbers = random.Random(20)  # noqa: S311
    for _ in range(4):
        lines = random_numbers.randint(1, 25)
        with _copy_process(move, most_lines=lines + 3) as process:
            assert process.stdout is not None
            for _ in range(lines):
                assert process.stdout.readline()
            process.kill()
    assert not move.is_target_usable()
    with _copy_process(move) as process:
        assert process.stdout is not None
        assert process.stdout.readlines()[-1] == "done\n"
    assert_copied(move)


def test_a_pending_commit_of_a_killed_copy_is_awaited(move: Move) -> None:
    """The server finishes the commit without its client, and those rows must not be copied again."""
    move.change_target(
        TRIGGER_FUNCTION.format("PERFORM pg_advisory_xact_lock_shared(1); RETURN NULL;"),
        "CREATE CONSTRAINT TRIGGER change AFTER UPDATE ON copy_progress DEFERRABLE INITIALLY DEFERRED "
        "FOR EACH ROW EXECUTE FUNCTION change()",
    )

    async def body() -> None:
        lock_holder = await asyncpg.connect(move.target_url)
        await lock_holder.execute("SELECT pg_advisory_lock(1)")
        with _copy_process(move) as process:
            await _wait_for_blocked(lock_holder, 1)
            process.kill()
        resumed = asyncio.create_task(asyncio.to_thread(move.copy))
        await _wait_for_blocked(lock_holder, 2)
        await lock_holder.execute("SELECT pg_advisory_unlock(1)")
        result = await resumed
        assert result.rows_before > 0
        await lock_holder.close()

    asyncio.run(body())
    assert_copied(move)


async def _wait_for_blocked(connection: Any, number: int) -> None:
    """Wait until so many statements wait for a lock."""
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    async with asyncio.timeout(60):
        while await connection.fetchval(waiting) != number:
            pass


def _copy_process(move: Move, *, most_lines: int = 0) -> "subprocess.Popen[str]":
    """Start a process that copies, to the end or until it has printed so many lines."""
    return subprocess.Popen(
        [sys.executable, "-c", COPY_PROGRAM, move.source_url, move.target_url, str(most_lines)],
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
def test_a_source_that_changed_since_the_interruption_is_refused(move: Move, change: str) -> None:
    """A server ran on it again: the rows copied before are outdated, and opt-outs would be lost."""
    move.interrupt(after=len(steps_before_verification(move)) - 1)
    move.change_source(change)
    with pytest.raises(Refused, match=r"has changed since.*stoplist migrate"):
        move.copy()
    assert not move.is_target_usable()


def steps_before_verification(move: Move) -> list[int]:
    """Return an entry per step before the verification, with chunks of 7 rows."""
    return [0 for table, rows in move.source_rows().items() if table not in LAST_TABLES for _ in range(0, len(rows), 7)]


def test_rows_added_after_the_interruption_are_copied_too(move: Move) -> None:
    move.interrupt(after=3)
    move.change_source(
        "INSERT INTO audit SELECT audit_id + 1000, at_ms, actor_kind, actor_id, NULL, NULL, action, target, detail "
        "FROM audit"
    )
    move.copy()
    assert_copied(move)


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
def test_a_target_that_stores_other_values_is_detected(move: Move, table: str, body: str) -> None:
    """The error names the table, whatever the reason, and the target stays unusable."""
    move.change_target(
        TRIGGER_FUNCTION.format(body),
        f"CREATE TRIGGER change BEFORE INSERT ON {table} FOR EACH ROW EXECUTE FUNCTION change()",
    )
    for _ in range(2):
        with pytest.raises(Refused, match=rf"The table {table} differs.*stoplist migrate"):
            move.copy()
        assert not move.is_target_usable()
        assert move.target_rows()["clients"] == []


def test_a_row_changed_after_it_was_copied_is_detected(move: Move) -> None:
    def report(step: Step) -> None:
        if step.doing == "verify":
            in_thread(move.change_target, "UPDATE unsubscribes SET status = 'resubscribed' WHERE seq = 7")

    with pytest.raises(Refused, match="The table unsubscribes differs"):
        move.copy(report=report)


UNSTORABLE = {
    "a text in a column of integers": "UPDATE audit SET at_ms = 'hush' WHERE rowid = 3",
    "a fraction": "UPDATE audit SET at_ms = 1.5 WHERE rowid = 3",
    "an integer out of range": "UPDATE submissions SET received = 3000000000 WHERE rowid = 3",
    "a zero byte in a text": "UPDATE audit SET actor_id = 'hu' || char(0) || 'sh' WHERE rowid = 3",
    "bytes in a column of texts": "UPDATE audit SET actor_id = x'6875' WHERE rowid = 3",
    "a text that is not UTF-8": "UPDATE audit SET actor_id = CAST(x'68ff' AS TEXT) WHERE rowid = 3",
    "a surrogate": "UPDATE audit SET actor_id = CAST(x'eda080' AS TEXT) WHERE rowid = 3",
    "a text in a column of bytes": "UPDATE token_pairs SET access_hash = 'hush' WHERE rowid = 2",
}


@pytest.mark.parametrize("change", UNSTORABLE.values(), ids=UNSTORABLE)
def test_an_unstorable_value_is_refused_with_table_and_row(move: Move, change: str) -> None:
    """The error never shows the value. Once it is corrected, the copy can be resumed."""
    table, rowid = change.split()[1], change.split()[-1]
    move.change_source(change)
    with pytest.raises(Refused, match=f"Row {rowid} of the source's table {table} ") as refusal:
        move.copy()
    assert "hu" not in refusal.value.text.replace("thus", "")
    assert not move.is_target_usable()


def test_a_row_that_breaks_a_constraint_is_refused(move: Move) -> None:
    """SQLite does not check rows older than a constraint, nor with foreign_keys=OFF."""
    move.change_source("PRAGMA foreign_keys=OFF", "UPDATE groups SET organization_id = 4711")
    with pytest.raises(Refused, match="table groups breaks the rule groups_organization_id_fkey"):
        move.copy()


def test_a_damaged_source_is_refused(move: Move) -> None:
    """An index with more or fewer rows than its table: the count does not match the rows read."""
    with closing(sqlite3.connect(move.path)) as connection:
        (rows,) = connection.execute("SELECT COUNT(*) FROM audit NOT INDEXED").fetchone()
    for other in ("token_pairs_refresh", "unsubscribes_seq"):
        root = f"SELECT rootpage FROM sqlite_master WHERE name = '{other}'"  # noqa: S608
        move.change_source(
            "PRAGMA writable_schema=ON",
            f"UPDATE sqlite_master SET rootpage = ({root}) WHERE name = 'audit_time'",  # noqa: S608
        )
        with pytest.raises(Refused, match=rf"table audit is damaged: \d+ rows are counted, but {rows} can be read"):
            move.copy(chunk_rows=1)
        assert not move.is_target_usable()


# Refused before anything is written

Change = Callable[[Move], Any]
REFUSED_TARGETS: dict[str, tuple[str, str]] = {
    "an organization": ("INSERT INTO organizations (slug, name, created_ms) VALUES ('a', 'A', 0)", "is not empty"),
    "the use of a key": ("INSERT INTO client_days VALUES ('svc_ci_x', 1, 1, 1, 1, 1)", "table client_days"),
    "an old schema": ("UPDATE deployment SET schema_version = 2", "--to: .*run `stoplist migrate`"),
    "a later schema": ("UPDATE deployment SET schema_version = 99", "--to: .*the release that created it"),
    "the other environment": ("UPDATE deployment SET environment = 'production'", "the development .*production"),
    "a table more": ("CREATE TABLE theirs (a TEXT)", "not have the same tables and columns .theirs"),
    "a column more": ("ALTER TABLE feeds ADD COLUMN a TEXT", "not have the same tables and columns .feeds"),
    "a type that is not known": ("ALTER TABLE feeds ALTER COLUMN channel TYPE varchar(9)", "cannot copy all columns"),
    "something else": ("ALTER TABLE deployment RENAME TO other", "--to: there is no Stoplist database"),
}  # fmt: skip


@pytest.mark.parametrize(("change", "text"), REFUSED_TARGETS.values(), ids=REFUSED_TARGETS)
def test_a_target_that_is_unsuitable_is_refused(move: Move, change: str, text: str) -> None:
    """It must be empty and have the schema of this release. It is left unchanged."""
    move.change_target(change)
    before = move.target_rows()
    with pytest.raises(StoplistError, match=text):
        move.copy()
    assert move.target_rows() == before


@pytest.mark.parametrize("change", ["UPDATE deployment SET schema_version = 2", "DROP TABLE deployment"])
def test_a_source_of_another_schema_is_refused(move: Move, change: str) -> None:
    """The text says which of the two databases is meant."""
    move.change_source(change)
    with pytest.raises(SettingsError, match=r"--from: .*`stoplist migrate`"):
        move.copy()


def test_a_source_with_an_extra_table_is_refused(move: Move) -> None:
    """Its rows would be left behind."""
    move.change_source("CREATE TABLE theirs (a TEXT)")
    with pytest.raises(Refused, match="theirs"):
        move.copy()


def test_a_target_in_another_encoding_is_refused(move: Move, postgresql: PostgresqlServer) -> None:
    """It could not store every address."""
    name = f"{move.target_url.rsplit('/', 1)[1]}_latin"
    postgresql.execute(f'CREATE DATABASE "{name}" TEMPLATE template0 ENCODING LATIN1 LOCALE "C"')
    latin = move._replace(target_url=postgresql.url(name))
    try:
        on_database(latin.target_url, migrate_to, NEWEST)
        with pytest.raises(Refused, match="UTF8"):
            latin.copy()
    finally:
        postgresql.drop_database(latin.target_url)


def test_a_source_in_use_by_a_server_is_refused(move: Move) -> None:
    """The copy would miss its writes."""
    with single_server_lock(move.source_url), pytest.raises(SettingsError, match="stop it first"):
        move.copy()


def test_a_source_that_a_command_writes_to_is_refused(move: Move, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is refused until the command has finished."""
    monkeypatch.setattr("stoplist.maintenance.copy.source._LOCK_WAIT_MS", 10)
    with closing(sqlite3.connect(move.path, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        with pytest.raises(Refused, match="Another command is writing"):
            move.copy()


def test_a_copy_keeps_others_from_serving_or_changing_the_source(move: Move) -> None:
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


def test_no_program_uses_the_target_of_an_unfinished_copy(move: Move) -> None:
    """Servers, commands and `migrate` alike refuse it and say how to finish the copy."""
    move.interrupt()
    deployment = on_database(move.target_url, schema.read)
    assert deployment is not None
    with pytest.raises(SettingsError, match=r"stoplist copy.*same command again"):
        schema.check(deployment, environment=None, newest=NEWEST)
    with pytest.raises(SettingsError, match="stoplist copy"):
        on_database(move.target_url, migrate_to, NEWEST)


@pytest.mark.parametrize(
    ("step", "text"), [("begin", "is not empty"), ("fill", "Another .*copy"), ("completion", "Another .*copy")]
)
def test_two_copies_into_one_target_do_not_mix(
    move: Move, tmp_path: Path, step: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One file is read by one copy, so there are two: the slower one is refused, and the other is complete."""
    other = copy_source(move, tmp_path / "other")
    assert_overtaken(move, step, other.copy, text, monkeypatch)
    assert_copied(other)


def test_of_two_concurrent_copies_one_begins(move: Move, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both have seen an empty database."""
    other = copy_source(move, tmp_path / "other")
    assert_overtaken(move, "begin", other.interrupt, "Another .*copy", monkeypatch)
    other.copy()
    assert_copied(other)


def copy_source(move: Move, folder: Path) -> Move:
    """Return a move of the same rows from another file."""
    folder.mkdir()
    return move._replace(source_url=f"sqlite:///{shutil.copy(move.path, folder / 'stoplist.db')}")


def assert_overtaken(
    move: Move, step: str, overtaking: Callable[[], Any], text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Run another copy at the first such step of this one, and assert that this one is refused."""
    original = getattr(CopyTarget, step)

    def wait_for_other(*values: Any, **named: Any) -> Any:
        monkeypatch.setattr(CopyTarget, step, original)
        in_thread(overtaking)
        return original(*values, **named)

    monkeypatch.setattr(CopyTarget, step, wait_for_other)
    with pytest.raises(Refused, match=text):
        move.copy()


def in_thread(work: Callable[..., Any], *values: Any) -> None:
    """Run the work to its end in another thread, while the loop of a copy stands still."""
    with ThreadPoolExecutor(max_workers=1) as thread:
        thread.submit(work, *values).result()


def test_only_tables_of_their_own_are_left_out() -> None:
    assert set(NOT_COPIED) == OWN_TABLES
