"""A database that stops and comes back under a running server."""

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from tests.conftest import leave_out
from tests.e2e.conftest import postgresql_place
from tests.e2e.server_process import PATIENCE_S
from tests.services import postgresql as services

CC = {"grant_type": "client_credentials"}


@pytest.fixture
def own_cluster(pytestconfig: pytest.Config) -> Iterator[services.Cluster]:
    """Start a PostgreSQL that may be stopped, because other tests do not use it."""
    with contextlib.ExitStack() as running:
        try:
            cluster = running.enter_context(services.cluster(settings={"fsync": "off"}))
        except services.Unavailable as error:
            leave_out(pytestconfig, "on a PostgreSQL of their own", str(error))
        yield cluster


def test_a_server_without_its_database_answers_503_and_recovers(own_cluster: services.Cluster, tmp_path: Path) -> None:
    """Not ready, tokens and API `temporarily_unavailable` with `Retry-After`; never 401, and no restart is needed."""
    place = postgresql_place(tmp_path, own_cluster.fresh_database())
    place.ok("migrate")
    key = place.new_key()
    with place.serving(DRAIN_S="0") as server, server.client() as client:
        tokens = client.post("/oauth/token", data=CC, auth=key).json()
        bearer = {"authorization": f"Bearer {tokens['access_token']}"}
        assert client.get("/readyz").status_code == 200

        own_cluster.stop(keep=True)
        refresh = {"grant_type": "refresh_token", "refresh_token": tokens["refresh_token"]}
        for answer in (
            _wait_until_not_ready(client),
            client.post("/oauth/token", data=CC, auth=key),
            client.post("/oauth/token", data=refresh),
            client.get("/api/v1/x", headers=bearer),
        ):
            assert (answer.status_code, answer.json()["error"]) == (503, "temporarily_unavailable")
            assert int(answer.headers["retry-after"]) > 0
            assert answer.headers["x-request-id"]
        assert client.get("/healthz").status_code == 200

        own_cluster.start()
        assert client.get("/readyz").status_code == 200
        assert client.get("/api/v1/x", headers=bearer).status_code == 404
        assert client.post("/oauth/token", data=refresh).status_code == 200
        assert server.terminate() == 0
    password = urlsplit(place.database_url).password
    assert password
    assert password not in server.log.text
    assert not any("Traceback" in line for line in server.log.text.splitlines())


def _wait_until_not_ready(client: httpx.Client) -> httpx.Response:
    """Wait until the server is not ready; a database check is cached for a second."""
    until_s = time.monotonic() + PATIENCE_S
    while (answer := client.get("/readyz")).status_code == 200:
        assert time.monotonic() < until_s
    return answer
