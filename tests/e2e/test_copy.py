"""A deployment in use is copied from SQLite to PostgreSQL, and its partners' credentials keep working (section D9)."""

from pathlib import Path
from typing import Any

import httpx

from tests.e2e.conftest import SECRET_KEY, postgresql_installation
from tests.e2e.server_process import Installation, RunningServer
from tests.keys import CLIENT_CREDENTIALS, Key, basic
from tests.migration_fixture import make_move
from tests.services.managed_program import reserve_port

EMAIL = "/api/v1/unsubscribe/email"


def token(client: httpx.Client, form: dict[str, str], key: Key | None = None) -> httpx.Response:
    """Return the answer of the token endpoint."""
    headers = {} if key is None else {"Authorization": basic(key.client_id, key.client_secret)[1].decode()}
    return client.post("/oauth/token", data=form, headers=headers)


def submit(client: httpx.Client, access_token: str, *addresses: str) -> None:
    """Opt these addresses out."""
    body = {"all_groups": True, "items": [{"address": address} for address in addresses]}
    answer = client.post(EMAIL, json=body, headers={"Authorization": f"Bearer {access_token}"})
    assert answer.status_code == 200, answer.text


def follow(client: httpx.Client, access_token: str, cursor: str | None = None) -> Any:
    """Return the next page."""
    query = {} if cursor is None else {"cursor": cursor}
    answer = client.get(EMAIL, params=query, headers={"Authorization": f"Bearer {access_token}"})
    assert answer.status_code == 200, answer.text
    return answer.json()


def addresses(page: Any) -> list[str]:
    return [record["address"] for record in page["items"]]


def use_before_copy(server: RunningServer, key: Key) -> tuple[dict[str, str], str]:
    """Return a pair and a cursor of a partner; something was stored after the cursor."""
    with server.client() as client:
        pair = token(client, CLIENT_CREDENTIALS, key).json()
        submit(client, pair["access_token"], "a@example.org", "b@example.org")
        cursor = follow(client, pair["access_token"])["next_cursor"]
        submit(client, pair["access_token"], "c@example.org")
    return pair, cursor


def test_partners_do_not_notice_the_copy(tmp_path: Path, postgresql_url: str) -> None:
    """Earlier tokens, key and cursor work on the new server, with the old secret key."""
    installation = Installation(tmp_path)
    with installation.serving() as server:
        key = installation.new_key()
        pair, cursor = use_before_copy(server, key)
        assert "stop it first" in installation.refused(
            "copy", "--from", installation.database_url, "--to", postgresql_url
        )
        assert server.terminate() == 0
    postgresql_installation(tmp_path, postgresql_url).migrate()
    assert "rows were copied and verified" in installation.ok(
        "copy", "--from", installation.database_url, "--to", postgresql_url
    )
    with installation.serving(
        DATABASE_URL=postgresql_url,
        LIMITS_URL="memory:",
        DATABASE_POOL="5",
        SECRET_KEY_FILE=str(installation.data_dir / "secret.key"),
    ) as server:
        assert_works_after_copy(server, key, pair, cursor)


def assert_works_after_copy(server: RunningServer, key: Key, pair: dict[str, str], cursor: str) -> None:
    """Assert that everything the partner holds is valid."""
    with server.client() as client:
        submit(client, pair["access_token"], "d@example.org")
        assert addresses(follow(client, pair["access_token"], cursor)) == ["c@example.org", "d@example.org"]
        renewed = token(client, {"grant_type": "refresh_token", "refresh_token": pair["refresh_token"]})
        assert renewed.status_code == 200
        assert token(client, CLIENT_CREDENTIALS, key).status_code == 200
        again = token(client, {"grant_type": "refresh_token", "refresh_token": pair["refresh_token"]})
        assert again.json()["error"] == "invalid_grant"
        # This was a reuse: it raises the alarm on the new server as on the old one.
        refused = client.get(EMAIL, headers={"Authorization": f"Bearer {renewed.json()['access_token']}"})
        assert refused.status_code == 401


def test_a_server_on_the_target_accepts_nobody_before_the_end(tmp_path: Path, postgresql_url: str) -> None:
    """It was started too early; then the whole deployment appears from one request to the next."""
    installation = Installation(tmp_path)
    with installation.serving() as server:
        key = installation.new_key()
        pair, cursor = use_before_copy(server, key)
        assert server.terminate() == 0
    secret_key = (installation.data_dir / "secret.key").read_text().strip()
    assert secret_key != SECRET_KEY
    postgresql_installation(tmp_path, postgresql_url).migrate()
    variables = {
        "DATABASE_URL": postgresql_url,
        "LIMITS_URL": "memory:",
        "DATABASE_POOL": "5",
        "SECRET_KEY": secret_key,
    }
    with installation.serving(**variables) as server:
        with server.client() as client:
            assert token(client, CLIENT_CREDENTIALS, key).status_code == 401
        installation.ok("copy", "--from", installation.database_url, "--to", postgresql_url)
        assert_works_after_copy(server, key, pair, cursor)


def test_no_server_starts_on_an_unfinished_target(tmp_path: Path, postgresql_url: str) -> None:
    """It would serve half a list."""
    installation = Installation(tmp_path, LIMITS_URL="memory:", SECRET_KEY=SECRET_KEY, DATABASE_URL=postgresql_url)
    move = make_move(f"sqlite:///{tmp_path / 'source.db'}", postgresql_url)
    move.interrupt()
    with reserve_port() as free:
        refusal = installation.refused("serve", "--port", str(free.getsockname()[1]))
    assert "`stoplist copy` has not finished filling this database" in refusal
