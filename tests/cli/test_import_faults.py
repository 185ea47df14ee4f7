"""`stoplist import` is killed at random moments, meets another, or loses its database: no row is lost or taken twice.

`make import-kills` makes the two hundred kills in 300 000 rows that section D12 of docs/interface.md is measured by.
"""

import os
import random
import re
import signal
import subprocess
import sys
import time
from bisect import bisect_right
from contextlib import ExitStack, suppress
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest

from stoplist.db import Database
from stoplist.lists.imports import model
from tests.builders import on_database, sql
from tests.cli.command_line import Prompt
from tests.services import postgresql as services
from tests.time_limits import LONG_DATABASE, assignments
from tests.unsubscribes.agreement import disagreements

KILLS = int(os.environ.get("TEST_IMPORT_KILLS", "10"))
ROWS = int(os.environ.get("TEST_IMPORT_ROWS", "20000"))
ROWS_PER_PART = 1_000
_MAX_COMPARED_ROWS = 50_000
TARGET = ("--channel", "email", "--all-groups")
# Small parts, so that kills meet many; and no lease, so that no kill has to be followed by a minute.
PROGRAM = f"""
{assignments(LONG_DATABASE | {(model, "LEASE_MS"): 0})}
from stoplist.lists.imports.part_reader import PartReader
PartReader.__init__.__kwdefaults__["rows"] = {ROWS_PER_PART}
from stoplist.cli.main import main
main()
"""
PARTS = sql("""
    SELECT p.first_row, p.submission_id, s.received FROM import_parts p
    JOIN submissions s ON s.feed_id = p.feed_id AND s.submission_id = p.submission_id
    WHERE p.import_id = :import_id ORDER BY p.first_row""")
RECORDS = sql("""
    SELECT u.address, u.status, u.reason, u.occurred_ms, u.submission_id FROM unsubscribes u
    JOIN feeds f ON f.feed_id = u.feed_id JOIN organizations o ON o.organization_id = f.organization_id
    WHERE o.slug = :slug ORDER BY u.address""")


@pytest.fixture(params=["sqlite", "postgresql"])
def either(empty: Prompt, request: pytest.FixtureRequest) -> Prompt:
    """A prompt with an empty database of either kind."""
    if request.param == "postgresql":
        empty.set(DATABASE_URL=request.getfixturevalue("postgresql_url"), SECRET_KEY="k" * 43)
    empty.ok("migrate")
    return empty


def start(prompt: Prompt, *words: str) -> subprocess.Popen[str]:
    """Start a command in the prompt's folder."""
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *words],
        cwd=prompt.folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
    )


def new_organization(prompt: Prompt, slug: str) -> None:
    prompt.ok("org", "create", slug, "--name", slug)


def write_list(path: Path, numbers: range, chance: random.Random) -> list[str]:
    """Write a list; return its addresses, row by row. One row in ten is repeated, and one in a thousand is bad."""
    addresses = [f"person-{each - each % 10 // 9}@example.org" if each % 1_000 else "nobody" for each in numbers]
    lines = [f"{each},{1_700_000_000 + chance.randrange(10**7)}\n" for each in addresses]
    path.write_text("email,occurred_at\n" + "".join(lines))
    return addresses


def ask(database_url: str, statement: Any, **values: str) -> list[dict[str, Any]]:
    """Return rows of a database whose tables agree."""

    async def query(database: Database) -> list[dict[str, Any]]:
        # Their queries take many minutes on hundreds of thousands of rows of SQLite.
        assert ROWS > _MAX_COMPARED_ROWS or not await disagreements(database)
        return [dict(row) for row in await database.all(statement, **values)]

    return on_database(database_url, query)


def states(database_url: str, slug: str) -> list[tuple[Any, ...]]:
    """Return address, status, reason and time of every record, by address."""
    return [tuple(row.values())[:4] for row in ask(database_url, RECORDS, slug=slug)]


def assert_each_row_is_in_one_submission(database_url: str, import_id: str, slug: str, addresses: list[str]) -> None:
    """The submissions of an import follow one another in the file, and each record is of the one with its first row."""
    parts = ask(database_url, PARTS, import_id=import_id)
    ends = [part["first_row"] + part["received"] for part in parts]
    assert [part["first_row"] for part in parts] == [0, *ends[:-1]]
    assert ends[-1] == len(addresses)
    first_rows = {address: at for at, address in reversed(list(enumerate(addresses))) if address != "nobody"}
    records = ask(database_url, RECORDS, slug=slug)
    assert {row["address"] for row in records} == set(first_rows)
    for row in records:
        at = bisect_right(parts, first_rows[row["address"]], key=itemgetter("first_row")) - 1
        assert row["submission_id"] == parts[at]["submission_id"]


def counts_of(found: dict[str, object]) -> dict[str, object]:
    names = ("state", "rows", "bad", "redated", "created", "updated", "unchanged", "outranked", "sha256")
    return {name: found[name] for name in names}


