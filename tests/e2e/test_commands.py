"""Changes by commands apply to the very next request on every server. Source: docs/interface.md sections D2 and D9."""

import asyncio
import itertools
from collections.abc import Callable
from typing import Any

import pytest

from tests.constants import HIGH_LIMIT
from tests.e2e import load
from tests.e2e.conftest import RunningDeployment
from tests.e2e.server_process import RunningServer
from tests.keys import CLIENT_CREDENTIALS, Key
from tests.server.serving import RawConnection

pytestmark = pytest.mark.interpreter


def pair(server: RunningServer, key: Key) -> dict[str, Any]:
    """Request a new pair."""
    with server.client() as client:
        answer = client.post("/oauth/token", data=CLIENT_CREDENTIALS, auth=key)
    assert answer.status_code == 200, answer.text
    fields: dict[str, Any] = answer.json()
    return fields


def statuses(servers: list[RunningServer], key: Key, tokens: dict[str, Any]) -> list[tuple[int, int]]:
    """Return what each server answers to the key, and to the access token."""
    found = []
    for server in servers:
        with server.client() as client:
            token = client.get("/api/v1/x", headers={"authorization": f"Bearer {tokens['access_token']}"})
            found.append(
                (client.post("/oauth/token", data=CLIENT_CREDENTIALS, auth=key).status_code, token.status_code)
            )
    return found


def test_a_key_works_as_soon_as_it_is_created(deployment: RunningDeployment) -> None:
    """Every server accepts it, and each of its tokens."""
    installation, servers = deployment
    if "acme" not in [organization["slug"] for organization in installation.json("org", "list")]:
        installation.ok("org", "create", "acme", "--name", "Acme")
    made = installation.json("key", "create", "--label", "partner", "--org", "acme")
    key = Key(made["client_id"], made["client_secret"])
    tokens = pair(servers[0], key)
    assert set(statuses(servers, key, tokens)) == {(200, 404)}


def test_every_revocation_applies_at_once(deployment: RunningDeployment) -> None:
    """`revoke-tokens`, `rotate-secret`, `deactivate`; and `activate` revives no token."""
    installation, servers = deployment
    key = installation.new_key()
    tokens = pair(servers[0], key)
    installation.ok("key", "revoke-tokens", key.client_id)
    assert set(statuses(servers, key, tokens)) == {(200, 401)}
    tokens = pair(servers[-1], key)
    rotated = Key(key.client_id, installation.json("key", "rotate-secret", key.client_id)["client_secret"])
    assert set(statuses(servers, key, tokens)) == {(401, 401)}
    tokens = pair(servers[0], rotated)
    installation.ok("key", "deactivate", key.client_id)
    assert set(statuses(servers, rotated, tokens)) == {(401, 401)}
    installation.ok("key", "activate", key.client_id)
    assert set(statuses(servers, rotated, tokens)) == {(200, 401)}


def test_a_changed_limit_applies_at_once(deployment: RunningDeployment) -> None:
    """The server is not restarted."""
    installation, servers = deployment
    key = installation.new_key()
    with servers[0].client() as client:
        for options, policy in ((["--token-per-minute", "3"], 3), (["--token-per-minute", "default"], 10)):
            installation.ok("key", "limits", key.client_id, *options)
            answer = client.post("/oauth/token", data=CLIENT_CREDENTIALS, auth=key)
            assert answer.headers["ratelimit-policy"] == f'"token";q={policy};w=60'


@pytest.mark.parametrize("command", ["deactivate", "rotate-secret", "revoke-tokens"])
def test_under_load_no_request_begun_after_a_revocation_succeeds(deployment: RunningDeployment, command: str) -> None:
    """Clients that hammer every server while the command runs: what begins after its end is refused, all of it.

    So is every token that an answer in between still held. After `revoke-tokens` the secret alone stays good.
    """
    installation, servers = deployment
    key = installation.new_key(per_minute=HIGH_LIMIT)
    stays_good = {"issue"} if command == "revoke-tokens" else set()
    asyncio.run(_hammer_until_revoked(servers, key, lambda: installation.ok("key", command, key.client_id), stays_good))


async def _hammer_until_revoked(
    servers: list[RunningServer], key: Key, revoke: Callable[[], object], stays_good: set[str]
) -> None:
    loop = asyncio.get_running_loop()
    ended_s = float("inf")
    succeeded = itertools.count(1)
    is_under_load = asyncio.Event()
    late: list[int] = []

    async def hammer(line: RawConnection, kind: str, pair: dict[str, Any]) -> dict[str, Any]:
        """Send requests until 20 have begun after the end of the command; return the last pair."""
        late_left = 20
        while late_left:
            begun_s = loop.time()
            answer = await load.send_once(line, _request(kind, key, pair))
            is_success = answer.status in (200, 404)
            if begun_s > ended_s:
                late_left -= 1
                if is_success and kind not in stays_good:
                    late.append(answer.status)
            elif is_success and next(succeeded) == 100:
                is_under_load.set()
            if answer.status == 200:
                pair = answer.json()
        return pair

    async with load.connections(servers, 24) as lines:
        answers = await asyncio.gather(*(load.send_once(line, load.issue(key)) for line in lines))
        kinds = ["issue", "issue", "issue", "refresh", "issue", "call"] * 4
        hammering = [
            asyncio.create_task(hammer(line, kind, answer.json()))
            for line, kind, answer in zip(lines, kinds, answers, strict=True)
        ]
        await is_under_load.wait()
        await loop.run_in_executor(None, revoke)
        ended_s = loop.time()
        pairs = await asyncio.gather(*hammering)
        assert late == []
        for kind, pair in zip(kinds, pairs, strict=True):
            left = [
                (await load.send_once(line, _request(use, key, pair))).status for line in lines[:2] for use in _USES
            ]
            assert kind in stays_good or left == [401, 400] * 2


_USES = ("call", "refresh")


def _request(kind: str, key: Key, pair: dict[str, Any]) -> bytes:
    match kind:
        case "issue":
            return load.issue(key)
        case "refresh":
            return load.refresh(pair["refresh_token"])
        case _:
            return load.call(pair["access_token"])
