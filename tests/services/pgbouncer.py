"""A temporary PgBouncer in transaction mode, in front of a PostgreSQL of the tests.

It has few connections to the database, so that many clients share them, and no setting that helps a client which keeps
state in its session. The settings work with 1.18, which does not support prepared statements.
"""

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit, urlunsplit

from tests.services.managed_program import ManagedProgram, find_programs, unprivileged_user
from tests.services.managed_program import Unavailable as Unavailable

POOL_SIZE = 5

_SETTINGS = {
    "listen_addr": "127.0.0.1",
    "unix_socket_dir": "",
    "pool_mode": "transaction",
    "default_pool_size": str(POOL_SIZE),
    "max_client_conn": "500",
    # Clients use the names and passwords of the database.
    "auth_type": "plain",
    "auth_file": "users.txt",
    "logfile": "pgbouncer.log",
    "log_connections": "0",
    "log_disconnections": "0",
}


class PgBouncer(ManagedProgram):
    """A PgBouncer in front of every database of one server."""

    def __init__(self, program: Path, server_url: str, *, settings: Mapping[str, str]) -> None:
        self._program, self._settings = program, settings
        super().__init__("pgbouncer", user=unprivileged_user("PgBouncer"))
        try:
            self._configure(server_url)
            self.start()
        except BaseException:
            self.close()
            raise

    def url(self, database_url: str) -> str:
        """Return the URL of the same database through this PgBouncer."""
        parts = urlsplit(database_url)
        account = parts.netloc.rpartition("@")[0]
        return urlunsplit(parts._replace(netloc=f"{account}@127.0.0.1:{self.port}"))

    def _configure(self, server_url: str) -> None:
        server = urlsplit(server_url)
        user, password = (unquote(part or "").replace('"', '""') for part in (server.username, server.password))
        self._write("users.txt", f'"{user}" "{password}"\n')
        settings = {**_SETTINGS, "listen_port": str(self.port), **self._settings}
        lines = [
            "[databases]",
            f"* = host={server.hostname} port={server.port or 5432}",
            "[pgbouncer]",
            *(f"{name} = {value}" for name, value in settings.items()),
        ]
        self._write("pgbouncer.ini", "\n".join([*lines, ""]))

    def _command(self) -> list[str | Path]:
        return [self._program, self.folder / "pgbouncer.ini"]


@contextlib.contextmanager
def pgbouncer(server_url: str, *, settings: Mapping[str, str] | None = None) -> Iterator[PgBouncer]:
    """Start a PgBouncer before the server of that `postgresql://` URL. Raise Unavailable if it is missing.

    `settings` are lines of its configuration, which override the defaults of this module.
    """
    own = PgBouncer(find_program(), server_url, settings=settings or {})
    try:
        yield own
    finally:
        own.close()


def find_program() -> Path:
    """Return the PgBouncer program of this machine. Raise Unavailable if there is none."""
    for program in find_programs("pgbouncer"):
        return program
    raise Unavailable("no PgBouncer was found. Install one (on Debian: apt install pgbouncer).")
