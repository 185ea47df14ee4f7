"""Two servers on two databases, while servers are killed, and each database is stopped and crashes.

Nothing that was acknowledged is lost. Every change of a feed that needs an entry in the audit, or a notice, has exactly
one, and every entry and notice has its change. Source: docs/interface.md section D1, Feeds apart.
"""

import asyncio
import contextlib
import itertools
import random
import re
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from stoplist.databases import moving
from stoplist.db import Database
from stoplist.db.split import SplitDatabase
from stoplist.lists.imports import model
from stoplist.proof.feed_states import compare_states
from stoplist.web.admin.cookies import NAME
from tests.builders import opened, sql, value
from tests.cli.test_import_faults import write_list
from tests.constants import HIGH_LIMIT, PATIENCE_S
from tests.e2e import load
from tests.e2e.conftest import postgresql_installation, run_first
from tests.e2e.invariants import check_records
from tests.e2e.partner_programs import BACK_OFF_S, PACE_S, wait_until
from tests.e2e.partners import Acts, Follower, Writer, new_token
from tests.e2e.server_process import Installation, RunningServer
from tests.e2e.test_import_takeover import session
from tests.e2e.under_load import TURNS, own_cluster
from tests.keys import EVERY_PERMISSION, Key
from tests.server.serving import RawConnection
from tests.services import postgresql as services
from tests.time_limits import setting_constants

pytestmark = pytest.mark.slow

PARTNER, STAFF, IMPORTER = "acme", "bolt", "calm"
"""Organizations, whose opt-outs come from a partner, from people on the pages, and from a file."""
SIZES = (1, 50, 300)
REVERSED_AT_ONCE = 3
ROWS = 8_000
_BROKEN = (*load.BROKEN, httpx.TransportError)

# Entries take long to be moved, so that many are under way when something ends. The import lasts as long as things
# break, and is taken over at once.
_SLOW = (
    setting_constants({(model, "LEASE_MS"): 3_000, (moving, "ENTRIES_AT_ONCE"): 2})
    + """
    import asyncio
    from stoplist.lists.imports.part_reader import PartReader
    PartReader.__init__.__kwdefaults__["rows"] = 100
    next_part, take = PartReader.next_part, stoplist.databases.moving._take
    async def next_part_later(reader):
        await asyncio.sleep(0.2)
        return await next_part(reader)
    async def take_slowly(*values):
        await asyncio.sleep(0.02)
        await take(*values)
        await asyncio.sleep(0.02)
    PartReader.next_part = next_part_later
    stoplist.databases.moving._take = take_slowly
"""
)


class TwoClusters(NamedTuple):
    """An installation whose accounts and feeds are on PostgreSQL servers of their own."""

    installation: Installation
    accounts: services.Cluster
    feeds: services.Cluster


@pytest.fixture
def deployment(tmp_path: Path, pytestconfig: pytest.Config) -> Iterator[TwoClusters]:
    with own_cluster(pytestconfig) as accounts, own_cluster(pytestconfig) as feeds:
        installation = postgresql_installation(
            tmp_path, accounts.fresh_database(), FEEDS_URL=feeds.fresh_database(), LOG_FORMAT="json"
        )
        installation.migrate(PARTNER, STAFF, IMPORTER)
        yield TwoClusters(run_first(_SLOW, installation), accounts, feeds)


class ReplacedServers:
    """Two servers, one of which serves at any time. A program goes to either, and connects anew when it is killed."""

    def __init__(self, installation: Installation) -> None:
        self._installation, self._running = installation, contextlib.ExitStack()
        self.current: list[RunningServer] = []
        self.killed: list[RunningServer] = []

    def __enter__(self) -> "ReplacedServers":
        self.current = [self._start() for _ in range(2)]
        return self

    def __exit__(self, *_: object) -> None:
        self._running.close()

    def kill(self, number: int) -> None:
        """Kill one of them, and start another in its place."""
        self.current[number].kill()
        self.killed.append(self.current[number])
        self.current[number] = self._start()

    def _start(self) -> RunningServer:
        return self._running.enter_context(self._installation.serving())


Step = Callable[[], Awaitable[bool]]


