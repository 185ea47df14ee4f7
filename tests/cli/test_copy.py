"""`stoplist copy` (docs/interface.md section D9)."""

import io
import shutil
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit, urlunsplit

import pytest

from stoplist.cli.copy import Shown, progress_line
from stoplist.maintenance.copy.copy import Step
from tests.cli.command_line import Prompt
from tests.fakes import FakeClock
from tests.migration_fixture import Move, make_move
from tests.services.postgresql import Server

HUSH = "hush-hush"
NOBODY = f"postgresql://stoplist:{HUSH}@127.0.0.1:1/none"


@pytest.fixture(scope="module")
def template(module_sqlite_url: str, module_postgresql_url: str) -> Move:
    """A lived-in deployment and an empty target, which stay as they are."""
    return make_move(module_sqlite_url, module_postgresql_url)


@pytest.fixture
def move(template: Move, postgresql: Server, empty: Prompt) -> Iterator[Move]:
    """The same in the folder of the prompt."""
    target = postgresql.fresh_database("copy", template=template.target_url.rsplit("/", 1)[1])
    empty.data_dir.mkdir()
    shutil.copy(template.path, empty.data_dir / "stoplist.db")
    yield template._replace(source_url="sqlite:///data/stoplist.db", target_url=target)
    postgresql.drop_database(target)


def test_it_says_what_was_copied_and_what_is_left_to_do(empty: Prompt, move: Move) -> None:
    """Table by table, and each setting that the servers need now."""
    (empty.data_dir / "secret.key").write_text("k" * 32)
    done = empty.run("copy", "--from", move.source_url, "--to", move.target_url)
    assert done.status == 0
    rows = {name: len(rows) for name, rows in move.source().items()}
    for table, number in rows.items():
        assert [line.split() for line in done.out.splitlines() if line.startswith(f"{table} ")] == [
            [table, str(number)]
        ]
    assert f"{sum(rows.values())} rows were copied and verified" in done.out
    for words in ("STOPLIST_DATABASE_URL", "STOPLIST_LIMITS_URL", "Start no server on the SQLite file"):
        assert words in done.out
    assert f"STOPLIST_SECRET_KEY_FILE          {empty.data_dir / 'secret.key'}\n" in done.out
    assert done.err.startswith("Copying ")
    assert "Verifying 100% [##########]" in done.err


def test_for_programs_it_answers_with_an_object(empty: Prompt, move: Move) -> None:
    """The rows of each table, and how long it took; the progress goes to stderr, where it disturbs nobody."""
    done = empty.json("copy", "--from", move.source_url, "--to", move.target_url)
    assert done.pop("duration_ms") >= 0
    assert done == {
        "environment": "development",
        "rows": {name: len(rows) for name, rows in move.source().items()},
        "rows_before": 0,
    }


def test_it_goes_on_after_an_interruption(empty: Prompt, move: Move) -> None:
    """And says how much of it was there."""
    move.interrupted()
    done = empty.run("copy", "--from", move.source_url, "--to", move.target_url)
    assert done.status == 0
    assert "of them by an earlier run" in done.out
    assert done.err.startswith("Checking what is there 58% [######    ] 18 of 31 rows (audit)\n")


def test_commands_refuse_a_target_that_is_not_finished(empty: Prompt, move: Move) -> None:
    """And say how it is finished."""
    move.interrupted()
    empty.set(DATABASE_URL=move.target_url)
    for command in (["org", "list"], ["migrate"], ["after-restore"]):
        assert "`stoplist copy` has not finished" in empty.refused(*command)


def test_a_second_copy_into_the_same_database_is_refused(empty: Prompt, move: Move) -> None:
    """There is something in it by now."""
    arguments = ("copy", "--from", move.source_url, "--to", move.target_url)
    empty.ok(*arguments)
    done = empty.run(*arguments)
    assert (done.status, done.out) == (1, "")
    assert "holds something already" in done.err
    assert "there is nothing left to do" in done.err


