"""PostgreSQL servers to freeze, crash and promote. Each test that needs one has its own."""

import subprocess
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from tests.services.managed_program import at_port, wait_until
from tests.services.postgresql import Cluster

# No durability needed. A commit waits for the standby once there is one.
_SETTINGS = {"fsync": "off", "full_page_writes": "off", "max_wal_size": "256MB", "shared_buffers": "16MB"}
_CAUGHT_UP = "SELECT COUNT(*) = 1 FROM pg_stat_replication WHERE sync_state = 'sync' AND replay_lsn >= sent_lsn"


def own_cluster(**settings: str) -> Cluster:
    """Return a server for one test, with these further settings."""
    return Cluster(settings=_SETTINGS | settings)


class Standby(Cluster):
    """A hot standby of a cluster, which follows every commit synchronously until it is promoted."""

    def __init__(self, primary: Cluster) -> None:
        super().__init__(primary.binaries)
        self._primary = primary

    def start(self) -> None:
        """Start the standby, and wait until it has caught up."""
        super().start()
        self._primary.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
        self._primary.execute("SELECT pg_reload_conf()")
        wait_until(lambda: bool(self._primary.value(_CAUGHT_UP)), "the standby to have caught up")

    def url_of(self, url: str) -> str:
        """Return the URL of the same database on this host."""
        return at_port(url, self.port)

    def url_of_both(self, url: str) -> str:
        """Return the URL of the same database on both hosts; the primary is named last."""
        parts = urlsplit(url)
        account, _, host = parts.netloc.rpartition("@")
        return urlunsplit(parts._replace(netloc=f"{account}@127.0.0.1:{self.port},{host}"))

    def _prepare(self) -> None:
        subprocess.run(
            [
                self.binaries / "pg_basebackup",
                f"--pgdata={self.folder / 'data'}",
                f"--dbname=host={self._primary.folder} port={self._primary.port} user=stoplist",
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
        return [*super()._command(), "-c", "synchronous_standby_names="]