class PersistentPrograms:
    """Programs of partners and people with browsers. Each repeats what it got no answer to."""

    def __init__(
        self, servers: ReplacedServers, keys: dict[str, Key], session_token: str, *, import_file: Path
    ) -> None:
        self._servers, self._keys, self._import_file = servers, keys, import_file
        self._browser = httpx.AsyncClient(
            cookies={NAME: session_token},
            headers={"sec-fetch-site": "same-origin"},
            verify=servers.current[0].tls,
            timeout=PATIENCE_S,
            trust_env=False,
        )
        acts = Acts()
        self.writers = [Writer(number, size, acts) for number, size in enumerate(SIZES)]
        self.follower = Follower("email", 1_000)
        self.statuses: Counter[int] = Counter()
        self.successes: Counter[str] = Counter()
        self.entered: list[str] = []
        self.erased: list[str] = []
        self.import_path = ""
        self._numbers = itertools.count()
        self._is_over = False

    @contextlib.asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        """Run all programs within this context; then each finishes what it has begun."""
        programs: dict[str, Callable[[], Coroutine[Any, Any, None]]] = {
            "follow": lambda: self._as_partner("follow", PARTNER, self._follow),
            "look up": lambda: self._as_partner("look up", PARTNER, self._look_up),
            **{
                f"submit {writer_size}": self._submitter(f"submit {writer_size}", writer)
                for writer_size, writer in zip(SIZES, self.writers, strict=True)
            },
            "enter": lambda: self._as_person("enter", self._enter),
            "reverse": lambda: self._as_person("reverse", self._reverse),
            "erase": lambda: self._as_person("erase", self._erase),
        }
        async with self._browser, asyncio.TaskGroup() as group:
            await self._import()
            self.successes.update(dict.fromkeys(programs, 0))
            for run in programs.values():
                group.create_task(run())
            try:
                yield
            finally:
                self._is_over = True

    async def wait_for_successes(self, more: int = TURNS) -> None:
        """Wait until every program has succeeded so many times more."""
        goal = {name: successes + more for name, successes in self.successes.items()}
        await wait_until(
            lambda: all(self.successes[name] >= least for name, least in goal.items()), lambda: str(self.successes)
        )

    async def wait_for_refusals(self, more: int = 20) -> None:
        """Wait until the servers have answered 503 so many times more."""
        goal = self.statuses[503] + more
        await wait_until(lambda: self.statuses[503] >= goal, lambda: str(self.statuses))

    def _server(self) -> RunningServer:
        return random.choice(self._servers.current)  # noqa: S311

    # A partner

    async def _as_partner(
        self,
        name: str,
        organization: str,
        act: Callable[[RawConnection, str], Awaitable[int]],
        *,
        is_open: Step | None = None,
    ) -> None:
        """Repeat the act, over a new connection with a new token once that is broken, until it is over."""
        while not self._is_over or (is_open is not None and await is_open()):
            with contextlib.suppress(*_BROKEN):
                async with load.connection(self._server()) as line:
                    token = await self._token(line, organization)
                    while token and (not self._is_over or (is_open is not None and await is_open())):
                        status = await act(line, token)
                        self._note(status)
                        self.successes[name] += status == 200
                        await asyncio.sleep(PACE_S if status == 200 else BACK_OFF_S)
            await asyncio.sleep(BACK_OFF_S)

    async def _token(self, line: RawConnection, organization: str) -> str:
        """Return a token for the partner of the organization; an empty one if there is none now."""
        answer = await load.send_once(line, load.issue(self._keys[organization]))
        return answer.json()["access_token"] if self._note(answer.status) == 200 else ""

    def _submitter(self, name: str, writer: Writer) -> Callable[[], Coroutine[Any, Any, None]]:
        async def act(line: RawConnection, token: str) -> int:
            writer.repeat_unanswered()
            answer = await load.send_once(line, load.submit(token, "email", writer.batch()))
            if answer.status == 200:
                writer.accept_answer(answer)
            return answer.status

        async def is_open() -> bool:
            return writer.is_unanswered

        return lambda: self._as_partner(name, PARTNER, act, is_open=is_open)

    async def _follow(self, line: RawConnection, token: str) -> int:
        answer = await load.send_once(line, self.follower.request(token))
        if answer.status == 200:
            self.follower.take(answer.json())
        return answer.status

    async def _look_up(self, line: RawConnection, token: str) -> int:
        address = next(filter(None, (writer.opted_out for writer in self.writers)), "nobody@example.org")
        answer = await load.send_once(line, load.look_up(token, "email", address))
        if answer.status == 200 and address != "nobody@example.org":
            assert [record["address"] for record in answer.json()["items"]] == [address]
        return answer.status

    # People on the pages

    async def _as_person(self, name: str, act: Callable[[], Awaitable[None]]) -> None:
        while not self._is_over:
            await act()
            self.successes[name] += 1
            await asyncio.sleep(PACE_S)

    async def _enter(self) -> None:
        address = f"entered-{next(self._numbers)}@example.org"
        form = {
            "address": address,
            "group_id": "all",
            "reason": "manual",
            "stated_reason": "A letter",
            "occurred_at": "",
        }
        await self._post(f"/unsubscribes/{STAFF}/email/add", form)
        self.entered.append(address)

    async def _reverse(self) -> None:
        submission_id, _ = await self._submitted()
        counts = {"restored": "0", "corrected": str(REVERSED_AT_ONCE), "superseded": "0", "confirmed": "0"}
        await self._post(f"/unsubscribes/{submission_id}/reverse", counts)

    async def _erase(self) -> None:
        _, (address, *_) = await self._submitted()
        form = {"address": address, "channel": "email", "where": STAFF, "word": "erase", "all_upgraded": "yes"}
        await self._post("/unsubscribes/erase", form)
        self.erased.append(address)

    async def _submitted(self) -> tuple[str, list[str]]:
        """Opt new people out as a partner; return the id of the submission, and the addresses."""
        while True:
            number = next(self._numbers)
            people = [f"sent-{number}-{person}@example.org" for person in range(REVERSED_AT_ONCE)]
            with contextlib.suppress(*_BROKEN):
                async with load.connection(self._server()) as line:
                    token = await self._token(line, STAFF)
                    items = [{"address": address} for address in people]
                    answer = await load.send_once(line, load.submit(token, "email", items)) if token else None
                    if answer is not None and self._note(answer.status) == 200:
                        return answer.json()["submission_id"], people
            await asyncio.sleep(BACK_OFF_S)

    async def _post(self, path: str, form: dict[str, str]) -> httpx.Response:
        """Post a form until there is an answer. What was stored without an answer is refused, or changes nothing."""
        while True:
            with contextlib.suppress(*_BROKEN):
                answer = await self._browser.post(f"{self._server().base_url}{path}", data=form)
                self._note(answer.status_code)
                if answer.status_code != 503:
                    return answer
            await asyncio.sleep(BACK_OFF_S)

    async def _import(self) -> None:
        """Upload, check and start a file, which the servers work on from now on."""
        base_url = self._server().base_url
        path = f"{base_url}/unsubscribes/{IMPORTER}/email/import"
        files = {"file": (self._import_file.name, self._import_file.read_bytes())}
        sent = await self._browser.post(path, data={"target": "all"}, files=files)
        assert sent.status_code == 303, sent.text
        here = self.import_path = sent.headers["location"]
        await self._browser.post(f"{base_url}{here}/options", data={"target": "all", "check": "yes"})
        checked = None
        while checked is None:
            await asyncio.sleep(BACK_OFF_S)
            shown = await self._browser.get(f"{base_url}{here}")
            checked = re.search(r'name="checked" value="(\d+)"', shown.text)
        started = await self._browser.post(f"{base_url}{here}/start", data={"checked": checked[1]})
        assert started.status_code == 303, started.text

    def _note(self, status: int) -> int:
        self.statuses[status] += 1
        assert status in (200, 303, 400, 409, 422, 503), status
        return status


