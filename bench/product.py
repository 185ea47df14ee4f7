"""Stoplist with its defaults (`stoplist serve`, and keys with raised ceilings), and the bare applications beside it."""

import json
import os
import secrets
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from enum import Enum
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
import psutil

from bench import direct, load
from bench.machine import process_s
from bench.scripts import Partner, Script, client_credentials
from bench.server import HOST, BenchError, Server, free_port
from tests.services import postgresql

_REPOSITORY = Path(__file__).parent.parent
_TOKENS_A_PARTNER = 512
_CEILING = "1000000000"
# Persistent by convention, unlike /tmp, and accessible to the user that runs PostgreSQL if root measures.
_DISK = Path("/var/tmp")
_DURABLE = {"fsync": "on", "full_page_writes": "on", "synchronous_commit": "on"}
FOUR_KEYS = ("bench",) * 4
# The command that is installed beside this Python.
STOPLIST = (str(Path(sys.executable).with_name("stoplist")),)


class DatabaseKind(Enum):
    """The databases that everything is measured on."""

    SQLITE = "SQLite"
    POSTGRESQL = "PostgreSQL"


SQLITE, POSTGRESQL = DatabaseKind


class Deployment(msgspec.Struct, frozen=True):
    """One data folder and its settings, with a database that has been migrated. `command` runs its `stoplist`."""

    folder: Path
    settings: Mapping[str, str] = {}
    partners: tuple[Partner, ...] = ()
    command: Sequence[str] = STOPLIST

    def make_key(self, *slugs: str) -> Partner:
        """Create a key of these organizations, of which the first is the default, with raised ceilings."""
        organizations = [option for slug in slugs for option in ("--org", slug)]
        made = self.json("key", "create", "--label", slugs[0], *organizations, "--default-org", slugs[0])
        self.run("key", "limits", made["client_id"], "--token-per-minute", _CEILING, "--api-per-minute", _CEILING)
        return Partner(client_id=made["client_id"], client_secret=made["client_secret"])

    @property
    def file(self) -> Path:
        """The database file, on SQLite."""
        return self.folder / "stoplist.db"

    @property
    def database_url(self) -> str:
        return self.settings.get("STOPLIST_DATABASE_URL", f"sqlite:///{self.file}")

    @property
    def is_on_postgresql(self) -> bool:
        return "STOPLIST_DATABASE_URL" in self.settings

    @property
    def where(self) -> str:
        """The end of the titles of its rows."""
        return " (PostgreSQL)" if self.is_on_postgresql else ""

    def connected(self) -> AbstractContextManager[direct.PlainConnection]:
        """Return a connection to the database, without Stoplist."""
        return direct.connected(self.database_url)

    def server(self, *flags: str, tls: bool = True, with_database: bool = False) -> "ProductServer":
        """Return a server with metrics on and its log in a file, over TLS or behind a trusted proxy.

        `with_database`: its processor time includes that of its PostgreSQL.
        """
        return ProductServer(self, flags, tls=tls, with_database=with_database)

    def bare(self, app: str, *body_bytes: int) -> Server:
        """Return a bare application (`bare.asgi`, `bare_handlers.clicks`) with the certificate and stores of this."""
        module, name = app.split(".")
        files = (str(self.folder / "server.pem"), str(self.folder / "server-key.pem"))
        command = [sys.executable, "-m", f"bench.{module}", name, *files, *map(str, body_bytes)]
        stores = {
            "BENCH_DATABASE_URL": self.database_url,
            "BENCH_LIMITS_URL": self.settings.get("STOPLIST_LIMITS_URL", ""),
        }
        path = f"{_REPOSITORY}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
        environ = {**os.environ, **stores, "PYTHONPATH": path}
        return Server(command, name=app, folder=self.folder, environ=environ)

    def run(self, *arguments: str) -> str:
        """Run a command and return its output. Raises BenchError with the text of stderr if it fails."""
        done = subprocess.run(
            [*self.command, *arguments], cwd=self.folder.parent, env=self.environ(), capture_output=True, text=True
        )
        if done.returncode:
            raise BenchError(f"stoplist {' '.join(arguments)}: {done.stderr}")
        return done.stdout

    def json(self, *arguments: str) -> Any:
        """Run a command with `--json`, and return what it prints."""
        return json.loads(self.run(*arguments, "--json"))

    def copy_from(self, file: Path) -> Any:
        """Copy the contents of a SQLite file to this database, and return what the command prints."""
        return self.json("copy", "--from", f"sqlite:///{file}", "--to", self.database_url)

    def environ(self) -> dict[str, str]:
        """Return the environment of commands and servers."""
        # Settings of the developer's own server must not leak into this one.
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("STOPLIST_")}
        return {**inherited, **self.settings, "STOPLIST_DATA_DIR": str(self.folder)}


