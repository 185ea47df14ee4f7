"""The previous release and this one serve side by side under load, there and back; the first erasure ends the way back.

Source: docs/interface.md section D1, Schema, and section D13.
"""

import asyncio
import contextlib
import itertools
import json
import re
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

import pyotp
import pytest

from stoplist.oauth.model import PERMISSIONS
from tests import releases
from tests.builders import NEWEST
from tests.conftest import needed
from tests.e2e import load
from tests.e2e.conftest import own_limits_url, postgresql_installation
from tests.e2e.partners import Acts, Follower, read_feed
from tests.e2e.server_process import Installation, RunningServer
from tests.keys import Key
from tests.releases import Held
from tests.server.serving import RawConnection, WireAnswer
from tests.services import revisions
from tests.services.valkey import Valkey

REQUESTS = 10_000
PARTNERS = 8
# A partner makes seven requests a round. The rounds of the phases: before, side by side, this release alone, back.
ROUNDS = (30, 45, 30, 30)
BATCH = 150
"""Heavier than the drivers' limit of small units."""

pytestmark = pytest.mark.slow


class _Fleet:
    """The servers that a balancer would have at this moment, of either release."""

    def __init__(self) -> None:
        self.servers: list[RunningServer] = []
        self._turns = itertools.count()

    def next_server(self) -> RunningServer:
        return self.servers[next(self._turns) % len(self.servers)]


class _RoamingPartner:
    """Uses every operation in turn, each time at the next server with what the one before gave out."""

    def __init__(self, number: int, key: Key, fleet: _Fleet) -> None:
        self.key = key
        self._number, self._fleet = number, fleet
        self._acts, self._follower = Acts(), Follower("email", 1_000)
        self._lines: dict[int, RawConnection] = {}
        self.rounds = self.requests = 0
        self.is_over = False
        self.stored: dict[str, str] = {}

    async def work(self) -> None:
        while not self.is_over:
            await self._round()
            self.rounds += 1

    async def _round(self) -> None:
        pair = (await self._send(load.issue(self.key))).json()
        pair = (await self._send(load.refresh(pair["refresh_token"]))).json()
        token = pair["access_token"]
        new, again = f"p{self._number}-{self.rounds}@example.org", f"again{self._number}@example.org"
        status = ("unsubscribed", "resubscribed")[self.rounds % 2]
        many = [f"{number}.{new}" for number in range(BATCH)] if self.rounds % 20 == 0 else []
        for addresses, wanted in (([new, *many], "unsubscribed"), ([again], status)):
            acted = self._acts.next()
            items = [{"address": address, "status": wanted, "occurred_at": acted} for address in addresses]
            await self._send(load.submit(token, "email", items))
            self.stored |= dict.fromkeys(addresses, wanted)
        for address in (new, again):
            found = (await self._send(load.look_up(token, "email", address))).json()["items"]
            assert [record["status"] for record in found] == [self.stored[address]]
        page = (await self._send(self._follower.request(token))).json()
        self._follower.take({"state": None, **page})  # release 0.1.0 tells no state

    async def _send(self, request: bytes) -> WireAnswer:
        server = self._fleet.next_server()
        line = self._lines.get(server.port)
        if line is None:
            line = self._lines[server.port] = await load.connect(server)
        answer = await load.send_once(line, request)
        assert answer.status == 200, (server.port, answer.body)
        self.requests += 1
        return answer

    def hang_up(self) -> None:
        for line in self._lines.values():
            line.writer.transport.abort()


