"""Opening a database: the meaning of a URL, the folder of the file, and the lock for a single server."""

import asyncio
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from stoplist.db.opening import create_folder, is_served, open_database, single_server_lock, sqlite_path
from stoplist.errors import SettingsError
from tests.constants import ROOT

# Holds the lock of a URL until the process ends.
HOLDER = """
import sys
from stoplist.db.opening import single_server_lock
with single_server_lock(sys.argv[1]):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("sqlite:///stoplist.db", Path("stoplist.db")),
        ("sqlite:////var/lib/stoplist/stoplist.db", Path("/var/lib/stoplist/stoplist.db")),
        ("sqlite:///a b?c.db", Path("a b?c.db")),
        ("postgresql://someone@db.example/stoplist", None),
    ],
)
def test_a_url_names_a_file_or_a_server(url: str, path: Path | None) -> None:
    """Section D1, row Settings: three slashes and a path, unchanged."""
    assert sqlite_path(url) == path


def test_each_url_opens_its_kind(database_url: str) -> None:
    """Both implement `Database`."""

    async def body() -> str:
        database = await open_database(database_url, create=True)
        await database.close()
        return database.kind

    assert asyncio.run(body()) == database_url.split(":")[0]


def test_a_created_folder_is_private(tmp_path: Path) -> None:
    """An existing one is not changed; PostgreSQL needs none."""
    folder = tmp_path / "new" / "folder"
    create_folder(f"sqlite:///{folder}/stoplist.db")
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    folder.chmod(0o750)
    create_folder(f"sqlite:///{folder}/stoplist.db")
    assert stat.S_IMODE(folder.stat().st_mode) == 0o750
    create_folder("postgresql://someone@db.example/stoplist")


def test_a_folder_that_cannot_be_created_is_named(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    with pytest.raises(SettingsError, match="taken"):
        create_folder(f"sqlite:///{tmp_path}/taken/folder/stoplist.db")


def test_only_one_server_serves_a_file(sqlite_url: str, tmp_path: Path) -> None:
    """Section D1, row Embedded default: a second server is refused, by whatever path it names the file."""
    (tmp_path / "link.db").symlink_to(tmp_path / "stoplist.db")
    with single_server_lock(sqlite_url):
        for url in (
            sqlite_url,
            f"sqlite:///{tmp_path}/../{tmp_path.name}/stoplist.db",
            f"sqlite:///{tmp_path}/link.db",
        ):
            with pytest.raises(SettingsError, match="Another server"), single_server_lock(url):
                pass
        with single_server_lock(f"sqlite:///{tmp_path}/other.db"):
            pass
    with single_server_lock(sqlite_url):
        assert stat.S_IMODE((tmp_path / "stoplist.db.lock").stat().st_mode) == 0o600


def test_any_number_of_servers_serves_postgresql() -> None:
    url = "postgresql://someone@db.example/stoplist"
    with single_server_lock(url), single_server_lock(url):
        pass


def test_a_killed_server_leaves_no_lock(sqlite_url: str) -> None:
    """The lock is the operating system's; the file that remains blocks nobody."""
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, sqlite_url],
        env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    with pytest.raises(SettingsError, match="Another server"), single_server_lock(sqlite_url):
        pass
    holder.send_signal(signal.SIGKILL)
    holder.communicate()
    with single_server_lock(sqlite_url):
        pass


def test_a_read_only_folder_is_named(tmp_path: Path) -> None:
    """The server refuses to start."""
    (tmp_path / "stoplist.db.lock").mkdir()
    with pytest.raises(SettingsError, match=tmp_path.name), single_server_lock(f"sqlite:///{tmp_path}/stoplist.db"):
        pass


def test_a_served_file_is_known_by_its_lock(empty_sqlite_url: str) -> None:
    """`stoplist import` leaves time to others then. PostgreSQL needs no such care."""
    assert not is_served(empty_sqlite_url)
    with single_server_lock(empty_sqlite_url):
        assert is_served(empty_sqlite_url)
    assert not is_served(empty_sqlite_url)
    assert not is_served("postgresql://localhost/stoplist")
