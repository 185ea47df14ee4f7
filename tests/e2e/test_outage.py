"""A database that stops and comes back under a running server."""

import time
from pathlib import Path
from urllib.parse import urlsplit

import httpx
from stoplist_client import LinkMaker

from tests.constants import PATIENCE_S
from tests.e2e.conftest import postgresql_installation
from tests.e2e.server_process import Installation
from tests.keys import CLIENT_CREDENTIALS
from tests.services import postgresql as services
from tests.services.proxy import Proxy

ONE_CLICK = {"List-Unsubscribe": "One-Click"}


def test_a_server_without_its_database_answers_503_and_recovers(
    own_postgresql: services.Cluster, tmp_path: Path
) -> None:
    """It is not ready, tokens and API are `temporarily_unavailable` with `Retry-After`, never 401; it needs no restart.

    A link is answered with a page that says to try again, also if only the answer to COMMIT is lost; never 200.
    """
    with Proxy(url := own_postgresql.fresh_database()) as to_database:
        _lose_the_database(own_postgresql, to_database, postgresql_installation(tmp_path, to_database.url(url)))


def _lose_the_database(own_cluster: services.Cluster, to_database: Proxy, installation: Installation) -> None:
    installation.migrate()
    key = installation.new_key()
    made = installation.json("link-key", "create", "--org", "acme")
    maker = LinkMaker("https://x", made["link_key"])
    ann, bob = (maker.url("email", f"{name}@example.com").removeprefix("https://x") for name in ("ann", "bob"))
    with installation.serving(DRAIN_S="0") as server, server.client() as client:
        tokens = client.post("/oauth/token", data=CLIENT_CREDENTIALS, auth=key).json()
        bearer = {"authorization": f"Bearer {tokens['access_token']}"}
        assert client.get("/readyz").status_code == 200

        own_cluster.stop()
        refresh = {"grant_type": "refresh_token", "refresh_token": tokens["refresh_token"]}
        for answer in (
            _wait_until_not_ready(client),
            client.post("/oauth/token", data=CLIENT_CREDENTIALS, auth=key),
            client.post("/oauth/token", data=refresh),
            client.get("/api/v1/x", headers=bearer),
        ):
            assert (answer.status_code, answer.json()["error"]) == (503, "temporarily_unavailable")
            assert int(answer.headers["retry-after"]) > 0
            assert answer.headers["x-request-id"]
        assert client.get("/healthz").status_code == 200
        for answer in (client.get(ann), client.post(ann, data=ONE_CLICK)):
            _assert_asks_to_try_again(answer)

        own_cluster.start()
        assert client.get("/readyz").status_code == 200
        assert client.get("/api/v1/x", headers=bearer).status_code == 404
        assert client.post("/oauth/token", data=refresh).status_code == 200
        assert (client.get(ann).status_code, client.post(ann, data=ONE_CLICK).status_code) == (200, 200)
        to_database.drop_answers_after(lambda sent: b"COMMIT\0" in sent)
        _assert_asks_to_try_again(client.post(bob, data=ONE_CLICK))
        to_database.drop_answers_after(None)
        assert client.post(bob, data=ONE_CLICK).status_code == 200
        assert len(installation.json("submission", "list", "--key", made["link_key_id"])) >= 2
        assert server.terminate() == 0
    password = urlsplit(installation.database_url).password
    assert password
    assert password not in server.log.text
    assert not any("Traceback" in line for line in server.log.text.splitlines())


def _assert_asks_to_try_again(answer: httpx.Response) -> None:
    assert (answer.status_code, answer.headers["content-type"]) == (503, "text/html; charset=utf-8")
    assert int(answer.headers["retry-after"]) > 0
    assert "Please try again" in answer.text


def _wait_until_not_ready(client: httpx.Client) -> httpx.Response:
    """Wait until the server is not ready; a database check is cached for a second."""
    until_s = time.monotonic() + PATIENCE_S
    while (answer := client.get("/readyz")).status_code == 200:
        assert time.monotonic() < until_s
    return answer