# What breaks


async def kill_each_server(deployment: TwoClusters, servers: ReplacedServers, programs: PersistentPrograms) -> None:
    for number in (0, 1):
        await asyncio.to_thread(servers.kill, number)
        await programs.wait_for_successes(1)


async def stop_accounts(deployment: TwoClusters, servers: ReplacedServers, programs: PersistentPrograms) -> None:
    await _stop(deployment.accounts, programs)


async def stop_feeds(deployment: TwoClusters, servers: ReplacedServers, programs: PersistentPrograms) -> None:
    await _stop(deployment.feeds, programs)


async def crash_accounts(deployment: TwoClusters, servers: ReplacedServers, programs: PersistentPrograms) -> None:
    await asyncio.to_thread(deployment.accounts.kill)
    await _stop(deployment.accounts, programs)


async def crash_feeds(deployment: TwoClusters, servers: ReplacedServers, programs: PersistentPrograms) -> None:
    await asyncio.to_thread(deployment.feeds.kill)
    await _stop(deployment.feeds, programs)


async def _stop(cluster: services.Cluster, programs: PersistentPrograms) -> None:
    await asyncio.to_thread(cluster.stop)
    await programs.wait_for_refusals()
    await asyncio.to_thread(cluster.start)


FAULTS = (kill_each_server, stop_accounts, stop_feeds, crash_accounts, crash_feeds, kill_each_server)


