"""The doctor's check of the limit store, with real servers, set up well and badly."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from stoplist.limits import store_info
from stoplist.maintenance.doctor.finding import Finding
from stoplist.maintenance.doctor.limit_store import limit_store
from tests.builders import Run
from tests.limits.counting import patience
from tests.maintenance.doctor.installation import settings
from tests.services.valkey import Valkey

PG = "postgresql://stoplist@127.0.0.1/stoplist"


@pytest.fixture(autouse=True)
def long_store_timeout(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Allow slow answers: these tests are about the configuration of a store, not its speed."""
    monkeypatch.setattr(store_info, "_TIMEOUT_S", 30.0)
    with patience():
        yield


def check(run: Run, folder: Path, url: str) -> Finding:
    finding: Finding = run(limit_store(settings(folder, DATABASE_URL=PG, LIMITS_URL=url)))
    return finding


@pytest.fixture
def changeable(valkey: Valkey) -> Iterator[Valkey]:
    """Yield the session's server and undo changes to its configuration afterwards."""
    yield valkey
    valkey.execute("REPLICAOF", "NO", "ONE")
    valkey.execute("CONFIG", "SET", "maxmemory", "0", "maxmemory-policy", "noeviction")
    valkey.execute("ACL", "DELUSER", "partner")


def test_a_store_that_decides_is_ok(run: Run, tmp_path: Path, valkey: Valkey) -> None:
    """TCP and a Unix socket lead to it."""
    assert check(run, tmp_path, valkey.url).status == "ok"
    assert check(run, tmp_path, valkey.unix_url).status == "ok"


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-ttl"])
def test_a_store_that_evicts_counts_is_wrong(run: Run, tmp_path: Path, changeable: Valkey, policy: str) -> None:
    """It evicts only if it has a memory limit."""
    changeable.execute("CONFIG", "SET", "maxmemory-policy", policy)
    assert check(run, tmp_path, changeable.url).status == "ok"
    changeable.execute("CONFIG", "SET", "maxmemory", "100mb")
    wrong = check(run, tmp_path, changeable.url)
    assert wrong.status == "wrong"
    assert "maxmemory-policy noeviction" in wrong.text
    changeable.execute("CONFIG", "SET", "maxmemory-policy", "noeviction")
    assert check(run, tmp_path, changeable.url).status == "ok"


def test_a_replica_is_wrong(run: Run, tmp_path: Path, changeable: Valkey) -> None:
    changeable.execute("REPLICAOF", "127.0.0.1", "1")
    wrong = check(run, tmp_path, changeable.url)
    assert wrong.status == "wrong"
    assert "replica" in wrong.text


def test_an_unreachable_or_refusing_store_is_wrong(run: Run, tmp_path: Path, valkey: Valkey) -> None:
    """The password is not repeated."""
    for url in ("redis://:hush@127.0.0.1:1/0", f"redis://:hush@127.0.0.1:{valkey.port}/0"):
        wrong = check(run, tmp_path, url)
        assert wrong.status == "wrong"
        assert "STOPLIST_LIMITS_URL" in wrong.text
        assert "hush" not in wrong.text


def test_an_account_without_info_gives_a_warning(run: Run, tmp_path: Path, changeable: Valkey) -> None:
    """The account may not ask whether counts are evicted; that is no fault of the store."""
    changeable.execute("ACL", "SETUSER", "partner", "on", ">hush", "~*", "&*", "+@all", "-info")
    warning = check(run, tmp_path, f"redis://partner:hush@127.0.0.1:{changeable.port}/0")
    assert warning.status == "warning"


def test_counting_in_process_is_ok(run: Run, tmp_path: Path) -> None:
    assert check(run, tmp_path, "memory:").status == "ok"
    assert run(limit_store(settings(tmp_path))).status == "ok"
