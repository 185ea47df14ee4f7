"""Stoplist with its defaults: `stoplist serve`, and keys from the command line, with raised ceilings."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from bench import load
from bench.scripts import Partner, Repeat, client_credentials, read
from bench.server import HOST, BenchError, Server, free_port, send_once

_PARTNERS = 4
_TOKENS_A_PARTNER = 512
_CEILING = "1000000000"


class Deployment(msgspec.Struct, frozen=True):
    """One data folder and its settings."""

    folder: Path
    settings: Mapping[str, str] = {}

    @property
    def ca(self) -> Path:
        return self.folder / "ca.pem"

    @property
    def database(self) -> Path:
        return self.folder / "stoplist.db"

    @property
    def certificate(self) -> Path:
        return self.folder / "server.pem"

    @property
    def certificate_key(self) -> Path:
        return self.folder / "server-key.pem"

    @property
    def log(self) -> Path:
        return self.folder.with_suffix(".log")

    def server(self, *flags: str) -> Server:
        """Return a `stoplist serve` with metrics on and its log in a file."""
        port = free_port()
        environ = self._environ() | {"STOPLIST_METRICS_LISTEN": f"{HOST}:{free_port()}"}
        command = [*_stoplist(), "serve", "--host", HOST, "--port", str(port), "--data-dir", str(self.folder)]
        command += flags
        return Server(command, port=port, ca=self.ca, folder=self.folder.parent, environ=environ, log=self.log)

    def run(self, *arguments: str) -> str:
        """Run a command and return its output. Raises BenchError with the text of stderr if it fails."""
        done = subprocess.run(
            [*_stoplist(), *arguments],
            cwd=self.folder.parent,
            env=self._environ() | {"STOPLIST_DATA_DIR": str(self.folder)},
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise BenchError(f"stoplist {' '.join(arguments)}: {done.stderr}")
        return done.stdout

    def _environ(self) -> dict[str, str]:
        # Settings of the developer's own server must not leak into this one.
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("STOPLIST_")}
        return inherited | dict(self.settings)


def make_partners(deployment: Deployment) -> list[Partner]:
    """Create keys with raised ceilings for one organization. The database must exist."""
    deployment.run("org", "create", "bench", "--name", "Bench", "--default-group", "News", "--json")
    return [_make_key(deployment, "bench", f"Bench {number}") for number in range(_PARTNERS)]


def make_partner(deployment: Deployment, slug: str) -> Partner:
    """Create an organization and a key with raised ceilings for it."""
    deployment.run("org", "create", slug, "--name", slug, "--default-group", "News", "--json")
    return _make_key(deployment, slug, slug)


def with_tokens(partners: Sequence[Partner], server: Server, count: int = _TOKENS_A_PARTNER) -> list[Partner]:
    """Return the same partners, each with `count` new access tokens from `server`."""
    return [_with_tokens(partner, server, count) for partner in partners]


def bearer_answer(partner: Partner, server: Server) -> tuple[bytes, int]:
    """Return status and body size of a bearer-checked request to a path that does not exist."""
    answer = send_once(read(partner.access_tokens[0]), port=server.port, ca=server.ca)
    if answer.status != b"404":
        raise BenchError(f"the bearer-checked request was answered {answer.status!r}: {answer.body[:300]!r}")
    return answer.status, len(answer.body)


def token_answer_bytes(partner: Partner, server: Server) -> int:
    """Return the body size of a token response."""
    answer = send_once(client_credentials(partner), port=server.port, ca=server.ca)
    if answer.status != b"200":
        raise BenchError(f"the token request was answered {answer.status!r}: {answer.body[:300]!r}")
    return len(answer.body)


def _make_key(deployment: Deployment, slug: str, label: str) -> Partner:
    made: dict[str, Any] = json.loads(deployment.run("key", "create", "--label", label, "--org", slug, "--json"))
    client_id = str(made["client_id"])
    deployment.run("key", "limits", client_id, "--token-per-minute", _CEILING, "--api-per-minute", _CEILING)
    return Partner(client_id=client_id, client_secret=str(made["client_secret"]))


class _TokenCollector(Repeat):
    """Requests tokens and collects them."""

    def __init__(self, partner: Partner, tokens: list[str]) -> None:
        super().__init__([client_credentials(partner)])
        self._tokens = tokens

    def next(self, body: bytes) -> bytes:
        self._tokens.append(str(json.loads(body).get("access_token", "")))
        return super().next(body)


def _with_tokens(partner: Partner, server: Server, count: int) -> Partner:
    tokens: list[str] = []
    while len(tokens) < count:
        scripts = [_TokenCollector(partner, tokens) for _ in range(16)]
        seen = load.run(scripts, port=server.port, ca=server.ca, warm_up_s=0, duration_s=0.2, server_cpu_s=server.cpu_s)
        if seen.failures or not seen.requests:
            raise BenchError(f"no tokens could be issued: {seen.first_failure}")
    return msgspec.structs.replace(partner, access_tokens=tuple(tokens[:count]))


def _stoplist() -> list[str]:
    """Return the command that is installed beside this Python."""
    command = shutil.which("stoplist", path=str(Path(sys.executable).parent))
    if command is None:
        raise BenchError("the stoplist command is not installed beside this Python: run `make install`")
    return [command]
