"""`stoplist copy` (docs/interface.md section D9)."""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock
from urllib.parse import unquote, urlsplit, urlunsplit

import pytest

from stoplist.cli.progress import ProgressDisplay
from tests.cli.command_line import Prompt
from tests.migration_fixture import Move, make_move
from tests.services.postgresql import PostgresqlServer

HUSH = "hush-hush"
UNREACHABLE = f"postgresql://stoplist:{HUSH}@127.0.0.1:1/none"


@pytest.fixture(scope="module")
def template(module_sqlite_url: str, module_postgresql_url: str) -> Move:
    """A deployment with data and an empty target, which tests do not change."""
    return make_move(module_sqlite_url, module_postgresql_url)


@pytest.fixture
def move(template: Move, postgresql: PostgresqlServer, empty: Prompt) -> Iterator[Move]:
    """A copy of the template in the folder of the prompt."""
    target = postgresql.fresh_database("copy", template=template.target_url.rsplit("/", 1)[1])
    empty.data_dir.mkdir()
    shutil.copy(template.path, empty.data_dir / "stoplist.db")
    yield template._replace(source_url="sqlite:///data/stoplist.db", target_url=target)
    postgresql.drop_database(target)


def test_it_prints_what_was_copied_and_the_next_steps(empty: Prompt, move: Move) -> None:
    """The rows of each table, and each setting that the servers need."""
    (empty.data_dir / "secret.key").write_text("k" * 32)
    result = empty.run("copy", "--from", move.source_url, "--to", move.target_url)
    assert result.status == 0
    rows = {name: len(rows) for name, rows in move.source_rows().items()}
    for table, number in rows.items():
        assert [line.split() for line in result.out.splitlines() if line.startswith(f"{table} ")] == [
            [table, str(number)]
        ]
    assert f"{sum(rows.values())} rows were copied and verified" in result.out
    for words in ("STOPLIST_DATABASE_URL", "STOPLIST_LIMITS_URL", "Start no server on the SQLite file"):
        assert words in result.out
    assert f"STOPLIST_SECRET_KEY_FILE          {empty.data_dir / 'secret.key'}\n" in result.out
    assert result.err.startswith("Copying ")
    assert "Verifying 100% [##########]" in result.err


def test_json_has_the_rows_of_each_table(empty: Prompt, move: Move) -> None:
    """It has the duration too; the progress goes to stderr."""
    result = empty.json("copy", "--from", move.source_url, "--to", move.target_url)
    assert result.pop("duration_ms") >= 0
    assert result == {
        "environment": "development",
        "rows": {name: len(rows) for name, rows in move.source_rows().items()},
        "rows_before": 0,
    }


def test_it_continues_after_an_interruption(empty: Prompt, move: Move) -> None:
    """It prints how much the earlier run had copied."""
    move.interrupt()
    result = empty.run("copy", "--from", move.source_url, "--to", move.target_url)
    assert result.status == 0
    assert "of them by an earlier run" in result.out
    assert re.match(r"Checking what is there (\d+)% \[#+ +\] \d+ of \d+ rows \(audit\)\n", result.err)


def test_commands_refuse_an_unfinished_target(empty: Prompt, move: Move) -> None:
    move.interrupt()
    empty.set(DATABASE_URL=move.target_url)
    for command in (["org", "list"], ["migrate"], ["after-restore"]):
        assert "`stoplist copy` has not finished" in empty.refused(*command)


def test_a_second_copy_into_the_same_database_is_refused(empty: Prompt, move: Move) -> None:
    """It is no longer empty."""
    arguments = ("copy", "--from", move.source_url, "--to", move.target_url)
    empty.ok(*arguments)
    result = empty.run(*arguments)
    assert (result.status, result.out) == (1, "")
    assert "is not empty" in result.err
    assert "there is nothing left to do" in result.err


def test_a_missing_secret_key_is_described_by_its_former_place(empty: Prompt, move: Move) -> None:
    """The text says that without the key the partners' cursors are refused."""
    out = empty.ok("copy", "--from", move.source_url, "--to", move.target_url)
    assert "the secret.key of the data folder of the old server" in out


def test_a_secret_key_set_by_a_variable_is_not_shown(empty: Prompt, move: Move) -> None:
    empty.set(SECRET_KEY=HUSH * 4)
    out = empty.ok("copy", "--from", move.source_url, "--to", move.target_url)
    assert "STOPLIST_SECRET_KEY (or _FILE)    as it is set here" in out
    assert HUSH not in out


def without_password(url: str) -> tuple[str, str]:
    """Return the address without its password, and the password."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.replace(f":{parts.password}@", "@"))), parts.password or ""


def test_the_password_may_come_from_a_variable(empty: Prompt, move: Move, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that it is not visible in the list of processes."""
    url, password = without_password(move.target_url)
    monkeypatch.setenv("PGPASSWORD", unquote(password))
    empty.ok("copy", "--from", move.source_url, "--to", url)


