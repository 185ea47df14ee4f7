"""A temporary PgBouncer in transaction mode, in front of a PostgreSQL of the tests.

It has few connections to the database, so that many clients share them, and no setting that helps a client which keeps
state in its session. The settings work with 1.18, which does not support prepared statements.
"""

from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

from tests.services.managed_program import ManagedProgram, at_port, find_program, unprivileged_user
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
    """A PgBouncer in front of every database of the server of a `postgresql://` URL.

    `settings` are lines of its configuration, which override the defaults of this module.
    """

    def __init__(self, server_url: str, *, settings: Mapping[str, str] | None = None) -> None:
        self._program, self._server_url, self._settings = find_program("pgbouncer"), server_url, settings or {}
        super().__init__("pgbouncer", user=unprivileged_user("PgBouncer"))

    def url(self, database_url: str) -> str:
        """Return the URL of the same database through this PgBouncer."""
        return at_port(database_url, self.port)

    def _prepare(self) -> None:
        server = urlsplit(self._server_url)
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
