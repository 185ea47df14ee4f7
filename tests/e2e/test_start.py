"""How a server starts, and what prevents it. Source: docs/interface.md section D1."""

import stat
from pathlib import Path

import pytest

from tests.e2e.conftest import SECRET_KEY, postgresql_place
from tests.e2e.server_process import Place

pytestmark = pytest.mark.interpreter

POSTGRESQL = {"LIMITS_URL": "memory:", "SECRET_KEY": SECRET_KEY}
CC = {"grant_type": "client_credentials"}


def test_a_first_start_creates_files_and_later_ones_keep_them(place: Place) -> None:
    """Database, secret key and certificates, secrets readable by the owner only; stored data stays."""
    with place.serving() as server:
        key = place.new_key()
        assert server.terminate() == 0
    made = {path.name: path.stat() for path in place.data_dir.iterdir()}
    assert {"stoplist.db", "secret.key", "ca.pem", "server.pem", "server-key.pem", "ca-key.pem"} <= made.keys()
    assert stat.S_IMODE(place.data_dir.stat().st_mode) == 0o700
    for name in ("stoplist.db", "secret.key", "ca-key.pem", "server-key.pem"):
        assert stat.S_IMODE(made[name].st_mode) == 0o600
    kept = {name: (place.data_dir / name).read_bytes() for name in ("secret.key", "ca.pem", "server.pem")}
    with place.serving() as server, server.client() as client:
        assert client.post("/oauth/token", data=CC, auth=key).status_code == 200
    assert {name: (place.data_dir / name).read_bytes() for name in kept} == kept


def test_a_second_server_on_the_same_folder_is_refused(place: Place) -> None:
    """Whatever its port, and however it names the file. After the first one ends, another may start."""
    with place.serving() as server:
        (place.folder / "link.db").symlink_to(place.data_dir / "stoplist.db")
        assert "Another server uses" in place.refused("serve", "--port", "1")
        linked = f"sqlite:///{place.folder / 'link.db'}"
        assert "Another server uses" in place.refused("serve", DATABASE_URL=linked)
        with server.client() as client:
            assert client.get("/readyz").status_code == 200
        server.kill()
        with place.serving() as next_one, next_one.client() as client:
            assert client.get("/readyz").status_code == 200


def test_the_other_environment_is_refused(place: Place) -> None:
    """The database records its environment."""
    place.ok("migrate")
    text = place.refused("serve", ENVIRONMENT="production", TRUSTED_PROXIES="10.0.0.0/8")
    assert "belongs to the development environment" in text


def test_a_production_server_is_not_a_development_server(place: Place) -> None:
    """The reverse; and no certificate is created for it."""
    production = {"ENVIRONMENT": "production", "TRUSTED_PROXIES": "10.0.0.0/8"}
    with place.serving(**production) as server:
        assert server.terminate() == 0
    assert not (place.data_dir / "ca.pem").exists()
    assert "belongs to the production environment" in place.refused("serve")


def test_settings_come_from_flags_then_variables_then_a_file(place: Place) -> None:
    """A flag overrides a variable, a variable overrides `.env`."""
    (place.folder / ".env").write_text("STOPLIST_DATA_DIR=from-file\nSTOPLIST_PORT=1\nSTOPLIST_DRAIN_S=1\nOTHER=x\n")
    with place.serving("--data-dir", "data", DATA_DIR="from-variable") as server, server.client() as client:
        assert client.get("/healthz").status_code == 200
    assert not (place.folder / "from-file").exists()
    assert not (place.folder / "from-variable").exists()


@pytest.mark.parametrize("where", ["variable", "file"])
def test_an_unknown_setting_is_refused(place: Place, where: str) -> None:
    """It is named, and nothing is created."""
    if where == "file":
        (place.folder / ".env").write_text("STOPLIST_UNKNOWN=\n")
        text = place.refused("serve")
    else:
        text = place.refused("serve", UNKNOWN="")
    assert "STOPLIST_UNKNOWN" in text
    assert not place.data_dir.exists()


def test_a_port_in_use_is_named(place: Place, tmp_path: Path) -> None:
    """Exit status 1 and a text, for either address."""
    with place.serving() as server:
        other = Place(tmp_path / "other")
        other.folder.mkdir()
        assert "another process listens there already" in other.refused("serve", "--port", str(server.port))
        metrics = other.refused("serve", METRICS_LISTEN=f"127.0.0.1:{server.port}")
        assert "STOPLIST_METRICS_LISTEN" in metrics


def test_a_folder_that_cannot_be_created_is_named(place: Place) -> None:
    """Exit status 1."""
    place.data_dir.write_text("a file")
    assert "data" in place.refused("serve")


def test_postgresql_must_be_reachable_and_migrated(tmp_path: Path, postgresql_url: str) -> None:
    """The error names `migrate`, or the unreachable URL without its password."""
    place = postgresql_place(tmp_path, postgresql_url)
    assert "`stoplist migrate`" in place.refused("serve")
    text = place.refused("serve", DATABASE_URL="postgresql://stoplist:hush@127.0.0.1:1/none")
    assert "STOPLIST_DATABASE_URL" in text
    assert "hush" not in text
