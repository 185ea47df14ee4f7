"""`stoplist doctor` (docs/interface.md section D9)."""

import shutil

import pytest

from stoplist.encryption import encrypt
from stoplist.maintenance.doctor import files
from tests.builders import execute, on_database
from tests.cli.command_line import Prompt
from tests.fakes import DiskUsage

GIB = 1 << 30


@pytest.fixture(autouse=True)
def healthy_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the values of this machine, whose disk may be full and whose limits may be low."""
    monkeypatch.setattr(shutil, "disk_usage", lambda _: DiskUsage(100 * GIB, 50 * GIB, 50 * GIB))
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
    """Variables, the `.env` file and contradictions are examined; no secret is shown with its value."""
    (prompt.folder / ".env").write_text("STOPLIST_DRAIN_S=soon\nSTOPLIST_NONSENSE=1\n")
    prompt.set(PORT="x", PORTT="1", SECRET_KEY="hush", SECRET_KEY_FILE="x")
    result = prompt.run("doctor")
    assert (result.status, result.err) == (1, "")
    for name in ("STOPLIST_DRAIN_S in .env", "'soon'", "STOPLIST_NONSENSE in .env", "STOPLIST_PORT ", "STOPLIST_PORTT"):
        assert name in result.out
    assert "STOPLIST_SECRET_KEY and STOPLIST_SECRET_KEY_FILE are both set" in result.out
    assert "hush" not in result.out


def test_every_setting_that_stops_a_server_is_named(prompt: Prompt) -> None:
    """Other commands work with these settings, so the rest is examined too."""
    prompt.set(ENVIRONMENT="production", WORKERS="2", TLS_CERT="nowhere.pem")
    findings = [finding for finding in prompt.run("doctor", "--json").out.split('"check"') if '"settings"' in finding]
    assert len(findings) >= 4
    out = prompt.run("doctor").out
    assert "STOPLIST_WORKERS" in out
    assert "STOPLIST_TLS_CERT (nowhere.pem) must name a readable file" in out
    assert "STOPLIST_BASE_URL must be set in production" in out
    assert "database" in out


def test_an_environment_in_the_env_file_counts_as_set(prompt: Prompt) -> None:
    (prompt.folder / ".env").write_text("STOPLIST_ENVIRONMENT=production\nSTOPLIST_TRUSTED_PROXIES=10.0.0.0/8\n")
    result = prompt.run("doctor")
    assert result.status == 1
    assert "belongs to development, and STOPLIST_ENVIRONMENT is production" in result.out


def test_it_creates_nothing(empty: Prompt) -> None:
    """It makes neither a database nor a folder."""
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
    """This holds even if a variable overrides the secret. A file with a port only may be readable by all."""
    monkeypatch.setattr(files, "_is_open_to_others", lambda path: path.name == ".env")
    (prompt.folder / ".env").write_text("STOPLIST_PORT=8443\n")
    assert "chmod" not in prompt.ok("doctor")
    values = {"SECRET_KEY": "0123456789" * 4, "DATABASE_URL": "sqlite:///data/stoplist.db", "LIMITS_URL": "memory:"}
    (prompt.folder / ".env").write_text(f"STOPLIST_{variable}={values[variable]}\n")
    prompt.set(**values)
    result = prompt.run("doctor")
    assert result.status == 1
    assert f"`chmod o-rwx {prompt.folder / '.env'}`" in result.out


def test_a_totp_secret_that_no_key_reads_is_named(prompt: Prompt) -> None:
    """The text has the way on, which works although no server can start; recovery by the link is then possible."""
    prompt.ok("user", "create", "ann@example.org", "--administrator")
    secret = encrypt("x" * 32, "A" * 32, purpose="totp 1")
    on_database(prompt.database_url, execute, "UPDATE people SET totp_secret = :secret", secret=secret)
    prompt.set(SECRET_KEY="y" * 32)
    result = prompt.run("doctor")
    assert result.status == 1
    assert "The TOTP secrets of ann@example.org are encrypted" in result.out
    assert "`stoplist user link EMAIL --without-two-step`" in result.out
    prompt.ok("user", "link", "ann@example.org", "--without-two-step")
    assert "TOTP" not in prompt.run("doctor").out


def test_a_lost_key_is_named_with_the_way_on(prompt: Prompt) -> None:
    """Neither the doctor nor the way on creates another key."""
    prompt.ok("user", "create", "ann@example.org", "--administrator")
    secret = encrypt("x" * 32, "A" * 32, purpose="totp 1")
    on_database(prompt.database_url, execute, "UPDATE people SET totp_secret = :secret", secret=secret)
    (prompt.data_dir / "secret.key").unlink(missing_ok=True)
    result = prompt.run("doctor")
    assert result.status == 1
    assert "is missing: restore it" in result.out
    assert "`stoplist user link EMAIL --without-two-step`" in result.out
    prompt.ok("user", "link", "ann@example.org", "--without-two-step")
    assert "TOTP secrets of" not in prompt.run("doctor").out
    assert not (prompt.data_dir / "secret.key").exists()


def test_a_missing_key_that_cursors_need_is_reported(prompt: Prompt) -> None:
    """The database shows whether a partner may hold a cursor."""
    on_database(
        prompt.database_url,
        execute,
        "INSERT INTO feeds (feed_id, organization_id, channel, generation, head_seq, writes) "
        "VALUES (17, 1, 'email', 'first', 0, 0)",
    )
    result = prompt.run("doctor")
    assert result.status == 1
    assert "restore it from its backup" in result.out


def test_a_deep_check_finds_a_wrong_state(prompt: Prompt) -> None:
    """The quick check does not look for it: a state that counts a record, of a feed that has none."""
    prompt.set(SECRET_KEY="k" * 32)
    prompt.ok("doctor", "--deep")
    on_database(
        prompt.database_url,
        execute,
        "INSERT INTO feeds (feed_id, organization_id, channel, generation, head_seq, writes, state_seq,"
        " state_records, state_writes) VALUES (17, 1, 'email', 'first', 1, 1, 1, 1, 1)",
    )
    assert "states of feeds" not in prompt.ok("doctor")
    result = prompt.run("doctor", "--deep")
    assert result.status == 1
    assert "1 of 1 differ from their records (feed_id 17)" in result.out