class _Load:
    """The partners at work."""

    def __init__(self, partners: Sequence[_RoamingPartner]) -> None:
        self._partners = partners
        self._tasks = [asyncio.create_task(one.work()) for one in partners]

    async def run(self, rounds: int) -> None:
        """Let every partner finish so many more rounds; a request that fails ends the test."""
        until = [one.rounds + rounds for one in self._partners]
        await load.run_until(
            self._tasks, lambda: all(one.rounds >= least for one, least in zip(self._partners, until, strict=True))
        )

    async def meanwhile(self, blocking: Callable[[], object]) -> None:
        """Do something that blocks while the partners work on."""
        await asyncio.gather(asyncio.to_thread(blocking), self.run(1))

    async def stop(self) -> None:
        """Let every partner finish its round, so that it knows of all that it sent whether it is stored."""
        for one in self._partners:
            one.is_over = True
        ended = await asyncio.gather(*self._tasks, return_exceptions=True)
        for one in self._partners:
            one.hang_up()
        for failure in filter(None, ended):
            raise failure


@contextlib.asynccontextmanager
async def _load(partners: Sequence[_RoamingPartner]) -> AsyncIterator[_Load]:
    load = _Load(partners)
    try:
        yield load
    finally:
        await load.stop()


@pytest.fixture(scope="module", params=revisions.RELEASES)
def previous(request: pytest.FixtureRequest) -> Path:
    """Return the `stoplist` command of a released version, installed from the history of this checkout."""
    with needed(request.config, "beside an earlier release"):
        _, command = revisions.build(revisions.RELEASES[request.param])
    return command


@pytest.fixture
def installation(tmp_path: Path, empty_postgresql_url: str, valkey: Valkey) -> Installation:
    """Return an installation on PostgreSQL and a limit store that the processes of both releases share."""
    return postgresql_installation(tmp_path, empty_postgresql_url, LIMITS_URL=own_limits_url(valkey))


def test_both_releases_serve_side_by_side_and_back(installation: Installation, previous: Path) -> None:
    """No request of 10 000 fails, from before the migration until the older release serves alone again.

    Tokens, refresh tokens and cursors go from one to the other; nothing stored by either is lost; after the first
    erasure the older release refuses to start.
    """
    older = installation.with_command(previous)
    older.ok("migrate")
    fleet = _Fleet()
    with contextlib.ExitStack() as running:
        fleet.servers = [running.enter_context(older.serving()) for _ in range(2)]
        partners = [_RoamingPartner(number, _new_key(older), fleet) for number in range(PARTNERS)]
        asyncio.run(_upgrade_and_go_back(installation, older, fleet, partners, running))
        _assert_no_errors(fleet.servers)
    assert sum(one.requests for one in partners) >= REQUESTS
    stored = {address: status for one in partners for address, status in one.stored.items()}
    _assert_complete(installation, partners[0], stored)
    _erase(installation, older, next(iter(stored)))


async def _upgrade_and_go_back(
    installation: Installation,
    older: Installation,
    fleet: _Fleet,
    partners: Sequence[_RoamingPartner],
    running: contextlib.ExitStack,
) -> None:
    before, beside, alone, back = ROUNDS

    def start(which: Installation) -> RunningServer:
        return running.enter_context(which.serving())

    async with _load(partners) as work:
        await work.run(before)
        await work.meanwhile(lambda: installation.ok("migrate"))
        earlier = list(fleet.servers)
        await work.meanwhile(lambda: fleet.servers.append(start(installation)))
        await work.run(beside)
        await work.meanwhile(lambda: fleet.servers.append(start(installation)))
        fleet.servers = [one for one in fleet.servers if one not in earlier]
        await work.run(1)  # whatever was under way there is answered
        await work.meanwhile(lambda: _stop(earlier))
        await work.run(alone)
        later = list(fleet.servers)
        await work.meanwhile(lambda: fleet.servers.append(start(older)))
        await work.run(beside)
        fleet.servers = [one for one in fleet.servers if one not in later]
        await work.run(1)
        await work.meanwhile(lambda: _stop(later))
        await work.run(back)


