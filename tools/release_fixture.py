"""Keep the database of a released version for the tests: a SQLite file, a PostgreSQL dump, and what people hold.

The version is installed from its commit and used by its own commands, interface and pages alone, so that the databases
are what an operator of that version has. Run it once after a release, and commit what it writes.

Usage: python -m tools.release_fixture VERSION
"""

import argparse
import gzip
import json
import re
import secrets
import sqlite3
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pyotp

from bench.product import POSTGRESQL, SQLITE, Deployment, ProductServer, deployed
from tests import releases
from tests.services import postgresql, revisions

_EMAIL = "/api/v1/unsubscribe/email"
_SAME_SITE = {"sec-fetch-site": "same-origin"}
_PASSWORD = "quiet otters fold maps"
# Lines of a dump that only set its own session up, some of which older servers do not know.
_SESSION_LINE = re.compile(r"(SET |SELECT pg_catalog\.set_config|\\(un)?restrict |--|$)")


def main() -> None:
    """Write the files of one version below tests/releases/."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("version", choices=sorted(revisions.RELEASES))
    version = parser.parse_args().version
    _, command = revisions.build(revisions.RELEASES[version])
    folder = releases.FOLDER / version
    folder.mkdir(exist_ok=True)
    held: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for database, name, content in (
            (SQLITE, releases.SQLITE, _sqlite_file),
            (POSTGRESQL, releases.POSTGRESQL, _postgresql_dump),
        ):
            settings, kind = {"STOPLIST_SECRET_KEY": secrets.token_hex(32)}, database.name.lower()
            with deployed(
                database, Path(scratch) / kind, partners=(), settings=settings, command=(str(command),)
            ) as deployment:
                held[kind] = _fill(deployment)
                _write(folder / name, content(deployment))
    _write(folder / releases.HELD, json.dumps(held, ensure_ascii=False).encode())


def _write(path: Path, content: bytes) -> None:
    path.write_bytes(gzip.compress(content, mtime=0))


def _sqlite_file(deployment: Deployment) -> bytes:
    """Return the file without a log beside it."""
    with closing(sqlite3.connect(deployment.file)) as connection:
        connection.execute("VACUUM")
        connection.execute("PRAGMA journal_mode = DELETE")
    return deployment.file.read_bytes()


def _postgresql_dump(deployment: Deployment) -> bytes:
    """Return statements that every supported PostgreSQL executes in an empty database."""
    pg_dump = postgresql.find_binaries() / "pg_dump"
    options = ("--no-owner", "--no-privileges", "--inserts", f"--dbname={deployment.database_url}")
    done = subprocess.run([pg_dump, *options], capture_output=True, text=True, check=True)  # noqa: S603
    return "".join(line for line in done.stdout.splitlines(keepends=True) if not _SESSION_LINE.match(line)).encode()


def _fill(deployment: Deployment) -> dict[str, Any]:
    """Use the version in all ways that leave something in the database; return the fields of `Held`."""

    def run(*arguments: str) -> Any:
        return json.loads(deployment.run(*arguments, "--json"))

    made_ms = time.time_ns() // 1_000_000
    run("org", "create", "acme", "--name", "Acme Grüße; 7:x", "--default-group", "Newsletter")
    run("org", "create", "brook", "--name", "Brook", "--default-group", "News")
    run("org", "create", "past", "--name", "Past", "--default-group", "News")
    events = run("group", "create", "--org", "acme", "--name", "Veranstaltungen")["group_id"]
    retired = run("group", "create", "--org", "acme", "--name", "Retired")["group_id"]
    may = ("--permission", "read", "--permission", "unsubscribe", "--permission", "resubscribe")
    orgs = ("--org", "acme", "--org", "brook", "--default-org", "acme")
    key = run("key", "create", "--label", "Nightly import", *orgs, *may)
    stopped = run("key", "create", "--label", "Stopped", "--org", "acme")
    run("key", "create", "--label", "Unused", "--org", "past")
    deployment.run("key", "limits", key["client_id"], "--api-per-minute", "5000")
    deployment.run("key", "rotate-secret", stopped["client_id"])
    ann = run("user", "create", "ann@example.org", "--administrator")
    bob = run("user", "create", "bob@example.org", "--org", "acme", "--role", "viewer")
    run("user", "create", "dora@example.org", "--org", "brook", "--role", "admin")
    run("user", "create", "carl@example.org", "--administrator")
    deployment.run("user", "disable", "carl@example.org")
    with deployment.server() as server:
        partner = _use_api(server, (key["client_id"], key["client_secret"]), events, run)
        person = _use_pages(server, ann["sign_in_url"])
        _choose_password(server, bob["sign_in_url"])
        partner |= _read_feed(server, partner["access_token"])
    deployment.run("group", "retire", retired)
    deployment.run("key", "deactivate", stopped["client_id"])
    deployment.run("org", "close", "past")
    return {
        "made_ms": made_ms,
        "secret_key": deployment.settings["STOPLIST_SECRET_KEY"],
        "client_id": key["client_id"],
        "client_secret": key["client_secret"],
        "stopped_client_id": stopped["client_id"],
        "stopped_client_secret": stopped["client_secret"],
        **partner,
        **person,
    }


def _use_api(server: ProductServer, credentials: tuple[str, str], events: str, run: Any) -> dict[str, Any]:
    with _client(server) as client:

        def token(form: dict[str, str], **options: Any) -> Any:
            return client.post("/oauth/token", data=form, **options).raise_for_status().json()

        first = token({"grant_type": "client_credentials"}, auth=credentials)
        pair = token({"grant_type": "refresh_token", "refresh_token": first["refresh_token"]})
        client.headers["authorization"] = f"Bearer {pair['access_token']}"

        def submit(channel: str, *items: dict[str, Any], **target: Any) -> str:
            body = {"items": items, **target}
            answer = client.post(f"/api/v1/unsubscribe/{channel}", json=body).raise_for_status()
            return str(answer.json()["submission_id"])

        people = [f"person-{number}@example.org" for number in range(60)]
        submit("email", *(_act(one, days=40, source="Kündigung 💌;1:") for one in people[:40]))
        submit("email", *(_act(one, days=30) for one in people[:5]))  # confirms
        submit("email", *(_act(one, days=20) for one in people[30:50]), group_id=events)
        submit("email", *(_act(one, days=10, reason="complaint") for one in people[45:60]), all_groups=True)
        submit("email", *(_act(one, days=5, status="resubscribed") for one in people[:8]))
        submit("email", *(_act(one, days=7) for one in people[:3]))  # outranked
        submit("email", _act("jürgen@例え.example", days=3), _act("UPPER@Example.ORG", days=3))
        submit("sms", *(_act(f"+120255501{number:02}", days=4) for number in range(20)), all_groups=True)
        submit("phone", *(_act(f"+120255502{number:02}", days=4) for number in range(5)))
        submit("email", *(_act(one, days=2) for one in people[:10]), org_slug="brook")
        reversed_one = submit("email", *(_act(one, days=1) for one in people[50:55]))
        mistake = submit("email", *(_act(one, days=1) for one in (*people[5:8], "mistaken@example.org")))
        run("submission", "reverse", reversed_one, "--yes")
    return {
        "access_token": pair["access_token"],
        "refresh_token": pair["refresh_token"],
        "used_refresh_token": first["refresh_token"],
        "mistake": mistake,
    }


def _act(address: str, *, days: int, status: str = "unsubscribed", **others: str) -> dict[str, Any]:
    when = datetime.now(UTC) - timedelta(days=days)
    return {"address": address, "status": status, "occurred_at": when.strftime("%Y-%m-%dT%H:%M:%SZ"), **others}


def _read_feed(server: ProductServer, access_token: str) -> dict[str, Any]:
    """Return the records of the channel email with the last cursor, and the cursor after the first ten."""
    records: dict[str, Any] = {}
    with _client(server) as client:
        client.headers["authorization"] = f"Bearer {access_token}"
        page = client.get(_EMAIL, params={"limit": 10}).raise_for_status().json()
        pending = page["next_cursor"]
        records |= {record["id"]: record for record in page["items"]}
        while page["has_more"]:
            page = client.get(_EMAIL, params={"cursor": page["next_cursor"]}).raise_for_status().json()
            records |= {record["id"]: record for record in page["items"]}
    in_order = sorted(records.values(), key=lambda record: record["seq"])
    return {"pending": pending, "cursor": page["next_cursor"], "records": in_order}


def _use_pages(server: ProductServer, sign_in_url: str) -> dict[str, Any]:
    """Choose a password, opt somebody out by hand, and turn two-step sign-in on."""
    with _client(server) as client:
        _enter(client, sign_in_url)
        by_hand = {"address": "called@example.org", "group_id": "all", "reason": "", "stated_reason": "called us"}
        client.post("/unsubscribes/acme/email/add", data=by_hand).raise_for_status()
        shown = client.get("/settings/account/two-step").raise_for_status().text
        secret = _found(r"\b([A-Z2-7]{32})\b", shown)
        form = {
            "secret": _found(r'name="secret" value="([^"]+)"', shown),
            "code": pyotp.TOTP(secret).now(),
            "password": _PASSWORD,
        }
        codes = client.post("/settings/account/two-step", data=form).raise_for_status().text
    return {
        "email": "ann@example.org",
        "password": _PASSWORD,
        "totp_secret": secret,
        "recovery_codes": re.search(r'id="recovery-codes"[^>]*>([^<]+)<', codes)[1].split(),  # type: ignore[index]
    }


def _choose_password(server: ProductServer, sign_in_url: str) -> None:
    with _client(server) as client:
        _enter(client, sign_in_url)


def _enter(client: httpx.Client, sign_in_url: str) -> None:
    url = httpx.URL(sign_in_url)
    form = {"token": url.params["token"], "password": _PASSWORD, "repeated": _PASSWORD}
    client.post(url.path, data=form).raise_for_status()


def _found(pattern: str, text: str) -> str:
    found = re.search(pattern, text)
    if found is None:
        raise SystemExit(f"the page has nothing like {pattern}")
    return found[1]


@contextmanager
def _client(server: ProductServer) -> Iterator[httpx.Client]:
    url = f"https://localhost:{server.port}"
    with httpx.Client(
        base_url=url, verify=str(server.ca), headers=_SAME_SITE, timeout=60, trust_env=False, follow_redirects=True
    ) as client:
        yield client


if __name__ == "__main__":
    main()
