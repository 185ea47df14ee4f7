"""`/healthz` and `/readyz` (docs/interface.md section D10)."""

import asyncio
from pathlib import Path

import pytest

from stoplist.db import Database, schema
from stoplist.web import health
from tests.builders import opened
from tests.fakes import FakeClock
from tests.web.application import Application


@pytest.mark.parametrize(("path", "status"), [("/healthz", "up"), ("/readyz", "ready")])
def test_a_healthy_process_answers_200(app: Application, path: str, status: str) -> None:
    """Anybody gets the answer, in JSON, with nothing else."""
    answer = app.request("GET", path)
    assert (answer.status, answer.json()) == (200, {"status": status})
    assert answer.header("content-type") == "application/json"


def test_a_stopping_server_is_alive_and_not_ready(app: Application) -> None:
    """503 with a status of its own, so that balancers move on."""
    app.stop.set()
    answer = app.request("GET", "/readyz")
    assert (answer.status, answer.json()) == (503, {"status": "stopping"})
    assert app.request("GET", "/healthz").status == 200


@pytest.mark.parametrize("is_stopping", [False, True])
def test_a_readiness_probe_is_noted(app: Application, *, is_stopping: bool) -> None:
    """The answer does not matter; no other path counts as a probe."""
    app.request("GET", "/healthz")
    app.request("POST", "/readyz")
    assert app.readiness.notice_s(10) == 0
    if is_stopping:
        app.stop.set()
    app.request("GET", "/readyz")
    assert app.readiness.notice_s(10) == 5


def test_a_flood_of_probes_is_one_query(app: Application, monkeypatch: pytest.MonkeyPatch) -> None:
    """Probes within a second of another get the same answer, and the database is queried once."""
    queries = []
    read = schema.read

    async def count_queries(database: Database) -> schema.Deployment | None:
        queries.append(database)
        return await read(database)

    monkeypatch.setattr(schema, "read", count_queries)
    monkeypatch.setattr(health, "CACHED_FOR_S", 3600.0)
    assert [app.request("GET", "/readyz").status for _ in range(5)] == [200] * 5
    assert len(queries) == 1
    monkeypatch.setattr(health, "CACHED_FOR_S", 0.0)
    assert app.request("GET", "/readyz").status == 200
    assert len(queries) == 2


def test_an_empty_database_is_not_ready(tmp_path: Path) -> None:
    """503 with `Retry-After`: nothing could be served from it."""
    with asyncio.Runner() as runner:
        database = runner.run(opened(f"sqlite:///{tmp_path / 'empty.db'}").__aenter__())
        app = Application(runner.run, database, FakeClock())
        answer = app.request("GET", "/readyz")
        assert (answer.status, answer.error) == (503, "temporarily_unavailable")
        assert answer.header("retry-after") == "1"
        assert app.request("GET", "/healthz").status == 200
        runner.run(database.close())
