"""`stoplist import` (docs/interface.md sections D9 and D12)."""

import asyncio
import csv
import io
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import pytest

from stoplist.cli import context
from stoplist.clock import Clock
from stoplist.db import Database
from stoplist.db.opening import single_server_lock
from stoplist.lists.imports import run as import_run
from stoplist.lists.imports.lifecycle import begin_import, discard_import, stop_import
from stoplist.lists.imports.model import ImportOptions
from stoplist.lists.imports.part_reader import PartReader
from stoplist.lists.uploads.upload_writer import UploadWriter, begin_upload
from stoplist.lists.uploads.uploads import find_upload_place
from stoplist.organizations.target import find_target_of_person
from stoplist.unsubscribes.channel import CHANNELS
from stoplist.unsubscribes.model import OptOutStores
from tests.builders import ADMINISTRATOR, execute, on_database
from tests.cli.command_line import Prompt, at_a_terminal
from tests.fakes import FakeClock

GROUP = "grp_" + 22 * "0"
TARGET = ("--org", "acme", "--channel", "email", "--all-groups")
HEADER = "email,occurred_at\n"


def rows(count: int) -> str:
    return "".join(f"person-{number}@example.org,2026-03-01T09:30:00Z\n" for number in range(count))


@pytest.fixture
def file(prompt: Prompt) -> Path:
    """A list of 25 opt-outs and one bad row."""
    path = prompt.folder / "list.csv"
    path.write_text(f"{HEADER}{rows(25)}nobody,2026-03-01T09:30:00Z\n")
    return path


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten rows to a part."""
    reader = PartReader
    monkeypatch.setattr("stoplist.cli.import_work.PartReader", lambda opened, channel: reader(opened, channel, rows=10))


def run(prompt: Prompt, file: Path | str, *options: str) -> Any:
    return prompt.json("import", "run", str(file), *TARGET, *options)


def test_a_file_is_imported_and_taken_back(prompt: Prompt, file: Path) -> None:
    imported = run(prompt, file, "--yes")
    counts = {"rows": 26, "bad": 1, "created": 25, "updated": 0, "unchanged": 0, "outranked": 0}
    assert imported.items() >= ({"state": "done", "channel": "email", "group_id": None} | counts).items()
    assert set(imported) == {
        "import_id", "state", "org_slug", "channel", "group_id", "file_name", "sha256", "rows", "bad", "not_opted_out",
        "redated", "created", "updated", "unchanged", "outranked", "as_of", "started_at", "ended_at",
    }  # fmt: skip
    assert prompt.json("import", "show", imported["import_id"]) == imported
    assert prompt.json("import", "list", "--org", "acme") == [imported]
    assert prompt.json("import", "reverse", imported["import_id"], "--yes")["state"] == "reversed"
    assert "depends on this import alone" in prompt.ok("import", "reverse", imported["import_id"], "--yes")


def test_a_reversal_that_only_ends_the_import_is_confirmed_too(prompt: Prompt, file: Path) -> None:
    """A second import has confirmed every record of the first, which could still store more after a stop."""
    import_id = run(prompt, file, "--yes")["import_id"]
    run(prompt, file, "--yes")
    assert "take back 0 records and leave out 25" in prompt.refused("import", "reverse", import_id)
    assert prompt.json("import", "show", import_id)["state"] == "done"
    assert prompt.json("import", "reverse", import_id, "--yes")["state"] == "reversed"
    assert "Nothing was taken back" in prompt.ok("import", "reverse", import_id)


def test_an_import_too_old_is_not_reversed(prompt: Prompt, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By STOPLIST_HISTORY_DAYS; nothing is changed (section D13, Retention)."""
    import_id = run(prompt, file, "--yes")["import_id"]
    clock = FakeClock()
    clock.advance(3 * 86_400)
    monkeypatch.setattr(context, "Clock", lambda: clock)
    monkeypatch.setenv("STOPLIST_HISTORY_DAYS", "2")
    assert "received more than 2 days ago" in prompt.refused("import", "reverse", import_id, "--yes")
    assert prompt.json("import", "show", import_id)["state"] == "done"