def test_each_act_has_its_entry_and_each_entry_its_act(deployment: TwoClusters, tmp_path: Path) -> None:
    installation, file = deployment.installation, tmp_path / "list.csv"
    write_list(file, range(ROWS), random.Random(1))  # noqa: S311
    keys = {
        organization: installation.new_key(per_minute=HIGH_LIMIT, may=EVERY_PERMISSION, organization=organization)
        for organization in (PARTNER, STAFF)
    }
    session_token = asyncio.run(session(installation.database_url))

    async def body() -> PersistentPrograms:
        programs = PersistentPrograms(servers, keys, session_token, import_file=file)
        async with programs.run():
            await programs.wait_for_successes()
            for fault in random.sample(FAULTS, len(FAULTS)):
                await fault(deployment, servers, programs)
                await programs.wait_for_successes()
        async with load.connection(servers.current[0]) as line:
            await programs.follower.read_all(line, await new_token(line, load.issue(keys[PARTNER])))
        return programs

    with ReplacedServers(installation) as servers:
        programs = asyncio.run(body())
        asyncio.run(_check(installation, programs))
    for server in (*servers.current, *servers.killed):
        assert [line for line in server.log.lines if line["level"] == "error"] == []


async def _check(installation: Installation, programs: PersistentPrograms) -> None:
    async with opened(installation.database_url, pool_size=2) as database:
        assert isinstance(database, SplitDatabase)
        await _wait_until_moved(database, programs.import_path.rpartition("/")[2])
        await check_records(database, programs.writers, organization=PARTNER)
        compared = await compare_states(database)
        assert (compared.differing, compared.open) == ([], 0)
        known = {row["address"] for row in await database.all(sql("SELECT address FROM unsubscribes"))}
        assert set(programs.entered) <= known
        assert not set(programs.erased) & known
        assert programs.follower.records
        needed, noticed = await _needed(database)
        assert await _counted(database, _AUDIT) == needed
        assert await _counted(database, _NOTICES) == noticed


async def _wait_until_moved(database: Database, import_id: str) -> None:
    """Wait until the import has ended, and the servers have moved all entries."""
    import_state = "SELECT state FROM imports WHERE import_id = :import_id"
    async with asyncio.timeout(PATIENCE_S):
        while await value(database, import_state, import_id=import_id) != "done":  # noqa: ASYNC110
            await asyncio.sleep(BACK_OFF_S)
        while await value(database, "SELECT COUNT(*) FROM feed_outbox"):  # noqa: ASYNC110
            await asyncio.sleep(BACK_OFF_S)


# The tables row by row

_CHANGES = """
    SELECT s.submission_id, (
        SELECT r.submission_id FROM reversals r WHERE r.feed_id = s.feed_id AND r.reversed_by = s.submission_id
    ) AS reverses, (
        SELECT COUNT(*) FROM erasures e WHERE e.feed_id = s.feed_id AND e.seq = s.first_seq AND e.kind = 'erased'
    ) AS erases
    FROM submissions s WHERE s.actor_kind = 'person' AND NOT EXISTS (
        SELECT 1 FROM import_parts p WHERE p.feed_id = s.feed_id AND p.submission_id = s.submission_id)"""
_IMPORTS = "SELECT import_id FROM imports WHERE feed_id > 0"
_AUDIT = """
    SELECT action, target FROM audit a WHERE action IN (
        'unsubscribe.by_hand', 'submission.reverse', 'person.erase', 'upload.complete', 'import.begin', 'import.end'
    ) AND EXISTS (SELECT 1 FROM audit_organizations o WHERE o.audit_id = a.audit_id)"""
_NOTICES = "SELECT kind, subject FROM notices"

Row = tuple[str, str]


async def _needed(database: Database) -> tuple[Counter[Row], Counter[Row]]:
    """Return what the changes need: entries of the audit, by action and target, and notices, by kind and subject."""
    entries, notices = Counter[Row](), Counter[Row]()
    for row in await database.all(sql(_CHANGES)):
        if row["reverses"] is not None:
            entries["submission.reverse", row["reverses"]] += 1
            notices["reversal.ended", row["reverses"]] += 1
        elif row["erases"]:
            entries["person.erase", row["submission_id"]] += 1
            notices["person.erased", row["submission_id"]] += 1
        else:
            entries["unsubscribe.by_hand", row["submission_id"]] += 1
    for row in await database.all(sql(_IMPORTS)):
        entries.update((action, row["import_id"]) for action in ("upload.complete", "import.begin", "import.end"))
        notices["import.ended", row["import_id"]] += 1
    assert len({action for action, _ in entries}) == 6, "every kind of change was made"
    return entries, notices


async def _counted(database: Database, text: str) -> Counter[Row]:
    return Counter((row[0], row[1]) for row in await database.all(sql(text)))
