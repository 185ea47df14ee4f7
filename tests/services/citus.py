"""A temporary Citus for tests: a coordinator and two workers, where PostgreSQL's binaries on this machine have Citus.

Nothing installs Citus for the tests: they are left out elsewhere, in continuous integration too.
"""

import contextlib
import secrets
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from tests.services.managed_program import Unavailable as Unavailable
from tests.services.postgresql import Cluster, find_binaries, run_statements

# Tests need speed, not durability. Few shards are created faster.
_SETTINGS = {
    "shared_preload_libraries": "citus",
    "citus.node_conninfo": "sslmode=disable",
    "citus.shard_count": "8",
    "citus.enable_statistics_collection": "off",
    "citus.recover_2pc_interval": "5s",
    "fsync": "off",
    "full_page_writes": "off",
    "wal_level": "logical",
    "max_wal_size": "256MB",
    "shared_buffers": "32MB",
    "max_worker_processes": "32",
    "max_prepared_transactions": "200",
}


class Citus:
    """A coordinator and its workers."""

    def __init__(self, coordinator: Cluster, workers: tuple[Cluster, ...]) -> None:
        self.coordinator, self.workers = coordinator, workers

    @property
    def nodes(self) -> tuple[Cluster, ...]:
        return (self.coordinator, *self.workers)

    def fresh_database(self, name: str = "") -> str:
        """Create an empty database on all nodes, join them, and return its URL at the coordinator."""
        url = self.coordinator.fresh_database(name)
        database = urlsplit(url).path[1:]
        for worker in self.workers:
            worker.execute(f'CREATE DATABASE "{database}" TEMPLATE template0')
        for node in self.nodes:
            run_statements(node.url(database), "CREATE EXTENSION citus")
        run_statements(
            url,
            f"SELECT citus_set_coordinator_host('127.0.0.1', {self.coordinator.port})",
            *(f"SELECT citus_add_node('127.0.0.1', {worker.port})" for worker in self.workers),
        )
        return url

    def drop_database(self, url: str) -> None:
        """Drop a database created by `fresh_database` on all nodes."""
        for node in self.nodes:
            node.drop_database(node.url(urlsplit(url).path[1:]))


@contextlib.contextmanager
def citus() -> Iterator[Citus]:
    """Start a Citus. Raise `Unavailable` where its extension is not installed for PostgreSQL's binaries."""
    binaries = find_binaries()
    if not (_library_folder(binaries) / "citus.so").exists():
        raise Unavailable(f"no Citus is installed for PostgreSQL in {binaries}")
    with contextlib.ExitStack() as stack:
        # One for all nodes: Citus gives a role that exists on its nodes the password of the coordinator.
        password = secrets.token_hex(16)
        nodes = [stack.enter_context(Cluster(binaries, settings=_SETTINGS, password=password)) for _ in range(3)]
        for node in nodes:
            node.let_log_in_elsewhere()
        yield Citus(nodes[0], tuple(nodes[1:]))


def _library_folder(binaries: Path) -> Path:
    """Return the folder of the server's libraries: what pg_config says, else the one beside the binaries."""
    pg_config = binaries / "pg_config"
    if not pg_config.exists():
        return binaries.parent / "lib"
    answer = subprocess.run([pg_config, "--pkglibdir"], capture_output=True, text=True)
    return Path(answer.stdout.strip() or binaries.parent / "lib")
