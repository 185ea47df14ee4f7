"""`stoplist serve` as a real process, other commands, and a client that trusts the server's certificate."""

import asyncio
import contextlib
import json
import os
import signal
import ssl
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import httpx
import psutil

import stoplist
from stoplist.clock import Clock
from stoplist.db.opening import create_folder
from stoplist.oauth.model import NEW_KEY_PERMISSIONS
from stoplist.organizations.organizations import list_organizations
from tests.builders import ADMINISTRATOR, apart, make_key, make_organization, migrated, opened
from tests.cli.command_line import CommandResult
from tests.constants import PATIENCE_S
from tests.keys import Key
from tests.services.managed_program import reserve_port

# The console script of the installation.
STOPLIST = Path(sys.executable).with_name("stoplist")
_KEPT_VARIABLES = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "VIRTUAL_ENV")


def run_program(
    *command: str | Path, folder: Path, variables: dict[str, str], given: str | None = None
) -> CommandResult:
    """Run a program in this folder, with these variables alone and `given` on its standard input."""
    done = subprocess.run(
        command,
        input=given,
        cwd=folder,
        env=variables,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    return CommandResult(done.returncode, done.stdout, done.stderr)


class Installation:
    """A folder to run commands in, with the variables and the data folder of one installation."""

    command = STOPLIST

    def __init__(self, folder: Path, **variables: str) -> None:
        self.folder, self.data_dir = folder, folder / "data"
        self.variables = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
        # The code under test, even if it is not installed; and its warnings are errors.
        self.variables |= {"PYTHONPATH": str(Path(stoplist.__file__).parents[1]), "PYTHONWARNINGS": "error"}
        self.variables |= _prefixed(variables)

    def run(self, *arguments: str, **variables: str) -> CommandResult:
        """Run `stoplist` with these arguments; variables are given without prefix."""
        return run_program(
            self.command, *arguments, folder=self.folder, variables=self.variables | _prefixed(variables)
        )

    def ok(self, *arguments: str) -> str:
        """Run a command that must succeed, and return its output."""
        return self.run(*arguments).of_success()

    def json(self, *arguments: str) -> Any:
        """Run a command that must succeed, and return its JSON output."""
        return json.loads(self.ok(*arguments, "--json"))

    def refused(self, *arguments: str, **variables: str) -> str:
        """Run a command that must be refused, and return its error."""
        return self.run(*arguments, **variables).of_refusal()

    def with_command(self, command: Path) -> "Installation":
        """Return the same installation with the `stoplist` of another environment, which sees nothing of this one."""
        other = Installation(self.folder)
        other.command = command
        own = ("PYTHONPATH", "VIRTUAL_ENV")
        other.variables = {name: text for name, text in self.variables.items() if name not in own}
        return other

    @property
    def database_url(self) -> str:
        """Return what the operations of this process open: the database, or both if the feeds are apart."""
        url = self.variables.get("STOPLIST_DATABASE_URL", f"sqlite:///{self.data_dir / 'stoplist.db'}")
        feeds_url = self.variables.get("STOPLIST_FEEDS_URL")
        return url if feeds_url is None else apart(url, feeds_url)

    def migrate(self, *organizations: str) -> None:
        """Create the database, with these organizations, or bring its schema up to date.

        Runs in this process, by the operations behind the commands, which is ten times quicker.
        """
        asyncio.run(_migrate(self.database_url, organizations))

    def new_key(
        self,
        *,
        per_minute: int | None = None,
        may: frozenset[str] = NEW_KEY_PERMISSIONS,
        organization: str = "acme",
    ) -> Key:
        """Create a key of the organization, and the organization if it is missing; `per_minute` sets both limits.

        Runs in this process, too.
        """
        return asyncio.run(_new_key(self.database_url, per_minute, may, organization))

    @contextlib.contextmanager
    def serving(self, *flags: str, **variables: str) -> Iterator["RunningServer"]:
        """Run a server and wait until it accepts connections; kill it at the end if it still runs."""
        server = RunningServer(self, flags, variables)
        try:
            if not server.log.wait_for_line(lambda line: line["message"] == "Serving"):
                raise AssertionError(f"the server did not start: {server.log.text}")
            yield server
        finally:
            server.kill()


class RunningServer:
    """A `stoplist serve` process with its workers. Its port stays reserved until it is killed."""

    def __init__(self, installation: Installation, flags: tuple[str, ...], variables: dict[str, str]) -> None:
        self._reserved = reserve_port(int(variables.get("PORT", "0")))
        self.port = int(self._reserved.getsockname()[1])
        self.base_url = f"https://localhost:{self.port}"
        self.ca = installation.data_dir / "ca.pem"
        environment = {"LOG_FORMAT": "json"} | variables | {"PORT": str(self.port)}
        self.process = subprocess.Popen(
            [installation.command, "serve", *flags],
            cwd=installation.folder,
            env=installation.variables | _prefixed(environment),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,  # so that its workers can be killed too
        )
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        self.out, self.log = ProcessOutput(self.process.stdout), Log(self.process.stderr)

    @property
    def tls(self) -> ssl.SSLContext:
        """Return a TLS context that trusts only the authority in the data folder."""
        return ssl.create_default_context(cafile=self.ca)

    @contextlib.contextmanager
    def client(self, **options: Any) -> Iterator[httpx.Client]:
        """Return an ordinary client of this server."""
        defaults: dict[str, Any] = {"base_url": self.base_url, "timeout": PATIENCE_S, "trust_env": False}
        with httpx.Client(**(defaults | {"verify": self.tls} | options)) as client:
            yield client

    def terminate(self) -> int:
        """Send SIGTERM and return the exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.wait_for_exit()

    def kill(self) -> None:
        """Kill the server and its workers by SIGKILL, and wait. May be repeated."""
        self.kill_processes()
        self.wait_for_exit()
        self._reserved.close()

    def kill_processes(self) -> None:
        """Send SIGKILL to all processes of the server."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def wait_for_exit(self) -> int:
        """Wait for the end, read all output, and return the exit status."""
        status = self.process.wait(PATIENCE_S)
        self.out.finish()
        self.log.finish()
        return status


class ProcessOutput:
    """The output of a process, read continuously so that no pipe fills up."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self._lines: deque[str] = deque()
        self._changed = threading.Condition()
        self._is_over = False
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    @property
    def text(self) -> str:
        with self._changed:
            return "".join(self._lines)

    def wait_for(self, text: str) -> bool:
        """Wait for this text, and return whether it came before the end of the output or the timeout."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_over or text in "".join(self._lines), PATIENCE_S)
        return text in self.text

    def keep_last(self, lines: int) -> None:
        """Keep only so many lines from now on: a long run under load writes gigabytes."""
        with self._changed:
            self._lines = deque(self._lines, maxlen=lines)

    def finish(self) -> None:
        self._thread.join(PATIENCE_S)
        self._stream.close()

    def _read(self) -> None:
        for line in self._stream:
            with self._changed:
                self._lines.append(line)
                self._changed.notify_all()
        with self._changed:
            self._is_over = True
            self._changed.notify_all()


class Log(ProcessOutput):
    """A log in JSON."""

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.text.splitlines() if line.startswith("{")]

    def wait_for_line(self, is_wanted: Callable[[dict[str, Any]], bool]) -> bool:
        """Wait for such a line, and return whether it came before the end of the output or the timeout."""
        with self._changed:
            return self._changed.wait_for(lambda: self._is_over or any(map(is_wanted, self.lines)), PATIENCE_S) and any(
                map(is_wanted, self.lines)
            )


