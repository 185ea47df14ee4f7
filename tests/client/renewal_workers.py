"""Helpers for tests of renewal: the server's token rows, flows that run alone, and processes that renew."""

import contextlib
import json
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from stoplist_client.environment import Environment
from stoplist_client.flows.flow import Flow
from stoplist_client.flows.renewal import HeldToken, Renewal
from stoplist_client.tokens.stores import FileStore, TokenFile
from stoplist_client.transport import wire
from stoplist_client.transport.driver import Driver

from stoplist.clock import Clock
from stoplist.oauth.credentials import revoke_tokens
from tests.builders import ADMINISTRATOR, on_database
from tests.client.partners import Partner
from tests.constants import PATIENCE_S

WORKER = Path(__file__).with_name("renewal_process.py")


class TokenRows:
    """The tokens of one key in the server's database."""

    def __init__(self, partner: Partner) -> None:
        self._url, self._client_id = partner.service.installation.database_url, partner.key.client_id

    @property
    def issued(self) -> int:
        """The number of token requests that were answered with tokens."""
        return self._count("SELECT COUNT(*) FROM token_pairs WHERE client_id = ?")

    @property
    def refreshed(self) -> int:
        """The number of token requests with a refresh token that were answered with tokens."""
        return self._count("SELECT COUNT(*) FROM token_pairs WHERE client_id = ? AND rotated_from IS NOT NULL")

    def have_refreshed(self, count: int) -> bool:
        """Return whether there were so many refreshes."""
        return self.refreshed >= count

    @property
    def reuse_alarms(self) -> int:
        """The number of refresh tokens that were presented a second time."""
        return self._count("SELECT COUNT(*) FROM audit WHERE target = ? AND action = 'client.reuse_alarm'")

    def expire(self) -> None:
        """Expire all access tokens issued so far."""
        with self._opened() as database, database:
            database.execute("UPDATE token_pairs SET access_expires_ms = 0 WHERE client_id = ?", (self._client_id,))

    def need_secret(self) -> None:
        """Let the key refresh with its secret alone, as `stoplist key update --refresh-needs-secret` does."""
        with self._opened() as database, database:
            database.execute("UPDATE clients SET refresh_needs_secret = 1 WHERE client_id = ?", (self._client_id,))

    def revoke(self) -> None:
        """Revoke all tokens issued so far, as `stoplist key revoke-tokens` does."""
        on_database(
            self._url, lambda database: revoke_tokens(ADMINISTRATOR, database, Clock(), client_id=self._client_id)
        )

    def _count(self, statement: str) -> int:
        with self._opened() as database:
            return int(database.execute(statement, (self._client_id,)).fetchone()[0])

    def _opened(self) -> contextlib.closing[sqlite3.Connection]:
        return contextlib.closing(sqlite3.connect(self._url.removeprefix("sqlite:///"), timeout=PATIENCE_S))


class SkewedEnvironment(Environment):
    """A clock that is wrong by `off_s`, and no jitter."""

    def __init__(self) -> None:
        self.off_s = 0.0

    def now_s(self) -> float:
        return super().now_s() + self.off_s

    def jitter(self) -> float:
        return 0.0


class Worker:
    """A renewal with its own connections and memory and a shared store, like a separate process."""

    def __init__(self, partner: Partner, store: Any, *, via_base_url: str | None = None, **options: Any) -> None:
        self.pauses: list[float] = []
        self.environment = SkewedEnvironment()
        defaults: dict[str, Any] = {
            # Tokens belong to the service, not to the proxy in front of it.
            "base_url": partner.service.base_url,
            "client_id": partner.key.client_id,
            "client_secret": partner.key.client_secret,
            "store": store,
            "environment": self.environment,
            "attempts": 3,
        }
        self.renewal = Renewal(**(defaults | options))
        base_url = via_base_url or partner.service.base_url
        self._driver = Driver(
            wire.options(base_url, ca_file=partner.service.ca_file, timeout_s=PATIENCE_S), total_s=PATIENCE_S
        )
        self._driver.sleep = self.pauses.append

    def current_token(self) -> HeldToken:
        return self.run(self.renewal.current_token())

    def replace_refused(self, refused: str) -> HeldToken:
        return self.run(self.renewal.replace_refused(refused))

    def run(self, flow: Flow[HeldToken]) -> HeldToken:
        return self._driver.run(flow)

    def on_wait(self, act: Callable[[float], None]) -> None:
        """Call this instead of waiting."""
        self._driver.sleep = act

    def close(self) -> None:
        self._driver.close()


def token_file(folder: Path, partner: Partner) -> TokenFile:
    """Return the file that FileStore(folder=folder) has for this partner."""
    return FileStore(folder=folder).of(partner.service.base_url, partner.key.client_id)


class WorkerProcess:
    """A client in its own process (see renewal_process.py), which waits for `start_calling`."""

    def __init__(self, partner: Partner, folder: Path, kind: str, **options: Any) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-W", "error", WORKER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        options_of_process = {"kind": kind, "access": partner.access, "folder": str(folder), "options": options}
        self._send_line(json.dumps(options_of_process))
        self._expect_line("ready")

    def start_calling(self) -> None:
        """Let the process make calls until it is stopped."""
        self._send_line("null")

    def wait_for_first_call(self) -> None:
        """Wait until the first call was answered."""
        self._expect_line("called")

    def call(self) -> None:
        """Let the process make one call. May be repeated."""
        self._send_line("1")

    def wait_for_call(self) -> None:
        """Wait until that call was answered."""
        self._expect_line("called")
        self._expect_line("made 1 0")

    def kill(self) -> None:
        """Kill the process with SIGKILL. May be repeated."""
        self._process.kill()
        self._process.communicate()

    def stop(self) -> tuple[int, int]:
        """Stop the process, and return how many of its calls were answered and refused."""
        out, err = self._process.communicate(timeout=PATIENCE_S)
        assert self._process.returncode == 0, err
        answered, refused = out.rpartition("made ")[2].split()
        return int(answered), int(refused)

    def _expect_line(self, word: str) -> None:
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == f"{word}\n", self._process.communicate()

    def _send_line(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()


@contextlib.contextmanager
def running_workers(*workers: WorkerProcess) -> Iterator[list[WorkerProcess]]:
    """Kill these processes at the end of the block, if they still run."""
    running = list(workers)
    try:
        yield running
    finally:
        for process in running:
            process.kill()