def _new_key(older: Installation) -> Key:
    """Create a key, and its organization before the first, by the commands of the older release."""
    if not older.json("org", "list"):
        older.ok("org", "create", "acme", "--name", "Acme", "--default-group", "News")
    may = [word for permission in PERMISSIONS for word in ("--permission", permission)]
    made = older.json("key", "create", "--label", "partner", "--org", "acme", *may)
    older.ok("key", "limits", made["client_id"], "--token-per-minute", "1000000", "--api-per-minute", "1000000")
    return Key(made["client_id"], made["client_secret"])


def _stop(servers: Sequence[RunningServer]) -> None:
    for server in servers:
        assert server.terminate() == 0, server.log.text
    _assert_no_errors(servers)


def _assert_no_errors(servers: Sequence[RunningServer]) -> None:
    for server in servers:
        assert not [line for line in server.log.lines if line.get("level") == "error"], server.log.text


def _assert_complete(installation: Installation, partner: _RoamingPartner, stored: dict[str, str]) -> None:
    """The feed has all that was acknowledged, its state is right, and the schema is this release's."""
    assert installation.json("migrate")["schema_before"] == NEWEST
    with installation.serving() as server:
        feed = asyncio.run(read_feed(server, partner.key))
    assert feed.states, "the last page has a state"
    assert {record["address"]: record["status"] for record in feed.records.values()} == stored


def _erase(installation: Installation, older: Installation, address: str) -> None:
    """The first erasure has to be confirmed; afterwards the older release does nothing with the database."""
    erase = ("person", "erase", address, "--channel", "email", "--org", "acme", "--yes")
    assert "older process" in installation.refused(*erase)
    assert _schema_finding(older) == "ok"
    installation.ok(*erase, "--all-upgraded")
    assert _schema_finding(older) == "wrong"
    for command in ("serve", "migrate", "org list"):
        assert "0.2.0 or newer" in older.refused(*command.split())
    installation.ok("org", "list")


@pytest.fixture
def restored(tmp_path: Path) -> tuple[Installation, Held]:
    """Return an installation on the SQLite file of 0.1.0 that is kept."""
    installation = Installation(tmp_path)
    installation.data_dir.mkdir()
    held = releases.restore("0.1.0", installation.database_url)
    installation.variables["STOPLIST_SECRET_KEY"] = held.secret_key
    return installation, held


def test_on_sqlite_an_older_release_is_put_back(restored: tuple[Installation, Held], previous: Path) -> None:
    """The first start migrates and keeps a copy. Partners go on; people sign in at 0.1.0 by a recovery code alone."""
    installation, held = restored
    older = installation.with_command(previous)
    with installation.serving() as server:
        assert server.terminate() == 0
    assert list(installation.data_dir.glob("*before-0006*"))
    assert _schema_finding(older) == "ok"
    with older.serving() as server, server.client(headers={"sec-fetch-site": "same-origin"}) as client:
        form = {"grant_type": "refresh_token", "refresh_token": held.refresh_token}
        token = client.post("/oauth/token", data=form).raise_for_status().json()["access_token"]
        page = client.get(
            "/api/v1/unsubscribe/email", params={"cursor": held.cursor}, headers={"authorization": f"Bearer {token}"}
        )
        assert page.raise_for_status().json()["items"] == []
        asked = client.post(
            "/settings/sign-in", data={"email": held.email, "password": held.password}
        ).raise_for_status()
        ticket = re.search(r'name="ticket" value="([^"]+)"', asked.text)
        assert ticket is not None
        code = pyotp.TOTP(held.totp_secret).now()
        statuses = [
            client.post("/settings/sign-in/code", data={"ticket": ticket[1], "code": one}).status_code
            for one in (code, held.recovery_codes[0])
        ]
    assert statuses == [500, 303], "as docs/operate.md says"


def _schema_finding(older: Installation) -> str:
    """Return what `doctor` of the older release says of the schema."""
    findings = {one["check"]: one["status"] for one in json.loads(older.run("doctor", "--json").out)}
    return str(findings["schema"])
