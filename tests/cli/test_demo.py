"""`serve --demo` completes what an interrupted start left unfinished (docs/interface.md section D9)."""

import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from stoplist.cli import demo, demo_history
from stoplist.db import Database
from stoplist.oauth.credentials import create_credential, list_credentials
from stoplist.organizations.groups import list_groups
from stoplist.organizations.organizations import create_organization, list_organizations
from stoplist.settings import load
from stoplist.staff.people import list_people
from tests.builders import ADMINISTRATOR, on_sqlite, sql
from tests.constants import HOUR_S
from tests.fakes import FakeClock

SETTINGS = load({}, env_file=Path("absent/.env"))


class DemoInterrupted(Exception):
    """The server stopped while the demo was filled."""


def interrupt_at(patch: pytest.MonkeyPatch, module: Any, name: str, *, calls: int) -> None:
    """Let the operation `name` work for so many calls, and fail then."""
    operation: Callable[..., Awaitable[Any]] = getattr(module, name)
    left = calls

    async def failing(*arguments: Any, **options: Any) -> Any:
        nonlocal left
        if not left:
            raise DemoInterrupted
        left -= 1
        return await operation(*arguments, **options)

    patch.setattr(module, name, failing)


RECORDS = 3_478
POINTS = {
    "before its first group": (demo_history, "create_group", 0),
    "between its groups": (demo_history, "create_group", 1),
    "before its key": (demo_history, "create_credential", 0),
    "before the first opt-outs": (demo_history, "submit", 0),
    "within a day": (demo_history, "submit", 42),
    "in the last days": (demo_history, "submit", 241),
    "before its use": (demo_history, "_record_usage", 0),
    "before the organization": (demo, "create_organization", 0),
    "before the key": (demo, "create_credential", 0),
    "before the opt-outs": (demo, "submit", 0),
    "within the opt-outs": (demo, "submit", 2),
    "before the administrator": (demo, "create_person", 0),
}


@pytest.mark.parametrize(("module", "name", "calls"), POINTS.values(), ids=POINTS)
@on_sqlite
async def test_an_interrupted_demo_is_completed(
    database: Database,
    clock: FakeClock,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    module: Any,
    name: str,
    calls: int,
) -> None:
    """The next start says so, adds what is missing at any point, and shows a secret and a sign-in link."""
    with monkeypatch.context() as patch:
        interrupt_at(patch, module, name, calls=calls)
        with pytest.raises(DemoInterrupted):
            await demo.show(SETTINGS, database, clock)
    assert capsys.readouterr().out.startswith("Filling the database")
    clock.advance(HOUR_S)
    await demo.show(SETTINGS, database, clock)
    text = capsys.readouterr().out
    assert text.startswith("An earlier start did not finish")
    assert re.search(r"svc_cs_\w{49}", text)
    assert "/settings/sign-in/link?token=" in text
    await require_whole_demo(database)
    await demo.show(SETTINGS, database, clock)
    assert "already contains" in capsys.readouterr().out
    await require_whole_demo(database)


async def require_whole_demo(database: Database) -> None:
    """Require all that a first start makes, once."""
    assert [organization.slug for organization in await list_organizations(ADMINISTRATOR, database)] == [
        "demo",
        "lantern-books",
    ]
    assert sorted(key.label for key in await list_credentials(ADMINISTRATOR, database)) == ["Demo", "Shop, nightly"]
    groups = await list_groups(ADMINISTRATOR, database, org_slug="lantern-books")
    assert sorted(group.name for group in groups) == ["Newsletter", "Offers", "Order news"]
    assert [person.email for person in await list_people(ADMINISTRATOR, database)] == [demo.ADMIN_EMAIL]
    counts = await database.one(sql("SELECT COUNT(*) AS records FROM unsubscribes"))
    days = await database.one(sql("SELECT COUNT(*) AS days, MAX(requests) AS most FROM client_days"))
    assert counts is not None
    assert days is not None
    assert counts["records"] == RECORDS
    assert (days["days"], days["most"] < 100) == (demo_history.DAYS, True)


@on_sqlite
async def test_a_demo_says_that_it_is_filling(
    database: Database, clock: FakeClock, capsys: pytest.CaptureFixture[str]
) -> None:
    """It has as many records as one that was interrupted."""
    await demo.show(SETTINGS, database, clock)
    assert capsys.readouterr().out.startswith("Filling the database")
    await require_whole_demo(database)


@on_sqlite
async def test_a_database_in_use_is_no_interrupted_demo(
    database: Database, clock: FakeClock, capsys: pytest.CaptureFixture[str]
) -> None:
    """It may have an organization of the same name: nothing is added, and no secret is replaced."""
    await create_organization(ADMINISTRATOR, database, clock, slug="demo", name="Ours")
    await create_credential(ADMINISTRATOR, database, clock, label="Demo", organizations=["demo"])
    (key,) = await list_credentials(ADMINISTRATOR, database)
    await demo.show(SETTINGS, database, clock)
    assert "already contains" in capsys.readouterr().out
    assert await list_credentials(ADMINISTRATOR, database) == [key]
    assert await list_people(ADMINISTRATOR, database) == []