async def _migrate(database_url: str, organizations: tuple[str, ...]) -> None:
    create_folder(database_url)
    async with migrated(database_url) as database:
        for slug in organizations:
            await make_organization(database, Clock(), slug)


async def _new_key(database_url: str, per_minute: int | None, may: frozenset[str], organization: str) -> Key:
    clock = Clock()
    async with opened(database_url) as database:
        if organization not in {known.slug for known in await list_organizations(ADMINISTRATOR, database)}:
            await make_organization(database, clock, organization)
        made = await make_key(
            database, clock, organization, permissions=may, token_per_minute=per_minute, api_per_minute=per_minute
        )
    return Key(made.credential.client_id, made.client_secret)


def processes(server: RunningServer) -> list[psutil.Process]:
    """Return every process of the server, the parent first."""
    parent = psutil.Process(server.process.pid)
    return [parent, *parent.children(recursive=True)]


def workers(server: RunningServer) -> list[psutil.Process]:
    """Return the worker processes of the server."""
    return [process for process in processes(server)[1:] if "spawn_main" in " ".join(_command_line(process))]


def _command_line(process: psutil.Process) -> list[str]:
    with contextlib.suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
        return process.cmdline()
    return []


@contextlib.contextmanager
def reserved_address() -> Iterator[str]:
    """Reserve an address for the metrics of a server."""
    with reserve_port() as reserved:
        yield f"127.0.0.1:{reserved.getsockname()[1]}"


def metrics_page(address: str) -> str:
    """Return the text of /metrics, which has no TLS."""
    # By default httpx would read the certificate authorities of this machine nevertheless, which takes 20 ms.
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    return httpx.get(f"http://{address}/metrics", timeout=PATIENCE_S, trust_env=False, verify=tls).text


def _prefixed(variables: dict[str, str]) -> dict[str, str]:
    return {f"STOPLIST_{name}": value for name, value in variables.items()}
