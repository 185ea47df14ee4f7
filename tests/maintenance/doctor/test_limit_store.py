"""The limit store as the doctor sees it: real servers, set up well and badly."""

from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from stoplist.limits import store_info
from stoplist.maintenance.doctor.finding import Finding
from stoplist.maintenance.doctor.limit_store import limit_store
from tests.limits.counting import patience
from tests.maintenance.doctor.installation import settings
from tests.services.valkey import Valkey

Run = Callable[[Awaitable[Any]], Any]
PG = "postgresql://stoplist@127.0.0.1/stoplist"


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """How a store is set up is at stake here, not how soon it answers."""
    monkeypatch.setattr(store_info, "_TIMEOUT_S", 30.0)
    with patience():
        yield


def found(run: Run, folder: Path, url: str) -> Finding:
    finding: Finding = run(limit_store(settings(folder, DATABASE_URL=PG, LIMITS_URL=url)))
    return finding


@pytest.fixture
def restored(valkey: Valkey) -> Iterator[Valkey]:
    """The session's server; what a test sets is as before afterwards."""
    yield valkey
    valkey.execute("REPLICAOF", "NO", "ONE")
    valkey.execute("CONFIG", "SET", "maxmemory", "0", "maxmemory-policy", "noeviction")
    valkey.execute("ACL", "DELUSER", "partner")


def test_a_store_that_decides_is_ok(run: Run, tmp_path: Path, valkey: Valkey) -> None:
    """Over TCP and over a Unix socket."""
    assert found(run, tmp_path, valkey.url).status == "ok"
    assert found(run, tmp_path, valkey.unix_url).status == "ok"


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-ttl"])
def test_a_store_that_throws_counts_away_is_wrong(run: Run, tmp_path: Path, restored: Valkey, policy: str) -> None:
    """Its memory has an end, and it makes room; without an end it never does."""
    restored.execute("CONFIG", "SET", "maxmemory-policy", policy)
    assert found(run, tmp_path, restored.url).status == "ok"
    restored.execute("CONFIG", "SET", "maxmemory", "100mb")
    wrong = found(run, tmp_path, restored.url)
    assert wrong.status == "wrong"
    assert "maxmemory-policy noeviction" in wrong.text
    restored.execute("CONFIG", "SET", "maxmemory-policy", "noeviction")
    assert found(run, tmp_path, restored.url).status == "ok"


def test_a_replica_is_wrong(run: Run, tmp_path: Path, restored: Valkey) -> None:
    """It cannot count."""
    restored.execute("REPLICAOF", "127.0.0.1", "1")
    wrong = found(run, tmp_path, restored.url)
    assert wrong.status == "wrong"
    assert "replica" in wrong.text


def test_a_store_that_is_away_or_refuses_is_wrong(run: Run, tmp_path: Path, valkey: Valkey) -> None:
    """Nobody listens; the password is another one. Neither is repeated."""
    for url in ("redis://:hush@127.0.0.1:1/0", f"redis://:hush@127.0.0.1:{valkey.port}/0"):
        wrong = found(run, tmp_path, url)
        assert wrong.status == "wrong"
        assert "STOPLIST_LIMITS_URL" in wrong.text
        assert "hush" not in wrong.text


def test_an_account_that_may_only_decide_leaves_a_doubt(run: Run, tmp_path: Path, restored: Valkey) -> None:
    """Whether counts are thrown away it may not ask; that is no fault of the store."""
    restored.execute("ACL", "SETUSER", "partner", "on", ">hush", "~*", "&*", "+@all", "-info")
    doubt = found(run, tmp_path, f"redis://partner:hush@127.0.0.1:{restored.port}/0")
    assert doubt.status == "warning"


def test_counting_in_the_process_is_ok(run: Run, tmp_path: Path) -> None:
    """With the word that says what it means."""
    assert found(run, tmp_path, "memory:").status == "ok"
    assert run(limit_store(settings(tmp_path))).status == "ok"
