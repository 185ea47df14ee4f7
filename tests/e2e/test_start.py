"""The start of a server, and what prevents it. Source: docs/interface.md section D1."""

import stat
from pathlib import Path

import pytest

from tests.e2e.conftest import SECRET_KEY, postgresql_installation
from tests.e2e.server_process import Installation
from tests.keys import CLIENT_CREDENTIALS

pytestmark = pytest.mark.interpreter

POSTGRESQL = {"LIMITS_URL": "memory:", "SECRET_KEY": SECRET_KEY}
PRODUCTION = {
    "ENVIRONMENT": "production",
    "BASE_URL": "https://optout.example",
    "TRUSTED_PROXIES": "10.0.0.0/8",
}


def test_a_first_start_creates_files_and_later_ones_keep_them(installation: Installation) -> None:
    """Database, secret key and certificates, secrets readable by the owner only; stored data stays."""
    with installation.serving() as server:
        key = installation.new_key()
        assert server.terminate() == 0
    made = {path.name: path.stat() for path in installation.data_dir.iterdir()}
    assert {"stoplist.db", "secret.key", "ca.pem", "server.pem", "server-key.pem", "ca-key.pem"} <= made.keys()
    assert stat.S_IMODE(installation.data_dir.stat().st_mode) == 0o700
    for name in ("stoplist.db", "secret.key", "ca-key.pem", "server-key.pem"):
        assert stat.S_IMODE(made[name].st_mode) == 0o600
    kept = {name: (installation.data_dir / name).read_bytes() for name in ("secret.key", "ca.pem", "server.pem")}
    with installation.serving() as server, server.client() as client:
        assert client.post("/oauth/token", data=CLIENT_CREDENTIALS, auth=key).status_code == 200
    assert {name: (installation.data_dir / name).read_bytes() for name in kept} == kept


def test_a_second_server_on_the_same_folder_is_refused(installation: Installation) -> None:
    """Neither another port nor another spelling of the file helps. After the first one ends, another may start."""
    with installation.serving() as server:
        (installation.folder / "link.db").symlink_to(installation.data_dir / "stoplist.db")
        assert "Another server uses" in installation.refused("serve", "--port", "1")
        linked = f"sqlite:///{installation.folder / 'link.db'}"
        assert "Another server uses" in installation.refused("serve", DATABASE_URL=linked)
        with server.client() as client:
            assert client.get("/readyz").status_code == 200
        server.kill()
        with installation.serving() as next_one, next_one.client() as client:
            assert client.get("/readyz").status_code == 200


def test_the_other_environment_is_refused(installation: Installation) -> None:
    """The database records its environment."""
    installation.migrate()
    text = installation.refused("serve", **PRODUCTION)
    assert "belongs to the development environment" in text


def test_a_production_server_is_not_a_development_server(installation: Installation) -> None:
    """The reverse; and no certificate is created for it."""
    with installation.serving(**PRODUCTION) as server:
        assert server.terminate() == 0
    assert not (installation.data_dir / "ca.pem").exists()
    assert "belongs to the production environment" in installation.refused("serve")


def test_settings_come_from_flags_then_variables_then_a_file(installation: Installation) -> None:
    """A flag overrides a variable, a variable overrides `.env`."""
    (installation.folder / ".env").write_text(
        "STOPLIST_DATA_DIR=from-file\nSTOPLIST_PORT=1\nSTOPLIST_DRAIN_S=1\nOTHER=x\n"
    )
    with installation.serving("--data-dir", "data", DATA_DIR="from-variable") as server, server.client() as client:
        assert client.get("/healthz").status_code == 200
    assert not (installation.folder / "from-file").exists()
    assert not (installation.folder / "from-variable").exists()


@pytest.mark.parametrize("where", ["variable", "file"])
def test_an_unknown_setting_is_refused(installation: Installation, where: str) -> None:
    """It is named, and nothing is created."""
    if where == "file":
        (installation.folder / ".env").write_text("STOPLIST_UNKNOWN=\n")
        text = installation.refused("serve")
    else:
        text = installation.refused("serve", UNKNOWN="")
    assert "STOPLIST_UNKNOWN" in text
    assert not installation.data_dir.exists()


def test_a_port_in_use_is_named(installation: Installation, tmp_path: Path) -> None:
    """Exit status 1 and a text, for either address."""
    with installation.serving() as server:
        other = Installation(tmp_path / "other")
        other.folder.mkdir()
        assert "another process listens there already" in other.refused("serve", "--port", str(server.port))
        metrics = other.refused("serve", METRICS_LISTEN=f"127.0.0.1:{server.port}")
        assert "STOPLIST_METRICS_LISTEN" in metrics


def test_a_folder_that_cannot_be_created_is_named(installation: Installation) -> None:
    """Exit status 1."""
    installation.data_dir.write_text("a file")
    assert "data" in installation.refused("serve")


def test_postgresql_must_be_reachable_and_migrated(tmp_path: Path, postgresql_url: str) -> None:
    """The error names `migrate`, or the unreachable URL without its password."""
    installation = postgresql_installation(tmp_path, postgresql_url)
    assert "`stoplist migrate`" in installation.refused("serve")
    text = installation.refused("serve", DATABASE_URL="postgresql://stoplist:hush@127.0.0.1:1/none")
    assert "STOPLIST_DATABASE_URL" in text
    assert "hush" not in text