def test_a_dry_run_stores_nothing(prompt: Prompt, file: Path) -> None:
    checked = run(prompt, file, "--dry-run")
    assert (checked["state"], checked["import_id"], checked["created"], checked["bad"]) == ("checked", None, 25, 1)
    assert prompt.json("import", "list") == []
    text = prompt.ok("import", "run", str(file), *TARGET, "--dry-run")
    assert "25  would be created" in text
    assert "line 27: " in text


def test_what_a_file_says_is_printed_with_escapes(prompt: Prompt, file: Path) -> None:
    """This includes errors of the command line, which click prints."""
    file.write_text("email,status\x1b[31m\na@example.org,zz\x1b]0;title\x07\n")
    text = prompt.run("import", "run", str(file), *TARGET, "--as-of", "now", "--yes").err
    assert "\\x1b]0;title\\x07" in text
    assert "\x1b" not in text


def test_without_a_terminal_yes_must_be_said(prompt: Prompt, file: Path) -> None:
    assert "--yes" in prompt.refused("import", "run", str(file), *TARGET)
    assert prompt.json("import", "list") == []


@pytest.mark.parametrize(("answer", "state"), [("y", ["done"]), ("n", [])])
def test_on_a_terminal_counts_are_shown_first(prompt: Prompt, file: Path, answer: str, state: list[str]) -> None:
    result = at_a_terminal(prompt, f"{answer}\n", "import", "run", str(file), *TARGET)
    assert "25  would be created" in result.err
    assert [each["state"] for each in prompt.json("import", "list")] == state


def test_one_target_must_be_said(prompt: Prompt, file: Path) -> None:
    """A global list must not land in one newsletter by default."""
    target = ("import", "run", str(file), "--org", "acme", "--channel", "email", "--yes")
    for wrong in ((), ("--all-groups", "--group", GROUP)):
        assert "--group GROUP_ID, or --all-groups" in prompt.wrong_usage(*target, *wrong)
    assert "has no such group in use" in prompt.refused(*target, "--group", GROUP)


def test_a_list_without_times_needs_as_of(prompt: Prompt) -> None:
    path = prompt.folder / "plain.txt"
    path.write_text("ann@example.org\n")
    assert "no column with the time" in prompt.wrong_usage("import", "run", str(path), *TARGET, "--yes")
    imported = run(prompt, path, "--yes", "--as-of", "2026-03-01T09:30:00Z")
    assert (imported["created"], imported["as_of"]) == (1, "2026-03-01T09:30:00.000Z")
    assert "future" in prompt.wrong_usage(
        "import", "run", str(path), *TARGET, "--yes", "--as-of", "2999-01-01T00:00:00Z"
    )


def test_strict_stores_nothing_if_a_row_is_bad(prompt: Prompt, file: Path) -> None:
    for option in ("--yes", "--dry-run"):
        result = prompt.run("import", "run", str(file), *TARGET, "--strict", option)
        assert result.status == 1
        assert "line 27" in result.err + result.out
    assert prompt.json("import", "list") == []
    file.write_text(HEADER + rows(3))
    assert run(prompt, file, "--strict", "--yes")["created"] == 3
    assert "needs a file" in prompt.wrong_usage("import", "run", "-", *TARGET, "--strict", "--yes")


def test_rejected_rows_are_written_with_their_columns(prompt: Prompt, file: Path) -> None:
    rejects = prompt.folder / "rejects.csv"
    run(prompt, file, "--yes", "--rejects", str(rejects))
    header, row = csv.reader(io.StringIO(rejects.read_text()))
    assert header == ["line", "error", "email", "occurred_at"]
    assert (row[0], row[2:]) == ("27", ["nobody", "2026-03-01T09:30:00Z"])
    assert rejects.stat().st_mode & 0o777 == 0o600
    assert "another file" in prompt.run("import", "run", str(file), *TARGET, "--yes", "--rejects", str(rejects)).err


