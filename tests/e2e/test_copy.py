"""A deployment in use that moves from SQLite to PostgreSQL: what its partners hold goes on working (section D9)."""

from pathlib import Path
from typing import Any

import httpx

from tests.e2e.conftest import SECRET_KEY
from tests.e2e.running import Key, Place, Server
from tests.migration_fixture import make_move
from tests.services.managed_program import reserve_port
from tests.web.application import basic

EMAIL = "/api/v1/unsubscribe/email"


def token(client: httpx.Client, form: dict[str, str], key: Key | None = None) -> httpx.Response:
    """The answer of the token endpoint."""
    headers = {} if key is None else {"Authorization": basic(key.client_id, key.secret)[1].decode()}
    return client.post("/oauth/token", data=form, headers=headers)


def submit(client: httpx.Client, access_token: str, *addresses: str) -> None:
    """These addresses opt out."""
    body = {"all_groups": True, "items": [{"address": address} for address in addresses]}
    answer = client.post(EMAIL, json=body, headers={"Authorization": f"Bearer {access_token}"})
    assert answer.status_code == 200, answer.text


def follow(client: httpx.Client, access_token: str, cursor: str | None = None) -> Any:
    """The next page."""
    query = {} if cursor is None else {"cursor": cursor}
    answer = client.get(EMAIL, params=query, headers={"Authorization": f"Bearer {access_token}"})
    assert answer.status_code == 200, answer.text
    return answer.json()


def addresses(page: Any) -> list[str]:
    return [record["address"] for record in page["items"]]


def before_the_move(server: Server, key: Key) -> tuple[dict[str, str], str]:
    """A pair and a cursor that a partner holds; something was stored after the cursor."""
    with server.client() as client:
        pair = token(client, {"grant_type": "client_credentials"}, key).json()
        submit(client, pair["access_token"], "a@example.org", "b@example.org")
        cursor = follow(client, pair["access_token"])["next_cursor"]
        submit(client, pair["access_token"], "c@example.org")
    return pair, cursor


def test_partners_notice_nothing_of_the_move(tmp_path: Path, postgresql_url: str) -> None:
    """Tokens, key and cursor of before work on the server of afterwards, with the secret key of before."""
    place = Place(tmp_path)
    with place.serving() as server:
        key = place.new_key()
        pair, cursor = before_the_move(server, key)
        assert "stop it first" in place.refused("copy", "--from", place.database_url, "--to", postgresql_url)
        assert server.terminate() == 0
    assert place.run("migrate", DATABASE_URL=postgresql_url).status == 0
    assert "rows were copied and verified" in place.ok("copy", "--from", place.database_url, "--to", postgresql_url)
    with place.serving(
        DATABASE_URL=postgresql_url,
        LIMITS_URL="memory:",
        DATABASE_POOL="5",
        SECRET_KEY_FILE=str(place.data_dir / "secret.key"),
    ) as server:
        after_the_move(server, key, pair, cursor)


def after_the_move(server: Server, key: Key, pair: dict[str, str], cursor: str) -> None:
    """Each thing that the partner holds is good."""
    with server.client() as client:
        submit(client, pair["access_token"], "d@example.org")
        assert addresses(follow(client, pair["access_token"], cursor)) == ["c@example.org", "d@example.org"]
        renewed = token(client, {"grant_type": "refresh_token", "refresh_token": pair["refresh_token"]})
        assert renewed.status_code == 200
        assert token(client, {"grant_type": "client_credentials"}, key).status_code == 200
        again = token(client, {"grant_type": "refresh_token", "refresh_token": pair["refresh_token"]})
        assert again.json()["error"] == "invalid_grant"
        # That was a reuse: the alarm goes off on the new server as it would have on the old one.
        refused = client.get(EMAIL, headers={"Authorization": f"Bearer {renewed.json()['access_token']}"})
        assert refused.status_code == 401


def test_a_server_on_the_empty_target_lets_nobody_in_before_the_end(tmp_path: Path, postgresql_url: str) -> None:
    """Somebody started it too early: then the whole deployment is there from one request to the next."""
    place = Place(tmp_path)
    with place.serving() as server:
        key = place.new_key()
        pair, cursor = before_the_move(server, key)
        assert server.terminate() == 0
    secret_key = (place.data_dir / "secret.key").read_text().strip()
    assert secret_key != SECRET_KEY
    assert place.run("migrate", DATABASE_URL=postgresql_url).status == 0
    variables = {
        "DATABASE_URL": postgresql_url,
        "LIMITS_URL": "memory:",
        "DATABASE_POOL": "5",
        "SECRET_KEY": secret_key,
    }
    with place.serving(**variables) as server:
        with server.client() as client:
            assert token(client, {"grant_type": "client_credentials"}, key).status_code == 401
        place.ok("copy", "--from", place.database_url, "--to", postgresql_url)
        after_the_move(server, key, pair, cursor)


def test_no_server_starts_on_a_target_that_is_not_finished(tmp_path: Path, postgresql_url: str) -> None:
    """It would serve half a list."""
    place = Place(tmp_path, LIMITS_URL="memory:", SECRET_KEY=SECRET_KEY, DATABASE_URL=postgresql_url)
    move = make_move(f"sqlite:///{tmp_path / 'source.db'}", postgresql_url)
    move.interrupt()
    with reserve_port() as free:
        refusal = place.refused("serve", "--port", str(free.getsockname()[1]))
    assert "`stoplist copy` has not finished filling this database" in refusal
