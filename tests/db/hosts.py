"""PostgreSQL servers that are frozen, crash and are promoted: each test that needs one has its own."""

import contextlib
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psutil

from tests.services.keeping import Kept, unprivileged_user, wait_until
from tests.services.postgresql import Cluster, cluster

# Nothing here outlives a power cut. Whoever commits waits for the standby, once there is one.
_SETTINGS = {"fsync": "off", "full_page_writes": "off", "max_wal_size": "256MB", "shared_buffers": "16MB"}
_CAUGHT_UP = "SELECT COUNT(*) = 1 FROM pg_stat_replication WHERE sync_state = 'sync' AND replay_lsn >= sent_lsn"


@contextlib.contextmanager
def own_cluster() -> Iterator[Cluster]:
    """A server that nobody else uses."""
    with cluster(settings=_SETTINGS) as own:
        yield own


def freeze(cluster: Cluster) -> None:
    """It keeps its connections, the operating system accepts new ones, and nobody is answered."""
    for process in _processes(cluster):
        with contextlib.suppress(psutil.NoSuchProcess):
            process.suspend()


def thaw(cluster: Cluster) -> None:
    """It goes on."""
    for process in reversed(_processes(cluster)):
        with contextlib.suppress(psutil.NoSuchProcess):
            process.resume()


def crash(cluster: Cluster) -> None:
    """The postmaster is killed, and with it go all its processes; `start` recovers what was committed.

    It refuses to while one of them still has the memory that they share.
    """
    _processes(cluster)[0].suspend()  # it makes no more of them
    processes = _processes(cluster)
    processes[0].kill()
    wait_until(lambda: all(map(_has_ended, processes)), "the server to end")


class Standby(Kept):
    """A hot standby of a cluster, which follows every commit synchronously until it is promoted."""

    def __init__(self, primary: Cluster) -> None:
        super().__init__("standby", user=unprivileged_user("PostgreSQL"))
        self._primary = primary
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
        """The same database on this host."""
        parts = urlsplit(url)
        return urlunsplit(parts._replace(netloc=f"{parts.netloc.rpartition('@')[0]}@127.0.0.1:{self.port}"))

    def both(self, url: str) -> str:
        """The same database on whichever of the two takes writes; the primary is named last."""
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
    """A standby of this cluster."""
    own = Standby(primary)
    try:
        yield own
    finally:
        own.close()
        shutil.rmtree(own.folder, ignore_errors=True)


def _processes(cluster: Cluster) -> list[psutil.Process]:
    """The postmaster, then its processes."""
    pid = int((cluster.folder / "data" / "postmaster.pid").read_text().splitlines()[0])
    postmaster = psutil.Process(pid)
    return [postmaster, *postmaster.children(recursive=True)]


def _has_ended(process: psutil.Process) -> bool:
    """Whether it runs no more, even where nobody has asked after its end yet."""
    try:
        return bool(process.status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True
