"""Checks of a server before it serves, and the effect of its environment on what it serves."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from stoplist.db import Database, Transaction
from stoplist.encryption import encrypt
from stoplist.errors import SettingsError
from stoplist.links.keys import create_link_key
from stoplist.notices.sealed_links import SealedLink, add_link, readable_link
from stoplist.server import lifecycle
from stoplist.server.lifecycle import serve
from stoplist.server.supervisor import serve_workers
from stoplist.settings import load
from tests.builders import ADMINISTRATOR, execute, make_organization, migrated, sql
from tests.fakes import FakeClock
from tests.staff.staff_fixture import StaffDeployment

_SEALED = sql("SELECT notice_id, sealed FROM notice_deliveries")

LOST_KEY, KEY = "a key that was lost with the host it was on", "the only key that is left on all of the hosts"


@pytest.mark.parametrize("workers", ["1", "2"])
def test_no_server_starts_with_keys_that_cannot_read_a_secret(tmp_path: Path, workers: str) -> None:
    """A server alone and one with workers refuse; the refusal names the person."""
    (tmp_path / "data").mkdir(mode=0o700)
    asyncio.run(_create_unreadable_secret(f"sqlite:///{tmp_path}/data/stoplist.db"))
    environ = {"STOPLIST_DATA_DIR": str(tmp_path / "data"), "STOPLIST_SECRET_KEY": KEY, "STOPLIST_WORKERS": workers}
    settings = load(environ, env_file=tmp_path / ".env")
    with pytest.raises(SettingsError, match="The TOTP secrets of ann@"):
        asyncio.run(serve_workers(settings) if workers == "2" else serve(settings))


@pytest.mark.parametrize("workers", ["1", "2"])
def test_no_start_replaces_a_lost_key(tmp_path: Path, workers: str) -> None:
    """A new secret.key would hide that the old one is missing; the refusal names the person and the way on."""
    (tmp_path / "data").mkdir(mode=0o700)
    asyncio.run(_create_unreadable_secret(f"sqlite:///{tmp_path}/data/stoplist.db"))
    settings = load(
        {"STOPLIST_DATA_DIR": str(tmp_path / "data"), "STOPLIST_WORKERS": workers}, env_file=tmp_path / ".env"
    )
    with pytest.raises(SettingsError, match=r"ann@.*user link EMAIL --without-two-step"):
        asyncio.run(serve_workers(settings) if workers == "2" else serve(settings))
    assert not (tmp_path / "data" / "secret.key").exists()


@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.parametrize("key", [KEY, None])
def test_no_server_starts_with_keys_that_cannot_read_a_link_key(tmp_path: Path, workers: str, key: str | None) -> None:
    """The key is wrong or missing, with or without workers; the refusal names the link key and the way on."""
    (tmp_path / "data").mkdir(mode=0o700)
    link_key_id = asyncio.run(_create_link_key(f"sqlite:///{tmp_path}/data/stoplist.db"))
    environ = {"STOPLIST_DATA_DIR": str(tmp_path / "data"), "STOPLIST_WORKERS": workers}
    settings = load(environ | ({"STOPLIST_SECRET_KEY": key} if key else {}), env_file=tmp_path / ".env")
    with pytest.raises(SettingsError, match=rf"{link_key_id}.*link-key forget ID"):
        asyncio.run(serve_workers(settings) if workers == "2" else serve(settings))
    assert not (tmp_path / "data" / "secret.key").exists()


async def _create_link_key(url: str) -> str:
    async with migrated(url) as database:
        await make_organization(database, FakeClock(), "acme")
        made = await create_link_key(ADMINISTRATOR, database, FakeClock(), secret_keys=(LOST_KEY,), org_slug="acme")
        return made.details.link_key_id


async def _create_unreadable_secret(url: str) -> None:
    async with migrated(url) as database:
        await _add_person(database)


async def _add_person(database: Database) -> None:
    await StaffDeployment(database).create("ann@example.org")
    encrypted = encrypt(LOST_KEY, "GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ", purpose="totp 1")
    await execute(database, "UPDATE people SET totp_secret = :encrypted", encrypted=encrypted)


@pytest.mark.parametrize("environment", ["development", "production"])
def test_only_production_demands_https_of_browsers(
    tmp_path: Path, environment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A browser would remember it for `localhost`, where other programs may speak plain HTTP."""
    options: dict[str, Any] = {}

    async def record(app: Any, **given: Any) -> None:
        options.update(given)

    monkeypatch.setattr(lifecycle, "serve_http", record)
    environ = {
        "STOPLIST_DATA_DIR": str(tmp_path / "data"),
        "STOPLIST_ENVIRONMENT": environment,
        "STOPLIST_BASE_URL": "https://stoplist.example",
        "STOPLIST_TRUSTED_PROXIES": "127.0.0.1",
    }
    asyncio.run(serve(load(environ, env_file=tmp_path / ".env")))
    assert options["is_https_only"] == (environment == "production")


def test_a_start_encrypts_links_that_wait_under_its_first_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that no key can read prevents no start (section D16)."""
    (tmp_path / "data").mkdir(mode=0o700)
    url = f"sqlite:///{tmp_path}/data/stoplist.db"
    readable, unreadable = asyncio.run(_add_sealed_links(url, KEY, LOST_KEY))

    async def stop(app: Any, **given: Any) -> None:
        pass

    monkeypatch.setattr(lifecycle, "serve_http", stop)
    newer = "the key that takes the place of the other one"
    environ = {"STOPLIST_DATA_DIR": str(tmp_path / "data"), "STOPLIST_SECRET_KEY": f"{newer},{KEY}"}
    asyncio.run(serve(load(environ, env_file=tmp_path / ".env")))
    stored = asyncio.run(_sealed_links(url))
    assert readable_link((newer,), readable, stored[readable]) == SealedLink("https://stoplist.example/link")
    assert readable_link((newer, KEY), unreadable, stored[unreadable]) is None


async def _add_sealed_links(url: str, *keys: str) -> list[str]:
    """Store a link that waits under each of the keys; return the ids of their notices."""
    link, found = SealedLink("https://stoplist.example/link"), list[str]()
    async with migrated(url) as database:
        for key in keys:

            async def add(transaction: Transaction, key: str = key) -> None:
                await add_link(transaction, link, secret_keys=(key,), now_ms=1, expires_ms=2**50)

            await database.write(add)
            found.append(*({row["notice_id"] for row in await database.all(_SEALED)} - set(found)))
    return found


async def _sealed_links(url: str) -> dict[str, str]:
    async with migrated(url) as database:
        return {row["notice_id"]: row["sealed"] for row in await database.all(_SEALED)}