def interrupted(prompt: Prompt, file: Path | str, patch: pytest.MonkeyPatch, *options: str) -> tuple[str, str]:
    """Run an import that gets SIGINT during its first part; return its id and what it prints."""
    store = import_run.ImportRun.store

    async def store_interrupted(*arguments: Any, **named: Any) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        await store(*arguments, **named)

    with patch.context() as during:
        during.setattr(import_run.ImportRun, "store", store_interrupted)
        result = prompt.run("import", "run", str(file), *TARGET, "--yes", *options)
    assert result.status == 3
    (found,) = prompt.json("import", "list")
    return found["import_id"], result.out


def stop_after_one_part(prompt: Prompt, file: Path, patch: pytest.MonkeyPatch, *options: str) -> dict[str, Any]:
    """Run an import that gets SIGINT during its first part; return it."""
    import_id, out = interrupted(prompt, file, patch, *options)
    assert f"stoplist import resume {import_id}" in out
    return dict(prompt.json("import", "show", import_id))


@pytest.mark.usefixtures("small_parts")
def test_a_stopped_import_goes_on_at_the_next_row(prompt: Prompt, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rejects = prompt.folder / "rejects.csv"
    file.write_text(HEADER + rows(3) + "nobody,2026-03-01T09:30:00Z\n" + file.read_text().removeprefix(HEADER))
    stopped = stop_after_one_part(prompt, file, monkeypatch, "--rejects", str(rejects))
    assert (stopped["state"], stopped["rows"]) == ("stopped", 10)
    with rejects.open("a") as cut_off:
        cut_off.write("a row that was written before a crash\n")
    done = prompt.json("import", "resume", stopped["import_id"], str(file), "--rejects", str(rejects))
    assert (done["state"], done["rows"], done["created"], done["unchanged"], done["bad"]) == ("done", 30, 25, 3, 2)
    assert [row[0] for row in csv.reader(io.StringIO(rejects.read_text()))] == ["line", "5", "31"]
    assert "done already" in prompt.ok("import", "resume", stopped["import_id"], str(file))


@pytest.mark.usefixtures("small_parts")
def test_a_changed_file_is_not_resumed(prompt: Prompt, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stopped = stop_after_one_part(prompt, file, monkeypatch)
    other = prompt.folder / "other.csv"
    other.write_text(file.read_text().replace("person-3@", "person-x@"))
    assert "differs from the file" in prompt.refused("import", "resume", stopped["import_id"], str(other))
    other.write_text(HEADER + rows(2))
    assert "fewer rows" in prompt.refused("import", "resume", stopped["import_id"], str(other))
    other.write_text(file.read_text().replace("person-13@", "person-x@"))
    assert prompt.json("import", "resume", stopped["import_id"], str(other))["state"] == "done"


@pytest.mark.usefixtures("small_parts")
def test_a_second_run_is_pointed_to_resume(prompt: Prompt, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stopped = stop_after_one_part(prompt, file, monkeypatch)
    text = prompt.refused("import", "run", str(file), *TARGET, "--yes")
    assert f"stoplist import resume {stopped['import_id']}" in text
    shorter = prompt.folder / "shorter.csv"
    shorter.write_text(HEADER + rows(2))
    assert run(prompt, shorter, "--yes")["state"] == "done"
    group = prompt.json("group", "create", "--org", "acme", "--name", "News")["group_id"]
    other_target = ("--org", "acme", "--channel", "email", "--group", group)
    assert prompt.json("import", "run", str(file), *other_target, "--yes")["state"] == "done"
    assert prompt.json("import", "discard", stopped["import_id"])["state"] == "discarded"
    assert run(prompt, file, "--yes")["state"] == "done"
    assert "is discarded" in prompt.refused("import", "resume", stopped["import_id"], str(file))


@pytest.mark.usefixtures("small_parts")
def test_an_uploaded_file_is_deleted_with_its_import(prompt: Prompt, file: Path) -> None:
    """`discard` deletes it, also before the import has begun, and so does a `resume` with a file of this host."""
    prompt.json("import", "run", str(file), *TARGET, "--yes")  # opens the feed
    url, content = prompt.database_url, file.read_bytes()

    async def upload(database: Database, *, begin: bool) -> str:
        stores = OptOutStores(database=database, clock=Clock(), secret_keys=())
        waiting = await begin_upload(ADMINISTRATOR, stores, CHANNELS["email"], org_slug="acme", file_name="x.csv")
        writer = UploadWriter(database, waiting, max_bytes=1_000_000)
        await writer.add(content)
        await writer.complete(ADMINISTRATOR, stores)
        if begin:
            target = await find_target_of_person(ADMINISTRATOR, database, org_slug="acme", group_id=None)
            options = ImportOptions(now_ms=stores.clock.now_ms())
            begun = await begin_import(
                ADMINISTRATOR, stores, CHANNELS["email"], target, all_groups=True, file_name="x.csv",
                options=options, import_id=waiting.import_id,
            )  # fmt: skip
            await stop_import(stores, begun)
        return waiting.import_id

    waiting = on_database(url, upload, begin=False)
    assert prompt.json("import", "discard", waiting) == {"import_id": waiting, "state": "discarded"}
    begun = on_database(url, upload, begin=True)
    assert prompt.json("import", "discard", begun)["state"] == "discarded"
    resumed = on_database(url, upload, begin=True)
    assert prompt.json("import", "resume", resumed, str(file))["state"] == "done"
    assert not any(on_database(url, find_upload_place, each) for each in (waiting, begun, resumed))


def test_a_file_that_breaks_stops_the_import(prompt: Prompt, file: Path) -> None:
    """A known time zone makes it unnecessary to read the file before the import begins."""
    file.write_text(HEADER + rows(12_000) + 'broken"@example.org,"2026\n' + rows(3))
    assert "never closed" in prompt.refused("import", "run", str(file), *TARGET, "--yes")
    assert prompt.json("import", "list") == []
    result = prompt.run("import", "run", str(file), *TARGET, "--yes", "--time-zone", "UTC")
    assert (result.status, "never closed" in result.err) == (3, True)
    (found,) = prompt.json("import", "list")
    assert (found["state"], found["rows"]) == ("stopped", 10_000)


def test_an_option_that_would_have_helped_cannot_be_added_later(prompt: Prompt, file: Path) -> None:
    """`resume` does not add it: it keeps the options of the beginning."""
    file.write_bytes(f"{HEADER}{rows(12_000)}".encode() + b"\xff@example.org,2026-03-01T09:30:00Z\n")
    result = prompt.run("import", "run", str(file), *TARGET, "--yes", "--time-zone", "UTC")
    assert result.status == 3
    assert "Line 12002 is not UTF-8" in result.err
    assert "stoplist import discard imp_" in result.err
    assert "then run it again with --encoding." in result.err


@pytest.fixture
def pipe(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Makes a text the standard input, through a pipe."""
    with ExitStack() as stack:

        def fill(text: str) -> None:
            reading, writing = os.pipe()
            monkeypatch.setattr(sys, "stdin", stack.enter_context(open(reading)))
            with open(writing, "w") as end:
                end.write(text)

        yield fill


def test_a_pipe_is_imported(prompt: Prompt, pipe: Callable[[str], None]) -> None:
    pipe(HEADER + rows(3))
    done = run(prompt, "-", "--yes")
    assert (done["state"], done["created"], done["file_name"]) == ("done", 3, "standard input")


def test_a_pipe_is_refused_before_its_first_row_is_stored(prompt: Prompt, pipe: Callable[[str], None]) -> None:
    """An own export with several targets, and a time that needs a zone."""
    head = "id,address,address_digest,group_id,status,reason,occurred_at,recorded_at,source,seq\n"
    row = "uns_1,a@example.org,,{},unsubscribed,bounce,2026-03-01T09:30:00Z,,,1\n"
    for text, reason in (
        (head + row.format("") + row.format(GROUP), "records of several targets"),
        (HEADER + rows(3) + "b@example.org,2026-03-01\n", "line 5 has no offset"),
    ):
        pipe(text)
        assert reason in prompt.wrong_usage("import", "run", "-", *TARGET, "--yes")
    assert prompt.json("import", "list") == []


@pytest.mark.usefixtures("small_parts")
def test_a_stopped_pipe_is_not_to_be_resumed(
    prompt: Prompt, pipe: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe(HEADER + rows(25))
    _, out = interrupted(prompt, "-", monkeypatch)
    assert "cannot be resumed" in out
    assert "import resume" not in out


def test_a_pipe_that_stands_still_blocks_nobody(prompt: Prompt) -> None:
    """No transaction is open meanwhile, nothing has begun, and Ctrl+C ends the command."""
    command = [
        sys.executable,
        "-c",
        "from stoplist.cli.main import main; main()",
        "import",
        "run",
        "-",
        *TARGET,
        "--yes",
    ]
    process = subprocess.Popen(command, cwd=prompt.folder, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    with process:
        assert process.stdin is not None
        assert process.stderr is not None
        process.stdin.write(HEADER + rows(29_000))
        process.stdin.flush()
        assert process.stderr.readline().startswith("Reading 1 MB")
        prompt.ok("group", "create", "--org", "acme", "--name", "News")
        assert prompt.json("import", "list") == []
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=30) == 1


def test_what_can_be_read_only_once_is_no_file(prompt: Prompt) -> None:
    fifo = prompt.folder / "fifo"
    os.mkfifo(fifo)
    assert "use - as FILE" in prompt.refused("import", "run", str(fifo), *TARGET, "--yes")
    assert "is a folder" in prompt.refused("import", "run", str(prompt.folder), *TARGET, "--yes")


def test_a_field_has_one_column(prompt: Prompt, file: Path) -> None:
    columns = ("--column", "address=email", "--column", "address=other")
    assert "two columns for one field" in prompt.wrong_usage("import", "run", str(file), *TARGET, "--yes", *columns)


class Killed(BaseException):
    """The process ends at once."""


def kill_in_first_part(prompt: Prompt, file: Path, patch: pytest.MonkeyPatch, *options: str) -> dict[str, Any]:
    """Run an import whose process is killed before its first part is stored; return the import."""
    with patch.context() as during:
        during.setattr(import_run.ImportRun, "_store_once", AsyncMock(side_effect=Killed))
        with pytest.raises(Killed):
            prompt.run("import", "run", str(file), *TARGET, "--yes", *options)
    (found,) = prompt.json("import", "list")
    return dict(found)


def end_lease(prompt: Prompt) -> None:
    """Let the minute pass for which a process that is gone is taken for alive."""
    on_database(prompt.database_url, execute, "UPDATE imports SET lease_until_ms = 0 WHERE state = 'running'")


def test_a_killed_import_goes_on_after_its_lease(prompt: Prompt, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file of rejected rows is the same one, and has more than was stored."""
    rejects = prompt.folder / "rejects.csv"
    killed = kill_in_first_part(prompt, file, monkeypatch, "--rejects", str(rejects))
    assert len(rejects.read_text().splitlines()) == 2
    resume = ("import", "resume", killed["import_id"], str(file), "--rejects", str(rejects))
    assert "is running: a process works on it" in prompt.refused(*resume)
    end_lease(prompt)
    done = prompt.json(*resume)
    assert (done["state"], done["created"], done["bad"]) == ("done", 25, 1)
    assert len(rejects.read_text().splitlines()) == 2


@pytest.mark.parametrize("name", ["rejects.csv", "nowhere/rejects.csv", "/dev/full"])
def test_rejects_that_cannot_be_written_begin_nothing(prompt: Prompt, file: Path, name: str) -> None:
    (prompt.folder / "rejects.csv").write_text("line,error,of another import\n2,x,y\n")
    assert prompt.refused("import", "run", str(file), *TARGET, "--yes", "--rejects", name)
    assert prompt.json("import", "list") == []


@pytest.mark.usefixtures("small_parts")
def test_a_refused_resume_changes_nothing(prompt: Prompt, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong file, or other rejects, take no import from the process that works on it."""
    stopped = stop_after_one_part(prompt, file, monkeypatch)
    other = prompt.folder / "other.csv"
    other.write_text(file.read_text().replace("person-3@", "person-x@"))
    prompt.refused("import", "resume", stopped["import_id"], str(other))
    prompt.refused("import", "resume", stopped["import_id"], str(file), "--rejects", str(other))
    assert prompt.json("import", "show", stopped["import_id"]) == stopped
    assert other.read_text().startswith(HEADER)


@pytest.mark.usefixtures("small_parts")
def test_a_running_import_is_not_begun_again(prompt: Prompt, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = import_run.ImportRun.store

    async def store_one(self: Any, *arguments: Any) -> None:
        if self.current.row_count:
            raise Killed
        await store(self, *arguments)

    with monkeypatch.context() as during:
        during.setattr(import_run.ImportRun, "store", store_one)
        with pytest.raises(Killed):
            prompt.run("import", "run", str(file), *TARGET, "--yes")
    assert "which is running" in prompt.refused("import", "run", str(file), *TARGET, "--yes")
    end_lease(prompt)
    assert "Go on with `stoplist import resume" in prompt.refused("import", "run", str(file), *TARGET, "--yes")


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("is_served", [True, False])
def test_beside_a_server_each_part_is_followed_by_a_pause(
    prompt: Prompt, file: Path, monkeypatch: pytest.MonkeyPatch, is_served: bool
) -> None:
    """The pause is as long as the part took."""
    sleep = asyncio.sleep
    store, lasted, slept = import_run.ImportRun.store, list[float](), list[float]()

    async def noted(self: import_run.ImportRun, *arguments: Any) -> None:
        await store(self, *arguments)
        lasted.append(self.stored_s)

    async def noting(delay: float) -> None:
        slept.append(delay)
        await sleep(0)

    monkeypatch.setattr(import_run.ImportRun, "store", noted)
    monkeypatch.setattr("stoplist.cli.import_work.asyncio.sleep", noting)
    with single_server_lock(prompt.database_url) if is_served else nullcontext():
        run(prompt, file, "--yes")
    assert len(lasted) == 3
    assert [each for each in slept if each in lasted] == (lasted if is_served else [])


@pytest.mark.usefixtures("small_parts")
def test_a_process_whose_import_was_discarded_says_so(
    prompt: Prompt, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = import_run.ImportRun.store

    async def discarded(self: Any, *arguments: Any) -> None:
        if self.current.row_count:
            await discard_import(self._actor, self._stores, self.current.import_id)
        await store(self, *arguments)

    monkeypatch.setattr(import_run.ImportRun, "store", discarded)
    result = prompt.run("import", "run", str(file), *TARGET, "--yes")
    assert result.status == 3
    assert "is discarded." in result.out
    assert "resume" not in result.out


def test_an_unknown_import_is_not_there(prompt: Prompt) -> None:
    for words in (("show",), ("reverse", "--yes"), ("discard",)):
        text = prompt.refused("import", words[0], "imp_" + 22 * "0", *words[1:])
        assert "There is no import of that id" in text


def test_the_help_of_run_shows_an_example(empty: Prompt) -> None:
    assert "Example: stoplist import run" in empty.ok("import", "run", "--help")