def test_the_password_may_come_from_a_file(
    empty: Prompt, move: Move, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Other programs for PostgreSQL allow this too."""
    url, password = without_password(move.target_url)
    (tmp_path / "pgpass").write_text(f"*:*:*:*:{unquote(password)}\n")
    (tmp_path / "pgpass").chmod(0o600)
    monkeypatch.setenv("PGPASSFILE", str(tmp_path / "pgpass"))
    empty.ok("copy", "--from", move.source_url, "--to", url)


def test_it_fills_two_databases(empty: Prompt, move: Move, postgresql: PostgresqlServer) -> None:
    """It says that servers need both, and they serve as one deployment."""
    accounts, feeds = postgresql.fresh_database("accounts"), postgresql.fresh_database("feeds")
    try:
        empty.set(DATABASE_URL=accounts, FEEDS_URL=feeds)
        empty.ok("migrate")
        out = empty.ok("copy", "--from", move.source_url, "--to", accounts, "--to-feeds", feeds)
        assert "STOPLIST_FEEDS_URL (or _FILE)     the address of --to-feeds" in out
        organizations = empty.json("org", "list")
        assert len(organizations) == len(move.source_rows()["organizations"])
    finally:
        for url in (accounts, feeds):
            postgresql.drop_database(url)


WRONG_USAGE = {
    "nothing": [],
    "no target": ["--from", "sqlite:///a.db"],
    "no source": ["--to", UNREACHABLE],
    "no address": ["--from", "data/stoplist.db", "--to", UNREACHABLE],
    "from PostgreSQL": ["--from", UNREACHABLE, "--to", UNREACHABLE],
    "to SQLite": ["--from", "sqlite:///a.db", "--to", "sqlite:///b.db"],
    "feeds in SQLite": ["--from", "sqlite:///a.db", "--to", UNREACHABLE, "--to-feeds", "sqlite:///b.db"],
    "a malformed target": ["--from", "sqlite:///a.db", "--to", f"postgres://x:{HUSH}@h/d"],
    "a target of something else": ["--from", "sqlite:///a.db", "--to", f"mysql://x:{HUSH}@h/d"],
}


@pytest.mark.parametrize("arguments", WRONG_USAGE.values(), ids=WRONG_USAGE)
def test_only_sqlite_is_copied_and_only_to_postgresql(empty: Prompt, arguments: list[str]) -> None:
    """Anything else is wrong usage, without a password in the error."""
    assert HUSH not in empty.wrong_usage("copy", *arguments)
    assert not empty.data_dir.exists()


def test_the_error_names_the_tool_for_other_copies(empty: Prompt) -> None:
    assert "pg_dump" in empty.wrong_usage("copy", *WRONG_USAGE["from PostgreSQL"])
    assert "stoplist backup" in empty.wrong_usage("copy", *WRONG_USAGE["to SQLite"])


def test_a_missing_source_is_refused(empty: Prompt) -> None:
    """Neither a database nor a lock is created."""
    empty.data_dir.mkdir()
    (empty.data_dir / "empty.db").touch()
    for name in ("none.db", "empty.db"):
        text = empty.refused("copy", "--from", f"sqlite:///data/{name}", "--to", UNREACHABLE)
        assert f"--from: there is no Stoplist database at data/{name}" in text
    assert [path.name for path in empty.data_dir.iterdir()] == ["empty.db"]


def test_an_unreachable_target_is_refused(prompt: Prompt) -> None:
    """The error names the option, and never the password."""
    text = prompt.refused("copy", "--from", "sqlite:///data/stoplist.db", "--to", UNREACHABLE)
    assert "--to: PostgreSQL cannot be reached with --to" in text
    assert "STOPLIST_DATABASE_URL" not in text
    assert HUSH not in text


def test_a_target_without_a_schema_is_refused(prompt: Prompt, postgresql_url: str) -> None:
    text = prompt.refused("copy", "--from", "sqlite:///data/stoplist.db", "--to", postgresql_url)
    assert "--to: there is no Stoplist database: run `stoplist migrate`" in text


def test_ctrl_c_says_how_to_continue(empty: Prompt, move: Move, monkeypatch: pytest.MonkeyPatch) -> None:
    """The copied rows are not lost."""
    with monkeypatch.context() as patch:
        patch.setattr(ProgressDisplay, "report", Mock(side_effect=KeyboardInterrupt))
        assert "run the same command again" in empty.refused("copy", "--from", move.source_url, "--to", move.target_url)
    empty.ok("copy", "--from", move.source_url, "--to", move.target_url)
