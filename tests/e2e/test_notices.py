"""A real server tells a real receiver of a stolen token, across a restart (docs/interface.md section D16)."""

import json
from pathlib import Path

import httpx
import pytest
from standardwebhooks import Webhook

from tests.builders import on_database, value
from tests.e2e.server_process import Installation
from tests.keys import CLIENT_CREDENTIALS, Key
from tests.notices.receiver import BROKEN, OK, SECRET_TEXT, Receiver, serving_tls
from tests.services.managed_program import wait_until

pytestmark = pytest.mark.slow


def raise_alarm(client: httpx.Client, key: Key) -> None:
    """Use a refresh token, and present it once more."""
    pair = client.post("/oauth/token", data=CLIENT_CREDENTIALS, auth=key).json()
    statuses = [
        client.post("/oauth/token", data={"grant_type": "refresh_token", "refresh_token": pair["refresh_token"]})
        for _ in range(2)
    ]
    assert [answer.status_code for answer in statuses] == [200, 400]


def test_an_alarm_arrives_across_a_restart(installation: Installation, tmp_path: Path) -> None:
    """The receiver fails at first, and the server stops meanwhile; the next one delivers, once, with the same id.

    A server that takes long to stop may have tried again.
    """
    folder = tmp_path / "outside"
    folder.mkdir()
    serving_tls(folder, "localhost")
    with Receiver(folder) as receiver:
        receiver.answers = [BROKEN]
        installation.variables["SSL_CERT_FILE"] = str(folder / "ca.pem")
        variables = {
            "NOTICE_URL": f"https://localhost:{receiver.port}/in",
            "NOTICE_SECRET": SECRET_TEXT,
            "NOTICE_ALLOW_PRIVATE": "yes",
        }
        with installation.serving(**variables) as server:
            key = installation.new_key()
            with server.client() as client:
                raise_alarm(client, key)
            first = receiver.wait_for_notice()
            assert server.terminate() == 0
        attempts = len(receiver.received)
        receiver.arrived.clear()
        receiver.answers = [OK]
        with installation.serving(**variables) as server:
            second = receiver.wait_for_notice()
            # A server that stops before it has noted the delivery leaves it to the next one.
            wait_until(lambda: is_delivered(installation), "the delivery to be noted")
            assert server.terminate() == 0
        assert receiver.received[attempts:] == [second]
    assert first.headers["webhook-id"] == second.headers["webhook-id"]
    notice = Webhook(SECRET_TEXT).verify(second.body, dict(second.headers))
    assert notice["type"] == "key.reuse_alarm"
    assert notice["data"] == {"client_id": key.client_id, "organizations": ["acme"]}
    assert json.loads(first.body) == notice


def is_delivered(installation: Installation) -> bool:
    """Return whether the one delivery is noted as delivered."""
    noted = "SELECT is_delivered FROM notice_deliveries WHERE via = 'webhook'"
    return bool(on_database(installation.database_url, value, noted))
