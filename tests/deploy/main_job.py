"""The main job, from an organization to a followed feed, in an installation of whatever kind."""

import json
from collections.abc import Callable

import httpx

# Runs `stoplist` with these arguments in an installation, and returns its output; a failure is an AssertionError.
RunCommand = Callable[..., str]

_ADDRESS = "ann@example.com"


def make_key(run: RunCommand) -> tuple[str, str]:
    """Create an organization and a key of it by their commands, and return the key's id and secret."""
    run("org", "create", "acme-shoes", "--name", "Acme Shoes", "--default-group", "Newsletter")
    key = json.loads(run("key", "create", "--label", "Nightly import", "--org", "acme-shoes", "--json"))
    return key["client_id"], key["client_secret"]


def store_and_follow(client: httpx.Client, key: tuple[str, str]) -> None:
    """Get a token, submit an opt-out, and find it by a look-up and in the feed."""
    answer = client.post("/oauth/token", data={"grant_type": "client_credentials"}, auth=key)
    assert answer.status_code == 200, answer.text
    client.headers["Authorization"] = f"Bearer {answer.json()['access_token']}"
    submitted = client.post("/api/v1/unsubscribe/email", json={"items": [{"address": _ADDRESS}]})
    assert submitted.status_code == 200, submitted.text
    assert followed(client) == [_ADDRESS]
    (record,) = client.get("/api/v1/unsubscribe/email", params={"address": _ADDRESS}).json()["items"]
    assert record["status"] == "unsubscribed"


def followed(client: httpx.Client) -> list[str]:
    """Return the addresses of the feed, for a client that has a token."""
    return [item["address"] for item in client.get("/api/v1/unsubscribe/email").json()["items"]]
