"""What a server finishes before it ends. Source: docs/interface.md sections D1 and D9."""

import asyncio
import signal
from typing import Any

import pytest

from tests.e2e import load
from tests.e2e.server_process import Key, Place, Server
from tests.server.serving import Answer

pytestmark = pytest.mark.interpreter

CC = {"grant_type": "client_credentials"}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_request_in_flight_is_finished(place: Place, number: signal.Signals) -> None:
    """Its body arrives after the signal, when new connections are refused; then the process exits with 0."""
    with place.serving(DRAIN_S="60") as server:
        key = place.new_key()
        answer = asyncio.run(_answer_across(server, key, number))
        assert (answer.status, answer.headers["connection"]) == (200, "close")
        assert server.wait_for_exit() == 0
        assert server.log.lines[-1]["message"] == "Stopped"


async def _answer_across(server: Server, key: Key, number: signal.Signals) -> Answer:
    async with load.in_flight(server, key) as (line, body):
        server.process.send_signal(number)
        await load.wait_until_refused(server)
        await line.send(body)
        return await line.answer()


def test_an_endless_request_does_not_delay_the_stop(place: Place) -> None:
    """After DRAIN_S it is cut off; the process still exits with 0."""

    async def stop_amid(server: Server, key: Key) -> None:
        async with load.connections([server], 2) as (endless, other):
            await endless.send(load.issue(key)[:-1])
            # A later request was answered, so the one before is in progress.
            await load.send_once(other, load.call("x"))
            server.process.send_signal(signal.SIGTERM)
            assert await endless.is_closed()

    with place.serving(DRAIN_S="0") as server:
        key = place.new_key()
        asyncio.run(stop_amid(server, key))
        assert server.wait_for_exit() == 0


def test_key_usage_is_written_at_the_end(migrated: Place) -> None:
    """Everything since the last minute: requests by day, last use, refusals with the ids given to clients."""
    key = migrated.new_key()
    with migrated.serving() as server:
        with server.client() as client:
            token = client.post("/oauth/token", data=CC, auth=key).json()["access_token"]
            client.get("/api/v1/x", headers={"authorization": f"Bearer {token}"})
            refused = client.post("/oauth/token", data=CC, auth=(key.client_id, "x"))
        assert migrated.json("key", "show", key.client_id)["last_used_at"] is None
        assert server.terminate() == 0
    shown: dict[str, Any] = migrated.json("key", "show", key.client_id)
    (day,) = shown["days"]
    assert (day["requests"], day["limit_refusals"], day["failed_authentications"]) == (3, 0, 1)
    assert shown["last_used_at"][:10] == day["day"]
    found = [(refusal["error"], refusal["request_id"]) for refusal in shown["refusals"]]
    assert sorted(found)[0] == ("invalid_client", refused.headers["x-request-id"])