def test_where_the_secret_key_is_not_found_the_text_says_where_it_was(empty: Prompt, move: Move) -> None:
    """Without it the partners' cursors are refused."""
    out = empty.ok("copy", "--from", move.source_url, "--to", move.target_url)
    assert "the secret.key of the data folder of the old server" in out


def test_a_secret_key_that_is_set_is_not_shown(empty: Prompt, move: Move) -> None:
    """It goes along as it is."""
    empty.set(SECRET_KEY=HUSH * 4)
    out = empty.ok("copy", "--from", move.source_url, "--to", move.target_url)
    assert "STOPLIST_SECRET_KEY (or _FILE)    as it is set here" in out
    assert HUSH not in out


def without_password(url: str) -> tuple[str, str]:
    """The address without its password, and the password."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.replace(f":{parts.password}@", "@"))), parts.password or ""


def test_the_password_may_come_from_a_variable(empty: Prompt, move: Move, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that it is not to be seen among the processes."""
    url, password = without_password(move.target_url)
    monkeypatch.setenv("PGPASSWORD", unquote(password))
    empty.ok("copy", "--from", move.source_url, "--to", url)


def test_the_password_may_come_from_a_file(
    empty: Prompt, move: Move, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As all programs for PostgreSQL take it."""
    url, password = without_password(move.target_url)
    (tmp_path / "pgpass").write_text(f"*:*:*:*:{unquote(password)}\n")
    (tmp_path / "pgpass").chmod(0o600)
    monkeypatch.setenv("PGPASSFILE", str(tmp_path / "pgpass"))
    empty.ok("copy", "--from", move.source_url, "--to", url)


WRONG_USAGE = {
    "nothing": [],
    "no target": ["--from", "sqlite:///a.db"],
    "no source": ["--to", NOBODY],
    "no address": ["--from", "data/stoplist.db", "--to", NOBODY],
    "from PostgreSQL": ["--from", NOBODY, "--to", NOBODY],
    "to SQLite": ["--from", "sqlite:///a.db", "--to", "sqlite:///b.db"],
    "a malformed target": ["--from", "sqlite:///a.db", "--to", f"postgres://x:{HUSH}@h/d"],
    "a target of something else": ["--from", "sqlite:///a.db", "--to", f"mysql://x:{HUSH}@h/d"],
}


@pytest.mark.parametrize("arguments", WRONG_USAGE.values(), ids=WRONG_USAGE)
def test_only_sqlite_is_copied_and_only_to_postgresql(empty: Prompt, arguments: list[str]) -> None:
    """The command line alone shows it: exit status 2, and no password in the text."""
    assert HUSH not in empty.wrong_usage("copy", *arguments)
    assert not empty.data_dir.exists()


def test_the_text_names_the_tool_that_does_the_other_ways(empty: Prompt) -> None:
    """They have one each."""
    assert "pg_dump" in empty.wrong_usage("copy", *WRONG_USAGE["from PostgreSQL"])
    assert "stoplist backup" in empty.wrong_usage("copy", *WRONG_USAGE["to SQLite"])


def test_a_source_that_is_not_there_is_refused(empty: Prompt) -> None:
    """And not made; nor is a lock."""
    empty.data_dir.mkdir()
    (empty.data_dir / "empty.db").touch()
    for name in ("none.db", "empty.db"):
        text = empty.refused("copy", "--from", f"sqlite:///data/{name}", "--to", NOBODY)
        assert f"--from: there is no Stoplist database at data/{name}" in text
    assert [path.name for path in empty.data_dir.iterdir()] == ["empty.db"]


def test_a_target_that_cannot_be_reached_is_refused(prompt: Prompt) -> None:
    """The text names the option, and never the password."""
    text = prompt.refused("copy", "--from", "sqlite:///data/stoplist.db", "--to", NOBODY)
    assert "--to: PostgreSQL cannot be reached with --to" in text
    assert "STOPLIST_DATABASE_URL" not in text
    assert HUSH not in text


def test_a_target_without_a_schema_is_refused(prompt: Prompt, postgresql_url: str) -> None:
    """`migrate` makes it."""
    text = prompt.refused("copy", "--from", "sqlite:///data/stoplist.db", "--to", postgresql_url)
    assert "--to: there is no Stoplist database: `stoplist migrate` makes one" in text


def test_ctrl_c_says_that_it_goes_on(empty: Prompt, move: Move, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was copied is not lost."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Shown, "report", interrupt)
        assert "run the same command again" in empty.refused("copy", "--from", move.source_url, "--to", move.target_url)
    empty.ok("copy", "--from", move.source_url, "--to", move.target_url)


# How far it is

Steps = list[tuple[float, Step]]


class Terminal(io.StringIO):
    """Somebody looks on."""

    def isatty(self) -> bool:
        return True


def shown(stream: io.StringIO | None, steps: Steps) -> str:
    """What is written when each step comes so many seconds after the one before."""
    clock = FakeClock()
    told = Shown(clock, stream)
    for seconds, step in steps:
        clock.advance(seconds)
        told.report(step)
    told.close()
    return stream.getvalue() if stream is not None else ""


STEPS: Steps = [(1, Step("copy", "audit", rows, 10_000_000)) for rows in range(0, 2_000_000, 100_000)]
END: Steps = [
    (1, Step("copy", "unsubscribes", 10_000_000, 10_000_000)),
    (0, Step("copy", "unsubscribes", 10_000_000, 10_000_000)),
    (0, Step("verify", "audit", 0, 10_000_000)),
    (0, Step("verify", "audit", 10_000_000, 10_000_000)),
]


def test_a_line_says_how_much_how_fast_and_how_long() -> None:
    """Rows, rate, time left."""
    step = Step("copy", "unsubscribes", 5_200_000, 10_000_000)
    assert progress_line(step, rows_since=2_000_000, elapsed_ns=20_000_000_000) == (
        "Copying 52% [#####     ] 5,200,000 of 10,000,000 rows, 100,000 rows/s, 0:48 left (unsubscribes)"
    )
    assert progress_line(step, rows_since=100, elapsed_ns=1_000_000_000).endswith(
        "100 rows/s, 13:20:00 left (unsubscribes)"
    )
    assert progress_line(step, rows_since=0, elapsed_ns=0).endswith("10,000,000 rows (unsubscribes)")


def test_without_a_terminal_there_is_a_line_every_few_seconds() -> None:
    """A log is not filled with bars; the first and the last of each kind are always there."""
    lines = shown(io.StringIO(), STEPS + END).splitlines()
    assert [line.split(" rows")[0].split("] ", 1)[1] for line in lines] == [
        "0 of 10,000,000",
        "500,000 of 10,000,000",
        "1,000,000 of 10,000,000",
        "1,500,000 of 10,000,000",
        "10,000,000 of 10,000,000",
        "0 of 10,000,000",
        "10,000,000 of 10,000,000",
    ]
    assert "\r" not in "".join(lines)


def test_on_a_terminal_one_line_is_written_over_and_over() -> None:
    """Ten times a second at the most; what follows begins on a line of its own."""
    text = shown(Terminal(), [(0.01, step) for _, step in STEPS])
    assert text.count("\r") == 2
    assert text.endswith("\n")
    assert text.count("\n") == 1
    assert shown(Terminal(), []) == ""


def test_on_a_narrow_terminal_the_line_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """Broken in two it could not be written over."""
    monkeypatch.setenv("COLUMNS", "40")
    for written in shown(Terminal(), STEPS).split("\r")[1:]:
        assert len(written.split("\x1b")[0]) < 40


def test_a_progress_that_nobody_can_see_stops_nothing() -> None:
    """The standard error is closed, or whoever read it is gone."""

    class Gone(io.StringIO):
        def write(self, _: str) -> int:
            raise BrokenPipeError

    assert shown(None, STEPS) == ""
    assert shown(Gone(), STEPS) == ""
