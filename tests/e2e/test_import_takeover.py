"""Imports by page on two real servers, one of which is killed: another goes on, and no row is lost or taken twice.

`make import-kills` kills them two hundred times in 300 000 rows. Source: docs/interface.md section D12, On the pages.
"""

import asyncio
import os
import random
import re
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from stoplist.actor import Actor
from stoplist.clock import Clock
from stoplist.lists.imports import model
from stoplist.staff.links import use_link
from stoplist.staff.model import SignedIn, StaffStores
from stoplist.staff.people import create_person
from stoplist.web.admin.cookies import NAME
from tests.builders import ADMINISTRATOR, opened
from tests.cli.test_import_faults import assert_each_row_is_in_one_submission, counts_of, states, write_list
from tests.constants import PATIENCE_S
from tests.e2e.conftest import postgresql_installation, run_first
from tests.e2e.server_process import Installation, RunningServer
from tests.services.postgresql import PostgresqlServer
from tests.time_limits import setting_constants

# The result does not depend on the interpreter.
pytestmark = pytest.mark.slow

KILLS = int(os.environ.get("TEST_IMPORT_KILLS", "6"))
ROWS = int(os.environ.get("TEST_IMPORT_ROWS", "10000"))
STALLED_ROWS = 5_000
# A short lease, so that no kill has to be followed by a minute. Many small parts with pauses, so that the import is not
# over before a busy machine kills anything.
_SMALL_PARTS = (
    setting_constants({(model, "LEASE_MS"): 3_000})
    + """
    import asyncio
    from stoplist.lists.imports.part_reader import PartReader
    PartReader.__init__.__kwdefaults__["rows"] = 250
    at_once = PartReader.next_part
    async def pause(reader):
        await asyncio.sleep(0.05)
        return await at_once(reader)
    PartReader.next_part = pause
"""
)
# The second file that a server reads is imported, after it was checked: there the third part does not arrive, nor if
# this server takes the import over again, because it was too busy to renew its lease.
_STALLS = (
    _SMALL_PARTS
    + """
    parts = {}
    async def stall(reader):
        parts[reader] = parts.get(reader, 0) + 1
        if list(parts).index(reader) >= 1 and parts[reader] == 3:
            await asyncio.Event().wait()
        return await pause(reader)
    PartReader.next_part = stall
"""
)


class ImportingAdministrator:
    """An administrator who imports on the pages of one server after the other."""

    def __init__(self, installation: Installation) -> None:
        self._cookies = {NAME: asyncio.run(session(installation.database_url))}

    def start(self, server: RunningServer, slug: str, file: Path) -> str:
        """Upload, check and start; return the id of the import."""
        with self._browser(server) as browser:
            path = f"/unsubscribes/{slug}/email/import"
            sent = browser.post(path, data={"target": "all"}, files={"file": (file.name, file.read_bytes())})
            assert sent.status_code == 303, sent.text
            here = sent.headers["location"]
            browser.post(f"{here}/options", data={"target": "all", "check": "yes"})
            checked = wait_for(lambda: re.search(r'name="checked" value="(\d+)"', browser.get(here).text))
            started = browser.post(f"{here}/start", data={"checked": checked[1]})
            assert started.status_code == 303, started.text
        return str(here.rpartition("/")[2])

    @contextmanager
    def _browser(self, server: RunningServer) -> Iterator[httpx.Client]:
        with server.client(cookies=self._cookies, headers={"sec-fetch-site": "same-origin"}) as browser:
            yield browser


async def session(url: str) -> str:
    """Sign a new administrator in; return the token of the session."""
    async with opened(url) as database:
        clock = Clock()
        made = await create_person(ADMINISTRATOR, database, clock, email="root@people.example", is_administrator=True)
        stores = StaffStores(database, clock, ())
        anybody = Actor(kind="person", id="", source_ip="192.0.2.1")
        done = await use_link(
            anybody, stores, link_token=made.link_token, password="four words nobody said", user_agent="a test"
        )
        assert isinstance(done, SignedIn)
        return done.session_token


def stored(installation: Installation, import_id: str, column: str) -> Any:
    """Return what is stored of an import, long before a command could tell it, and without a process of its own."""
    query = f"SELECT {column} FROM imports WHERE import_id = '{import_id}'"  # noqa: S608
    return PostgresqlServer(installation.database_url).value(query)


def wait_for(ask: Any) -> Any:
    """Ask until there is an answer."""
    end_s = time.monotonic() + PATIENCE_S
    while not (found := ask()):
        assert time.monotonic() < end_s
        time.sleep(0.05)
    return found


def prepared(tmp_path: Path, url: str) -> Installation:
    installation = postgresql_installation(tmp_path, url)
    installation.ok("migrate")
    return installation


def test_a_host_that_dies_is_replaced(tmp_path: Path, postgresql_url: str) -> None:
    """The other server finishes the import, without anybody doing anything."""
    installation = prepared(tmp_path, postgresql_url)
    run_first(_STALLS, installation)
    installation.ok("org", "create", "acme", "--name", "Acme")
    file = tmp_path / "list.csv"
    write_list(file, range(STALLED_ROWS), random.Random(1))  # noqa: S311

    def show(import_id: str) -> Any:
        return installation.json("import", "show", import_id)

    with ExitStack() as running:
        first = running.enter_context(installation.serving())
        import_id = ImportingAdministrator(installation).start(first, "acme", file)
        wait_for(lambda: stored(installation, import_id, "row_count"))
        first.kill_processes()
        assert show(import_id)["state"] == "running"
        run_first(_SMALL_PARTS, installation)
        second = running.enter_context(installation.serving())
        wait_for(lambda: stored(installation, import_id, "state") == "done")
        assert second.process.poll() is None
    assert show(import_id)["rows"] == STALLED_ROWS


def test_kills_of_servers_lose_and_double_nothing(tmp_path: Path, postgresql_url: str) -> None:
    """Records and counts are those of an undisturbed import, row by row, and each row is in exactly one submission."""
    installation, chance = prepared(tmp_path, postgresql_url), random.Random()  # noqa: S311
    run_first(_SMALL_PARTS, installation)
    file = tmp_path / "list.csv"
    addresses = write_list(file, range(ROWS), chance)
    installation.ok("org", "create", "calm", "--name", "calm")
    target = ("--org", "calm", "--channel", "email", "--all-groups")
    calm = installation.json("import", "run", str(file), *target, "--yes")
    importer, kills, number = ImportingAdministrator(installation), 0, 0
    with ExitStack() as running:
        servers = [running.enter_context(installation.serving()) for _ in range(2)]
        while kills < KILLS:
            number += 1
            slug = f"killed-{number}"
            installation.ok("org", "create", slug, "--name", slug)
            import_id = importer.start(servers[0], slug, file)
            while stored(installation, import_id, "state") == "running":
                time.sleep(chance.uniform(0, 1))
                if kills < KILLS:
                    victim = chance.randrange(2)
                    servers[victim].kill()
                    kills += 1
                    servers[victim] = running.enter_context(installation.serving())
            found = installation.json("import", "show", import_id)
            assert counts_of(found) == counts_of(calm)
            assert states(installation.database_url, slug) == states(installation.database_url, "calm")
            assert_each_row_is_in_one_submission(installation.database_url, import_id, slug, addresses)
