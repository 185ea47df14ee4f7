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
    """A result of `shutil.disk_usage`."""

    total: int
    used: int
    free: int


@pytest.fixture(autouse=True)
def healthy_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the values of this machine, whose disk may be full and whose limits may be low."""
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(100 * GIB, 50 * GIB, 50 * GIB))
    monkeypatch.setattr(files, "MIN_OPEN_FILES", 1)
    monkeypatch.setattr(files, "_NETWORK_FILE_SYSTEMS", frozenset())


def test_a_healthy_installation_exits_with_0(prompt: Prompt) -> None:
    """Each check prints one line: its name, its status, a text."""
    lines = prompt.ok("doctor").splitlines()
    assert {line.split()[0] for line in lines} > {"settings", "database", "schema", "clock", "durability"}
    findings = prompt.json("doctor")
    assert len(findings) == len(lines)
    assert all(list(finding) == ["check", "status", "text"] for finding in findings)
    assert {finding["status"] for finding in findings} == {"ok", "not checked"}
    assert all(finding["text"].endswith((".", ")")) for finding in findings)


def test_something_wrong_exits_with_1(prompt: Prompt) -> None:
    """The lines of the other checks are printed too."""
    (prompt.data_dir / "secret.key").write_text("short")
    result = prompt.run("doctor")
    assert (result.status, result.err) == (1, "")
    assert "wrong" in result.out
    assert "open files" in result.out


def test_every_wrong_setting_is_named(prompt: Prompt) -> None:
    """In variables, in the `.env` file, and in contradiction to each other; never with its value."""
    (prompt.folder / ".env").write_text("STOPLIST_DRAIN_S=hush\nSTOPLIST_NONSENSE=1\n")
    prompt.set(PORT="hush", PORTT="1", SECRET_KEY="hush", SECRET_KEY_FILE="x")
    result = prompt.run("doctor")
    assert (result.status, result.err) == (1, "")
    for name in ("STOPLIST_DRAIN_S in .env", "STOPLIST_NONSENSE in .env", "STOPLIST_PORT ", "STOPLIST_PORTT"):
        assert name in result.out
    assert "STOPLIST_SECRET_KEY and STOPLIST_SECRET_KEY_FILE are both set" in result.out
    assert "hush" not in result.out


def test_every_setting_that_stops_a_server_is_named(prompt: Prompt) -> None:
    """Other commands work with these settings, so the rest is examined too."""
    prompt.set(ENVIRONMENT="production", WORKERS="2", TLS_CERT="nowhere.pem")
    findings = [finding for finding in prompt.run("doctor", "--json").out.split('"check"') if '"settings"' in finding]
    assert len(findings) >= 3
    out = prompt.run("doctor").out
    assert "STOPLIST_WORKERS" in out
    assert "STOPLIST_TLS_CERT must name a readable file" in out
    assert "database" in out


def test_an_environment_in_the_env_file_counts_as_set(prompt: Prompt) -> None:
    (prompt.folder / ".env").write_text("STOPLIST_ENVIRONMENT=production\nSTOPLIST_TRUSTED_PROXIES=10.0.0.0/8\n")
    result = prompt.run("doctor")
    assert result.status == 1
    assert "belongs to development, and STOPLIST_ENVIRONMENT is production" in result.out


def test_it_creates_nothing(empty: Prompt) -> None:
    """Neither a database nor a folder."""
    assert empty.run("doctor").status == 1
    assert not empty.data_dir.exists()


def test_it_takes_a_data_folder(prompt: Prompt) -> None:
    assert "There is none at elsewhere/stoplist.db" in prompt.run("doctor", "--data-dir", "elsewhere").out


def test_it_works_on_postgresql(on_postgresql: Prompt) -> None:
    """There it reports the tests' server, which loses commits in a power cut."""
    on_postgresql.ok("migrate")
    on_postgresql.set(LIMITS_URL="memory:", SECRET_KEY="0123456789" * 4)
    result = on_postgresql.run("doctor")
    wrong = [line for line in result.out.splitlines() if " wrong " in line]
    assert [line.split()[0] for line in wrong] == (["durability"] if "fsync = off" in result.out else []), result.out
    assert "0123456789" not in result.out


@pytest.mark.parametrize("variable", ["SECRET_KEY", "DATABASE_URL", "LIMITS_URL"])
def test_an_env_file_with_a_secret_must_be_private(
    prompt: Prompt, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    """Even if a variable overrides the secret. A file with a port only may be readable by all."""
    monkeypatch.setattr(files, "_is_open_to_others", lambda path: path.name == ".env")
    (prompt.folder / ".env").write_text("STOPLIST_PORT=8443\n")
    assert "chmod" not in prompt.ok("doctor")
    values = {"SECRET_KEY": "0123456789" * 4, "DATABASE_URL": "sqlite:///data/stoplist.db", "LIMITS_URL": "memory:"}
    (prompt.folder / ".env").write_text(f"STOPLIST_{variable}={values[variable]}\n")
    prompt.set(**values)
    result = prompt.run("doctor")
    assert result.status == 1
    assert f"`chmod o-rwx {prompt.folder / '.env'}`" in result.out


def test_a_missing_key_that_cursors_need_is_reported(prompt: Prompt) -> None:
    """The database shows whether a partner may hold a cursor."""
    with closing(sqlite3.connect(prompt.data_dir / "stoplist.db", isolation_level=None)) as connection:
        connection.execute("INSERT INTO feeds VALUES (17, 1, 'email', 'first', 0, 0)")
    result = prompt.run("doctor")
    assert result.status == 1
    assert "restore it from its backup" in result.out
