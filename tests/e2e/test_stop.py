"""The stop of a server, and the work that it finishes before. Source: docs/interface.md sections D1 and D9."""

import asyncio
import json
import signal
from typing import Any

import httpx
import pytest

from tests.constants import PATIENCE_S
from tests.e2e import load
from tests.e2e.server_process import Installation, RunningServer, reserved_address
from tests.keys import CLIENT_CREDENTIALS, Key
from tests.server.serving import WireAnswer

pytestmark = pytest.mark.interpreter


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_request_in_flight_is_finished(installation: Installation, number: signal.Signals) -> None:
    """Its body arrives after the signal, when new connections are refused; then the process exits with 0."""
    with installation.serving(DRAIN_S="60") as server:
        key = installation.new_key()
        answer = asyncio.run(load.answer_across_stop(server, key, lambda: server.process.send_signal(number)))
        assert (answer.status, answer.headers["connection"]) == (200, "close")
        assert server.wait_for_exit() == 0
        assert server.log.lines[-1]["message"] == "Stopped"


def test_an_endless_request_does_not_delay_the_stop(installation: Installation) -> None:
    """After DRAIN_S it is cut off; the process still exits with 0."""

    async def stop_amid(server: RunningServer, key: Key) -> None:
        async with load.connections([server], 2) as (endless, other):
            await endless.send(load.issue(key)[:-1])
            # A later request was answered, so the one before is in progress.
            await load.send_once(other, load.call("x"))
            server.process.send_signal(signal.SIGTERM)
            assert await endless.is_closed()

    with installation.serving(DRAIN_S="0") as server:
        key = installation.new_key()
        asyncio.run(stop_amid(server, key))
        assert server.wait_for_exit() == 0


def test_held_requests_are_answered_at_the_stop(installation: Installation) -> None:
    """They are answered at once, whatever they wait for; one whose client has left is no longer held."""

    async def stop_amid(server: RunningServer, metrics: httpx.AsyncClient, key: Key) -> WireAnswer:
        async def wait_until_held(count: int) -> None:
            async with asyncio.timeout(PATIENCE_S):
                while f"stoplist_held_requests {count}.0" not in (await metrics.get("/metrics")).text:
                    pass

        async with load.connections([server], 3) as (first, leaving, staying):
            token = json.loads((await load.send_once(first, load.issue(key))).body)["access_token"]
            page = await load.send_once(first, load.follow(token, "email", limit=10, cursor=None))
            request = load.wait_for_change(token, "email", json.loads(page.body)["next_cursor"])
            for line in (leaving, staying):
                await line.send(request)
            await wait_until_held(2)
            leaving.writer.transport.abort()
            await wait_until_held(1)
            server.process.send_signal(signal.SIGTERM)
            return await staying.answer()

    async def main(server: RunningServer, listen: str, key: Key) -> WireAnswer:
        async with httpx.AsyncClient(base_url=f"http://{listen}") as metrics:
            return await stop_amid(server, metrics, key)

    with reserved_address() as listen, installation.serving(METRICS_LISTEN=listen, DRAIN_S="60") as server:
        answer = asyncio.run(main(server, listen, installation.new_key()))
        assert (answer.status, json.loads(answer.body)["items"]) == (200, [])
        assert server.wait_for_exit() == 0
    assert "preference-applied" not in answer.headers


def test_usage_and_positions_are_written_at_the_end(migrated: Installation) -> None:
    """Everything since the last minute: requests by day, last use, refusals with the ids given to clients, readers."""
    key = migrated.new_key()
    with migrated.serving() as server:
        with server.client() as client:
            token = client.post("/oauth/token", data=CLIENT_CREDENTIALS, auth=key).json()["access_token"]
            client.get("/api/v1/x", headers={"authorization": f"Bearer {token}"})
            refused = client.post("/oauth/token", data=CLIENT_CREDENTIALS, auth=(key.client_id, "x"))
            client.get("/api/v1/unsubscribe/email", headers={"authorization": f"Bearer {token}"})
        assert migrated.json("key", "show", key.client_id)["last_used_at"] is None
        assert [one["standing"] for one in migrated.json("propagation")] == ["never"]
        assert server.terminate() == 0
    shown: dict[str, Any] = migrated.json("key", "show", key.client_id)
    (day,) = shown["days"]
    assert (day["requests"], day["limit_refusals"], day["failed_authentications"]) == (4, 0, 1)
    assert [one["standing"] for one in migrated.json("propagation")] == ["reads_anew"]
    assert shown["last_used_at"][:10] == day["day"]
    found = [(refusal["error"], refusal["request_id"]) for refusal in shown["refusals"]]
    assert sorted(found)[0] == ("invalid_client", refused.headers["x-request-id"])