@contextmanager
def deployed(
    database: DatabaseKind,
    folder: Path,
    *,
    partners: Sequence[str] = FOUR_KEYS,
    settings: Mapping[str, str] | None = None,
    command: Sequence[str] = STOPLIST,
    are_feeds_apart: bool = False,
) -> Iterator[Deployment]:
    """Yield a deployment on a new database, with a key for each of these slugs of organizations.

    `are_feeds_apart`: its feeds are in a second database of the same PostgreSQL.

    PostgreSQL is that of the tests, made as durable as in production. Its secret key is that of the folder, so that
    what is stored there can be copied.
    """
    folder.mkdir(exist_ok=True)
    with ExitStack() as running:
        settings = dict(settings or {})
        if database is POSTGRESQL:
            key = folder / "secret.key"
            settings.setdefault("STOPLIST_LIMITS_URL", "memory:")
            cluster = running.enter_context(_postgresql())
            settings["STOPLIST_DATABASE_URL"] = cluster.fresh_database("bench")
            if are_feeds_apart:
                settings["STOPLIST_FEEDS_URL"] = cluster.fresh_database("feeds")
            settings["STOPLIST_SECRET_KEY"] = key.read_text().strip() if key.exists() else secrets.token_hex(32)
        deployment = Deployment(folder, settings, command=command)
        deployment.run("migrate")
        for slug in dict.fromkeys(partners):
            deployment.run("org", "create", slug, "--name", slug, "--default-group", "News")
        yield msgspec.structs.replace(deployment, partners=tuple(map(deployment.make_key, partners)))


@contextmanager
def _postgresql() -> Iterator[postgresql.Cluster]:
    try:
        with postgresql.Cluster(parent=_DISK, settings=_DURABLE) as cluster:
            yield cluster
    except postgresql.Unavailable as error:
        raise BenchError(str(error)) from error


def postgresql_meter(database_url: str) -> Callable[[], float]:
    """Return a function that returns the processor seconds of all processes of PostgreSQL, also of those that ended."""
    with direct.connected(database_url) as connection:
        ((backend_id,),) = connection.query("SELECT pg_backend_pid()")
        postmaster = psutil.Process(backend_id).parent()

    def cpu_s() -> float:
        assert postmaster is not None
        # Running children are counted here; the postmaster counts those that ended.
        return sum(postmaster.cpu_times()[:4]) + sum(map(process_s, postmaster.children()))

    return cpu_s


class ProductServer(Server):
    """A `stoplist serve`."""

    def __init__(self, deployment: Deployment, flags: Sequence[str], *, tls: bool, with_database: bool) -> None:
        environ = deployment.environ() | {"STOPLIST_METRICS_LISTEN": f"{HOST}:{free_port()}"}
        if not tls:
            environ["STOPLIST_TRUSTED_PROXIES"] = HOST
        command = [*deployment.command, "serve", "--host", HOST, *flags]
        super().__init__(command, name=deployment.folder.name, folder=deployment.folder, environ=environ, tls=tls)
        self.deployment = deployment
        is_counted = with_database and deployment.is_on_postgresql
        self._database_s = postgresql_meter(deployment.database_url) if is_counted else lambda: 0.0

    def cpu_s(self) -> float:
        return super().cpu_s() + self._database_s()

    def cost_us(self, requests: Sequence[bytes]) -> float:
        """Return the processor time for one of these requests, in microseconds. They are sent one after the other."""
        with self.caller() as caller:
            before_s = self.cpu_s()
            for request in requests:
                caller.call(request)
            return (self.cpu_s() - before_s) / len(requests) * 1e6

    @cached_property
    def token(self) -> str:
        """An access token of the first partner."""
        return self.new_token(self.deployment.partners[0])

    def new_token(self, partner: Partner) -> str:
        """Return a new access token."""
        return str(self.send_once(client_credentials(partner)).json()["access_token"])

    def with_tokens(self) -> list[Partner]:
        """Return the partners of the deployment, each with many new access tokens."""
        partners = []
        for partner in self.deployment.partners:
            answers: list[bytes] = []
            while len(answers) < _TOKENS_A_PARTNER:
                scripts = [_collect(client_credentials(partner), answers) for _ in range(16)]
                if failure := load.run(self, scripts, duration_s=0.2).first_failure:
                    raise BenchError(f"no tokens could be issued: {failure}")
            tokens = tuple(json.loads(answer)["access_token"] for answer in answers[:_TOKENS_A_PARTNER])
            partners.append(msgspec.structs.replace(partner, access_tokens=tokens))
        return partners


def _collect(request: bytes, answers: list[bytes]) -> Script:
    while True:
        answers.append((yield request))
