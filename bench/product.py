"""Stoplist with its defaults (`stoplist serve`, and keys with raised ceilings), and the bare applications beside it."""

import json
import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Self

import msgspec

from bench import load
from bench.machine import PostgresqlTime
from bench.scripts import Partner, Script, client_credentials
from bench.server import HOST, BenchError, Server, free_port
from tests.services import postgresql

_REPOSITORY = Path(__file__).parent.parent
_TOKENS_A_PARTNER = 512
_CEILING = "1000000000"
# Persistent by convention, unlike /tmp, and accessible to the user that runs PostgreSQL if root measures.
_DISK = Path("/var/tmp")
_DURABLE = {"fsync": "on", "full_page_writes": "on", "synchronous_commit": "on"}


class Deployment(msgspec.Struct, frozen=True):
    """One data folder and its settings, with a database that has been migrated.

    `command` is another `stoplist`, or None for the one that is installed beside this Python.
    """

    folder: Path
    settings: Mapping[str, str] = {}
    partners: tuple[Partner, ...] = ()
    command: Sequence[str] | None = None

    @classmethod
    def create(
        cls,
        folder: Path,
        *,
        settings: Mapping[str, str] | None = None,
        partners: Sequence[str] = ("bench",) * 4,
        command: Sequence[str] | None = None,
    ) -> Self:
        """Return a deployment with a new database, in `folder` or where the settings say, and with partners.

        Each of these is a key of the organization with that slug, with raised ceilings.
        """
        folder.mkdir(exist_ok=True)
        deployment = cls(folder, settings or {}, command=command)
        deployment.run("migrate")
        for slug in dict.fromkeys(partners):
            deployment.run("org", "create", slug, "--name", slug, "--default-group", "News", "--json")
        return msgspec.structs.replace(deployment, partners=tuple(map(deployment.make_key, partners)))

    def make_key(self, *slugs: str) -> Partner:
        """Create a key of these organizations, of which the first is the default, with raised ceilings."""
        organizations = [option for slug in slugs for option in ("--org", slug)]
        created = self.run("key", "create", "--label", slugs[0], *organizations, "--default-org", slugs[0], "--json")
        made = json.loads(created)
        limits = ("--token-per-minute", _CEILING, "--api-per-minute", _CEILING)
        self.run("key", "limits", made["client_id"], *limits)
        return Partner(client_id=made["client_id"], client_secret=made["client_secret"])

    @property
    def database(self) -> Path:
        return self.folder / "stoplist.db"

    @property
    def database_url(self) -> str:
        return self.settings.get("STOPLIST_DATABASE_URL", f"sqlite:///{self.database}")

    @property
    def where(self) -> str:
        """The end of the titles of its rows."""
        return " (PostgreSQL)" if "STOPLIST_DATABASE_URL" in self.settings else ""

    @property
    def limits_url(self) -> str:
        return self.settings.get("STOPLIST_LIMITS_URL", "memory:")

    def server(self, *flags: str, tls: bool = True, with_database: bool = False) -> "ProductServer":
        """Return a server with metrics on and its log in a file, over TLS or behind a trusted proxy.

        `with_database`: its processor time includes that of its PostgreSQL.
        """
        return ProductServer(self, flags, tls=tls, with_database=with_database)

    def bare(self, app: str, *body_bytes: int) -> Server:
        """Return a bare application (`bare.asgi`, `bare_stores`) with the certificate and stores of this deployment."""
        module, *names = app.split(".")
        files = (str(self.folder / "server.pem"), str(self.folder / "server-key.pem"))
        command = [sys.executable, "-m", f"bench.{module}", *names, *files, *map(str, body_bytes)]
        stores = {"BENCH_DATABASE_URL": self.database_url, "BENCH_LIMITS_URL": self.limits_url}
        path = f"{_REPOSITORY}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
        environ = {**os.environ, **stores, "PYTHONPATH": path}
        return Server(command, name=app, folder=self.folder, environ=environ)

    def run(self, *arguments: str) -> str:
        """Run a command and return its output. Raises BenchError with the text of stderr if it fails."""
        done = subprocess.run(
            [*self.stoplist(), *arguments], cwd=self.folder.parent, env=self.environ(), capture_output=True, text=True
        )
        if done.returncode:
            raise BenchError(f"stoplist {' '.join(arguments)}: {done.stderr}")
        return done.stdout

    def stoplist(self) -> list[str]:
        """Return the command. Raises BenchError if it is not installed."""
        if self.command is not None:
            return list(self.command)
        command = shutil.which("stoplist", path=str(Path(sys.executable).parent))
        if command is None:
            raise BenchError("the stoplist command is not installed beside this Python: run `make install`")
        return [command]

    def environ(self) -> dict[str, str]:
        """Return the environment of commands and servers."""
        # Settings of the developer's own server must not leak into this one.
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("STOPLIST_")}
        return {**inherited, **self.settings, "STOPLIST_DATA_DIR": str(self.folder)}


@contextmanager
def on_postgresql(
    folder: Path,
    *,
    partners: Sequence[str] = ("bench",) * 4,
    limits_url: str = "memory:",
    command: Sequence[str] | None = None,
) -> Iterator[Deployment]:
    """Yield a deployment on an empty database of the tests' PostgreSQL, made as durable as in production.

    Its secret key is that of the folder, so that what is stored there can be copied.
    """
    key = folder / "secret.key"
    try:
        with postgresql.cluster(parent=_DISK, settings=_DURABLE) as cluster:
            settings = {
                "STOPLIST_DATABASE_URL": cluster.fresh_database("bench"),
                "STOPLIST_LIMITS_URL": limits_url,
                "STOPLIST_SECRET_KEY": key.read_text().strip() if key.exists() else secrets.token_hex(32),
            }
            yield Deployment.create(folder, settings=settings, partners=partners, command=command)
    except postgresql.Unavailable as error:
        raise BenchError(str(error)) from error


def with_tokens(server: "ProductServer") -> list[Partner]:
    """Return the partners of the deployment, each with many new access tokens."""
    return [
        msgspec.structs.replace(partner, access_tokens=tuple(_tokens(partner, server, _TOKENS_A_PARTNER)))
        for partner in server.deployment.partners
    ]


class ProductServer(Server):
    """A `stoplist serve`."""

    def __init__(self, deployment: Deployment, flags: Sequence[str], *, tls: bool, with_database: bool) -> None:
        environ = deployment.environ() | {"STOPLIST_METRICS_LISTEN": f"{HOST}:{free_port()}"}
        if not tls:
            environ["STOPLIST_TRUSTED_PROXIES"] = HOST
        command = [*deployment.stoplist(), "serve", "--host", HOST, *flags]
        super().__init__(command, name=deployment.folder.name, folder=deployment.folder, environ=environ, tls=tls)
        self.deployment = deployment
        is_counted = with_database and "STOPLIST_DATABASE_URL" in deployment.settings
        self._database_time = PostgresqlTime(deployment.database_url) if is_counted else None

    def cpu_s(self) -> float:
        return super().cpu_s() + (self._database_time.cpu_s() if self._database_time else 0.0)

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
        return _tokens(partner, self, 1)[0]


def _tokens(partner: Partner, server: Server, count: int) -> list[str]:
    tokens: list[str] = []

    def collect() -> Script:
        request = client_credentials(partner)
        while True:
            tokens.append(str(json.loads((yield request)).get("access_token", "")))

    while len(tokens) < count:
        seen = load.run(server, [collect() for _ in range(16)], duration_s=0.2)
        if seen.failures:
            raise BenchError(f"no tokens could be issued: {seen.first_failure}")
    return tokens[:count]