@pytest.mark.slow
def test_kills_lose_and_double_nothing(either: Prompt, tmp_path: Path) -> None:
    """Records and counts are those of an undisturbed import, row by row, and each row is in exactly one submission."""
    prompt, chance = either, random.Random()  # noqa: S311
    new_organization(prompt, "calm")
    file = tmp_path / "list.csv"
    addresses = write_list(file, range(ROWS), chance)
    with start(prompt, "import", "run", str(file), "--org", "calm", *TARGET, "--yes") as process:
        began_s = time.monotonic()
        assert process.wait() == 0
    lasted_s = time.monotonic() - began_s
    (calm,) = prompt.json("import", "list", "--org", "calm")
    assert_each_row_is_in_one_submission(prompt.database_url, calm["import_id"], "calm", addresses)

    kills = number = 0
    while kills < KILLS:
        number += 1
        slug, rejects = f"killed-{number}", tmp_path / f"rejects-{number}.csv"
        new_organization(prompt, slug)
        kills += kill_at_random(prompt, slug, file, rejects, most=KILLS - kills, lasted_s=lasted_s, chance=chance)
        (found,) = prompt.json("import", "list", "--org", slug)
        assert counts_of(found) == counts_of(calm)
        assert states(prompt.database_url, slug) == states(prompt.database_url, "calm")
        lines_left_out = [int(re.match(r"\d+", line)[0]) for line in rejects.read_text().splitlines()[1:]]  # type: ignore[index]
        assert lines_left_out == [at for at, address in enumerate(addresses, 2) if address == "nobody"]
        assert_each_row_is_in_one_submission(prompt.database_url, found["import_id"], slug, addresses)


def kill_at_random(
    prompt: Prompt, slug: str, file: Path, rejects: Path, *, most: int, lasted_s: float, chance: random.Random
) -> int:
    """Import a file whose processes are killed at random moments; return how many were, at most `most`."""
    parts = ROWS // ROWS_PER_PART
    kills, words = 0, ["run", str(file), "--org", slug, *TARGET, "--yes"]
    while kills < most:
        with start(prompt, "import", *words, "--rejects", str(rejects)) as process:
            alive_s = chance.uniform(0, 2 * lasted_s / parts)
            if chance.random() < 0.2:
                alive_s = chance.uniform(0, 2)  # while it starts, on a quiet machine
            else:
                assert process.stderr is not None
                process.stderr.readline()  # after its first part, or at its end
            with suppress(subprocess.TimeoutExpired):
                process.wait(timeout=alive_s)
            process.send_signal(signal.SIGKILL)
        kills += process.returncode == -signal.SIGKILL
        begun = prompt.json("import", "list", "--org", slug)
        if begun:
            words = ["resume", begun[0]["import_id"], str(file)]
        if begun and begun[0]["state"] == "done":
            return kills
    prompt.ok("import", *words, "--rejects", str(rejects))
    return kills


@pytest.mark.slow
def test_two_processes_import_into_one_feed_at_once(either: Prompt, tmp_path: Path) -> None:
    """Each row is taken by each of them; a record is created by one."""
    prompt, chance = either, random.Random(1)  # noqa: S311
    new_organization(prompt, "acme")
    files = {name: tmp_path / f"{name}.csv" for name in ("first", "second")}
    rows = {"first": range(8_000), "second": range(4_000, 12_000)}
    addresses = {name: write_list(files[name], rows[name], chance) for name in files}
    with ExitStack() as stack:
        words = ("--org", "acme", *TARGET, "--yes")
        both = [stack.enter_context(start(prompt, "import", "run", str(file), *words)) for file in files.values()]
        assert [each.wait() for each in both] == [0, 0]
    imports = prompt.json("import", "list", "--org", "acme")
    assert [(each["state"], each["rows"]) for each in imports] == [("done", 8_000)] * 2
    good = {name: [each for each in found if each != "nobody"] for name, found in addresses.items()}
    everybody = set(good["first"]) | set(good["second"])
    assert {state[0] for state in states(prompt.database_url, "acme")} == everybody
    assert sum(each["created"] for each in imports) == len(everybody)
    assert sum(each["created"] + each["unchanged"] for each in imports) == sum(map(len, good.values()))


@pytest.mark.slow
def test_an_import_goes_on_after_an_outage(empty: Prompt, own_postgresql: services.Cluster, tmp_path: Path) -> None:
    """PostgreSQL stops in the middle of an import, and comes back."""
    prompt = empty
    prompt.set(DATABASE_URL=own_postgresql.fresh_database(), SECRET_KEY="k" * 43)
    prompt.ok("migrate")
    new_organization(prompt, "acme")
    file = tmp_path / "list.csv"
    addresses = write_list(file, range(20_000), random.Random(2))  # noqa: S311
    with start(prompt, "import", "run", str(file), "--org", "acme", *TARGET, "--yes") as process:
        assert process.stderr is not None
        assert "Importing" in process.stderr.readline()  # the first part is stored
        process.send_signal(signal.SIGSTOP)  # however long the database takes to stop, the import does not end before
        own_postgresql.stop()
        process.send_signal(signal.SIGCONT)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(timeout=4)
        own_postgresql.start()
        assert process.wait() == 0
    (found,) = prompt.json("import", "list")
    assert (found["state"], found["rows"], found["bad"]) == ("done", 20_000, 20)
    assert_each_row_is_in_one_submission(prompt.database_url, found["import_id"], "acme", addresses)
