"""PostgreSQL servers to freeze, crash and promote. Each test that needs one has its own."""

import contextlib
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psutil

from tests.services.managed_program import ManagedProgram, unprivileged_user, wait_until
from tests.services.postgresql import Cluster, cluster

# No durability needed. A commit waits for the standby once there is one.
_SETTINGS = {"fsync": "off", "full_page_writes": "off", "max_wal_size": "256MB", "shared_buffers": "16MB"}
_CAUGHT_UP = "SELECT COUNT(*) = 1 FROM pg_stat_replication WHERE sync_state = 'sync' AND replay_lsn >= sent_lsn"


@contextlib.contextmanager
def start_cluster() -> Iterator[Cluster]:
    """Start a server for one test."""
    with cluster(settings=_SETTINGS) as own:
        yield own


def freeze(cluster: Cluster) -> None:
    """Suspend all processes of the server: connections stay open, new ones are accepted, and nothing is answered."""
    for process in _processes(cluster):
        with contextlib.suppress(psutil.NoSuchProcess):
            process.suspend()


def thaw(cluster: Cluster) -> None:
    """Resume a frozen server."""
    for process in reversed(_processes(cluster)):
        with contextlib.suppress(psutil.NoSuchProcess):
            process.resume()


def crash(cluster: Cluster) -> None:
    """Kill the postmaster, and with it all its processes. `start` recovers what was committed.

    `start` fails while one of the processes still has their shared memory, so wait for all of them.
    """
    _processes(cluster)[0].suspend()  # so that it starts no more processes
    processes = _processes(cluster)
    processes[0].kill()
    wait_until(lambda: all(map(_has_ended, processes)), "the server to end")


class Standby(ManagedProgram):
    """A hot standby of a cluster, which follows every commit synchronously until it is promoted."""

    def __init__(self, primary: Cluster) -> None:
        super().__init__("standby", user=unprivileged_user("PostgreSQL"))
        self._postgres = primary.binaries / "postgres"
        try:
            self._copy(primary)
            self.start()
            primary.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
            primary.execute("SELECT pg_reload_conf()")
            wait_until(lambda: bool(primary.value(_CAUGHT_UP)), "the standby to have caught up")
        except BaseException:
            self.close()
            raise

    def url(self, url: str) -> str:
        """Return the URL of the same database on this host."""
        parts = urlsplit(url)
        return urlunsplit(parts._replace(netloc=f"{parts.netloc.rpartition('@')[0]}@127.0.0.1:{self.port}"))

    def url_of_both(self, url: str) -> str:
        """Return the URL of the same database on both hosts; the primary is named last."""
        parts = urlsplit(url)
        account, _, host = parts.netloc.rpartition("@")
        return urlunsplit(parts._replace(netloc=f"{account}@127.0.0.1:{self.port},{host}"))

    def _copy(self, primary: Cluster) -> None:
        subprocess.run(
            [
                primary.binaries / "pg_basebackup",
                f"--pgdata={self.folder / 'data'}",
                f"--dbname=host={primary.folder} port={primary.port} user=stoplist",
                "--write-recovery-conf",
                "--wal-method=stream",
                "--checkpoint=fast",
                "--no-sync",
            ],
            check=True,
            capture_output=True,
            **self._identity(),
        )

    def _command(self) -> list[str | Path]:
        return [
            self._postgres,
            *("-D", self.folder / "data", "-p", str(self.port), "-k", self.folder),
            *("-c", "synchronous_standby_names="),
        ]


@contextlib.contextmanager
def standby(primary: Cluster) -> Iterator[Standby]:
    """Start a standby of this cluster."""
    own = Standby(primary)
    try:
        yield own
    finally:
        own.close()
        shutil.rmtree(own.folder, ignore_errors=True)


def _processes(cluster: Cluster) -> list[psutil.Process]:
    """Return the postmaster and its child processes."""
    pid = int((cluster.folder / "data" / "postmaster.pid").read_text().splitlines()[0])
    postmaster = psutil.Process(pid)
    return [postmaster, *postmaster.children(recursive=True)]


def _has_ended(process: psutil.Process) -> bool:
    """Return whether the process has ended, even as a zombie."""
    try:
        return bool(process.status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True
