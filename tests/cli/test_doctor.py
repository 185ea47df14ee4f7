"""`stoplist doctor` (docs/interface.md section D9)."""

import shutil
import sqlite3
from contextlib import closing
from typing import NamedTuple

import pytest

from stoplist.maintenance.doctor import files
from tests.cli.command_line import Prompt

GIB = 1 << 30


class Usage(NamedTuple):
    """What `shutil.disk_usage` answers."""

    total: int
    used: int
    free: int


@pytest.fixture(autouse=True)
def healthy_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk of whoever runs the tests may be full, and their limits low."""
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(100 * GIB, 50 * GIB, 50 * GIB))
    monkeypatch.setattr(files, "LEAST_OPEN_FILES", 1)
    monkeypatch.setattr(files, "_NETWORK", frozenset())


def test_a_healthy_installation_ends_with_0(prompt: Prompt) -> None:
    """A line a check: its name, how it stands, a text."""
    lines = prompt.ok("doctor").splitlines()
    assert {line.split()[0] for line in lines} > {"settings", "database", "schema", "clock", "durability"}
    found = prompt.json("doctor")
    assert len(found) == len(lines)
    assert all(list(finding) == ["check", "status", "text"] for finding in found)
    assert {finding["status"] for finding in found} == {"ok", "not checked"}
    assert all(finding["text"].endswith((".", ")")) for finding in found)


def test_something_wrong_ends_with_1(prompt: Prompt) -> None:
    """All lines are printed all the same."""
    (prompt.data_dir / "secret.key").write_text("short")
    done = prompt.run("doctor")
    assert (done.status, done.err) == (1, "")
    assert "wrong" in done.out
    assert "open files" in done.out


def test_every_setting_that_is_wrong_is_named(prompt: Prompt) -> None:
    """Variables, the `.env` file, and what does not go together; never a value."""
    (prompt.folder / ".env").write_text("STOPLIST_DRAIN_S=hush\nSTOPLIST_NONSENSE=1\n")
    prompt.set(PORT="hush", PORTT="1", SECRET_KEY="hush", SECRET_KEY_FILE="x")
    done = prompt.run("doctor")
    assert (done.status, done.err) == (1, "")
    for name in ("STOPLIST_DRAIN_S in .env", "STOPLIST_NONSENSE in .env", "STOPLIST_PORT ", "STOPLIST_PORTT"):
        assert name in done.out
    assert "STOPLIST_SECRET_KEY and STOPLIST_SECRET_KEY_FILE are both set" in done.out
    assert "hush" not in done.out


def test_settings_that_no_server_can_run_with_are_all_named(prompt: Prompt) -> None:
    """Other commands work with them, so the rest is examined too."""
    prompt.set(ENVIRONMENT="production", WORKERS="2", TLS_CERT="nowhere.pem")
    found = [finding for finding in prompt.run("doctor", "--json").out.split('"check"') if '"settings"' in finding]
    assert len(found) >= 3
    out = prompt.run("doctor").out
    assert "STOPLIST_WORKERS" in out
    assert "STOPLIST_TLS_CERT must name a file" in out
    assert "database" in out


def test_the_environment_of_a_file_counts_as_set(prompt: Prompt) -> None:
    """A `.env` says it as well as a variable."""
    (prompt.folder / ".env").write_text("STOPLIST_ENVIRONMENT=production\nSTOPLIST_TRUSTED_PROXIES=10.0.0.0/8\n")
    done = prompt.run("doctor")
    assert done.status == 1
    assert "belongs to development, and STOPLIST_ENVIRONMENT is production" in done.out


def test_it_makes_nothing(empty: Prompt) -> None:
    """Neither a database nor a folder."""
    assert empty.run("doctor").status == 1
    assert not empty.data_dir.exists()


def test_the_folder_may_be_named(prompt: Prompt) -> None:
    """`--data-dir`, as with every command."""
    assert "There is none at elsewhere/stoplist.db" in prompt.run("doctor", "--data-dir", "elsewhere").out


def test_it_works_on_postgresql(on_postgresql: Prompt) -> None:
    """Where the tests' server, which forgets commits in a power cut, is found out."""
    on_postgresql.ok("migrate")
    on_postgresql.set(LIMITS_URL="memory:", SECRET_KEY="0123456789" * 4)
    done = on_postgresql.run("doctor")
    wrong = [line for line in done.out.splitlines() if " wrong " in line]
    assert [line.split()[0] for line in wrong] == (["durability"] if "fsync = off" in done.out else []), done.out
    assert "0123456789" not in done.out


@pytest.mark.parametrize("variable", ["SECRET_KEY", "DATABASE_URL", "LIMITS_URL"])
def test_a_file_of_settings_is_secret_if_it_holds_a_secret(
    prompt: Prompt, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    """Also where a variable wins over it; a port may be read by anybody."""
    monkeypatch.setattr(files, "_is_open", lambda path: path.name == ".env")
    (prompt.folder / ".env").write_text("STOPLIST_PORT=8443\n")
    assert "chmod" not in prompt.ok("doctor")
    values = {"SECRET_KEY": "0123456789" * 4, "DATABASE_URL": "sqlite:///data/stoplist.db", "LIMITS_URL": "memory:"}
    (prompt.folder / ".env").write_text(f"STOPLIST_{variable}={values[variable]}\n")
    prompt.set(**values)
    done = prompt.run("doctor")
    assert done.status == 1
    assert f"`chmod o-rwx {prompt.folder / '.env'}`" in done.out


def test_a_key_that_cursors_need_is_missed(prompt: Prompt) -> None:
    """The database knows whether anybody may hold one."""
    with closing(sqlite3.connect(prompt.data_dir / "stoplist.db", isolation_level=None)) as connection:
        connection.execute("INSERT INTO feeds VALUES (17, 1, 'email', 'first', 0, 0)")
    done = prompt.run("doctor")
    assert done.status == 1
    assert "put it back from where it was kept" in done.out
