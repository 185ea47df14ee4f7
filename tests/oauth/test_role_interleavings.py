"""The organizations that a key covers at the moment of a change decide who may change it, not those of the form.

On PostgreSQL every order of the statements of two changes is run; SQLite has a single writer.
"""

import functools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from stoplist.actor import ADMIN, Actor
from stoplist.clock import Clock
from stoplist.db import Database
from stoplist.db.postgresql import Postgresql
from stoplist.errors import Forbidden
from stoplist.oauth import credentials, replacement
from stoplist.oauth.credentials import Changes
from tests import interleaving
from tests.builders import ADMINISTRATOR, audit_rows, make_key, make_organization, migrated
from tests.fakes import FakeClock
from tests.interleaving import Order, Scheduler, Step, Work, open_scheduler

pytestmark = pytest.mark.slow

ZOE = Actor(kind="person", id="zoe@example.org", roles={"acme": ADMIN})
PAUSED_AT = ("lock_client", "credential", "organizations_of_client", "COMMIT", "ROLLBACK")

Change = Callable[[Actor, Database, Clock, str], Awaitable[Any]]
CHANGES: dict[str, Change] = {
    "deactivate": lambda actor, database, clock, client_id: credentials.deactivate_credential(
        actor, database, clock, client_id=client_id
    ),
    "rotate": lambda actor, database, clock, client_id: credentials.rotate_secret(
        actor, database, clock, client_id=client_id
    ),
    "replace": lambda actor, database, clock, client_id: replacement.replace_credential(
        actor, database, clock, client_id=client_id
    ),
    "update": lambda actor, database, clock, client_id: credentials.update_credential(
        actor, database, clock, client_id=client_id, changes=Changes(label="hers", organizations=["acme"])
    ),
}


class RoleScenario:
    """A scheduler, and the key that is changed."""

    def __init__(self, database: Database, clock: FakeClock, scheduler: Scheduler) -> None:
        self.database, self.clock, self.scheduler = database, clock, scheduler
        self.client_id = ""

    async def reset(self) -> None:
        """Create a key that covers only `acme`."""
        self.client_id = (await make_key(self.database, self.clock)).credential.client_id

    def changes(self, change: Change) -> Work:
        """Return a participant: an admin of `acme` changes the key, and returns whether this was allowed."""

        async def work(database: Postgresql) -> bool:
            try:
                await change(ZOE, database, self.clock, self.client_id)
            except Forbidden:
                return False
            return True

        return work

    async def widens(self, database: Postgresql) -> None:
        """Extend the key to `bolt`, as an administrator."""
        wider = Changes(organizations=["acme", "bolt"])
        await credentials.update_credential(
            ADMINISTRATOR, database, self.clock, client_id=self.client_id, changes=wider
        )


@asynccontextmanager
async def open_scenario(database_url: str) -> AsyncIterator[RoleScenario]:
    """Yield a scenario on an empty database, for the participants `zoe` and `other`."""
    clock = FakeClock()
    async with (
        migrated(database_url) as database,
        open_scheduler(database_url, "zoe", "other", is_paused=lambda step: step.what in PAUSED_AT) as scheduler,
    ):
        for slug in ("acme", "bolt"):
            await make_organization(database, clock, slug)
        yield RoleScenario(database, clock, scheduler)


in_every_order = functools.partial(interleaving.in_every_order, open_scenario)


@pytest.mark.parametrize("change", CHANGES)
@in_every_order(at_least=8)
async def test_an_admin_changes_a_key_only_while_it_is_theirs(
    scenario: RoleScenario, order: Order, change: str
) -> None:
    """Allowed if committed before the other organization was added, else Forbidden without a trace."""
    run_result = await scenario.scheduler.run(order, zoe=scenario.changes(CHANGES[change]), other=scenario.widens)
    came_before = run_result.is_before(Step("zoe", "COMMIT"), Step("other", "COMMIT"))
    assert run_result.results["zoe"] is came_before
    hers = [
        row
        for row in await audit_rows(scenario.database)
        if scenario.client_id in (row.target, row.detail.get("replaces"))
    ]
    assert any(row.actor == "person zoe@example.org" for row in hers) is came_before
