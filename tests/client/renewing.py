"""What tests of renewal look at and do: the server's own rows, flows that are run alone, and processes that renew."""

import asyncio
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
from tests.builders import ADMINISTRATOR, opened
from tests.client.partners import Partner

PATIENCE_S = 60.0
WORKER = Path(__file__).with_name("renewing_worker.py")


class Rows:
    """What the server has stored of one key's tokens."""

    def __init__(self, partner: Partner) -> None:
        self._url, self._client_id = partner.service.place.database_url, partner.key.client_id

    @property
    def given(self) -> int:
        """How many token requests were answered with tokens."""
        return self._count("SELECT COUNT(*) FROM token_pairs WHERE client_id = ?")

    @property
    def refreshed(self) -> int:
        """How many of them by a refresh token."""
        return self._count("SELECT COUNT(*) FROM token_pairs WHERE client_id = ? AND rotated_from IS NOT NULL")

    @property
    def alarms(self) -> int:
        """How often a refresh token was presented a second time."""
        return self._count("SELECT COUNT(*) FROM audit WHERE target = ? AND action = 'client.reuse_alarm'")

    def expire(self) -> None:
        """All access tokens that were given so far have expired."""
        with self._opened() as database, database:
            database.execute("UPDATE token_pairs SET access_expires_ms = 0 WHERE client_id = ?", (self._client_id,))

    def revoke(self) -> None:
        """All tokens that were given so far are revoked, as by `stoplist key revoke-tokens`."""
        asyncio.run(_revoke(self._url, self._client_id))

    def _count(self, statement: str) -> int:
        with self._opened() as database:
            return int(database.execute(statement, (self._client_id,)).fetchone()[0])

    def _opened(self) -> contextlib.closing[sqlite3.Connection]:
        return contextlib.closing(sqlite3.connect(self._url.removeprefix("sqlite:///"), timeout=PATIENCE_S))


async def _revoke(url: str, client_id: str) -> None:
    async with opened(url) as database:
        await revoke_tokens(ADMINISTRATOR, database, Clock(), client_id=client_id)


class SetWorld(Environment):
    """A clock that goes wrong by `off_s`, and no chance."""

    def __init__(self) -> None:
        self.off_s = 0.0

    def now_s(self) -> float:
        return super().now_s() + self.off_s

    def jitter(self) -> float:
        return 0.0


class Worker:
    """One that renews, as far as it can be told from others: its own connections and memory, and a shared store."""

    def __init__(self, partner: Partner, store: Any, *, base_url_of_way: str | None = None, **options: Any) -> None:
        self.pauses: list[float] = []
        self.environment = SetWorld()
        known: dict[str, Any] = {
            # Tokens belong to the service, whichever way leads there.
            "base_url": partner.service.base_url,
            "client_id": partner.key.client_id,
            "client_secret": partner.key.secret,
            "store": store,
            "environment": self.environment,
            "attempts": 3,
        }
        self.renewal = Renewal(**(known | options))
        way = base_url_of_way or partner.service.base_url
        self._driver = Driver(wire.options(way, ca_file=partner.service.ca_file, timeout_s=PATIENCE_S))
        self._driver.sleep = self.pauses.append

    def current_token(self) -> HeldToken:
        return self.run(self.renewal.current_token())

    def replace_refused(self, refused: str) -> HeldToken:
        return self.run(self.renewal.replace_refused(refused))

    def run(self, flow: Flow[HeldToken]) -> HeldToken:
        return self._driver.run(flow)

    def wait_with(self, act: Callable[[float], None]) -> None:
        """Whenever a flow waits this happens instead."""
        self._driver.sleep = act

    def close(self) -> None:
        self._driver.close()


def token_file(folder: Path, partner: Partner) -> TokenFile:
    """The file that FileStore(folder=folder) has for this partner."""
    return FileStore(folder=folder).of(partner.service.base_url, partner.key.client_id)


class Process:
    """A client at work in a process of its own; see renewing_worker.py. It begins when it is told to `go`."""

    def __init__(self, partner: Partner, folder: Path, kind: str, **options: Any) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-W", "error", WORKER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        told = {"kind": kind, "access": partner.access, "folder": str(folder), "options": options}
        self._tell(json.dumps(told))
        self._hear("ready")

    def go(self) -> None:
        """It calls and calls until it is told to stop."""
        self._tell("null")

    def has_called(self) -> None:
        """Returns once its first call was answered."""
        self._hear("called")

    def call(self) -> None:
        """It makes one call; may be repeated."""
        self._tell("1")

    def has_made_its_call(self) -> None:
        """Returns once that was answered."""
        self._hear("called")
        self._hear("made 1 0")

    def kill(self) -> None:
        """kill -9. May be repeated."""
        self._process.kill()
        self._process.communicate()

    def stop(self) -> tuple[int, int]:
        """Told to stop, it ends without an error; how many calls since `go` were answered, and how many refused."""
        out, err = self._process.communicate(timeout=PATIENCE_S)
        assert self._process.returncode == 0, err
        answered, refused = out.rpartition("made ")[2].split()
        return int(answered), int(refused)

    def _hear(self, word: str) -> None:
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == f"{word}\n", self._process.communicate()

    def _tell(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()


@contextlib.contextmanager
def processes(*made: Process) -> Iterator[list[Process]]:
    """They are killed at the end, if they still run."""
    running = list(made)
    try:
        yield running
    finally:
        for process in running:
            process.kill()
