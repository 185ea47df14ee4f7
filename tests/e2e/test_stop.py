"""What a server finishes before it ends (docs/interface.md sections D1 and D9)."""

import asyncio
import signal
from typing import Any

import pytest

from tests.e2e import load
from tests.e2e.running import Key, Place, Server
from tests.server.serving import Answer

CC = {"grant_type": "client_credentials"}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_request_in_flight_is_finished(place: Place, number: signal.Signals) -> None:
    """Its body still comes in after the signal, when no new connection is accepted; then the process ends with 0."""
    with place.serving(DRAIN_S="60") as server:
        key = place.new_key()
        answer = asyncio.run(_answer_across(server, key, number))
        assert (answer.status, answer.headers["connection"]) == (200, "close")
        assert server.ended() == 0
        assert server.log.lines[-1]["message"] == "Stopped"


async def _answer_across(server: Server, key: Key, number: signal.Signals) -> Answer:
    async with load.in_flight(server, key) as (line, body):
        server.process.send_signal(number)
        await load.refuses_connections(server)
        await line.send(body)
        return await line.answer()


def test_a_request_that_never_comes_to_an_end_does_not_hold_up_the_stop(place: Place) -> None:
    """After DRAIN_S it is cut off; the process ends with 0 all the same."""

    async def stop_amid(server: Server, key: Key) -> None:
        async with load.connections([server], 2) as (endless, other):
            await endless.send(load.issue(key)[:-1])
            # A later request has been answered: the one before is under way.
            await load.acquire(other, load.call("x"))
            server.process.send_signal(signal.SIGTERM)
            assert await endless.is_closed()

    with place.serving(DRAIN_S="0") as server:
        key = place.new_key()
        asyncio.run(stop_amid(server, key))
        assert server.ended() == 0


def test_the_use_of_keys_is_written_at_the_end(migrated: Place) -> None:
    """What happened since the last minute: requests by day, last use, refusals with the ids that clients were told."""
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
