"""Every change leaves one row that says who, what, to what, when and from where; without the row there is no change."""

import re
import sqlite3
from typing import Any

import asyncpg
import pytest

from stoplist.actor import Actor
from stoplist.audit import trail
from stoplist.audit.reading import latest_of
from stoplist.db import Database, Transaction
from stoplist.db.query import load_queries
from tests.audit.operations import OPERATIONS, a_scene, known_operations
from tests.builders import (
    ADMINISTRATOR,
    AuditRow,
    audit_rows,
    contents,
    execute,
    make_key,
    make_organization,
    on_each_database,
)
from tests.fakes import FakeClock

TABLES = ("organizations", "groups", "clients", "client_organizations", "audit_organizations")
SECRETS = re.compile(r"svc_(?:cs|at|rt)_\w{5,}")

REFUSE_AUDIT = """
CREATE TRIGGER no_more BEFORE INSERT ON audit BEGIN SELECT RAISE(ABORT, 'no more'); END  -- only: sqlite
ALTER TABLE audit ADD CONSTRAINT no_more CHECK (false) NOT VALID  -- only: postgresql
"""


def test_no_operation_is_forgotten() -> None:
    """A new one joins the list that these tests go through."""
    assert set(OPERATIONS) == known_operations()


@on_each_database
async def test_each_change_leaves_its_row(database: Database, clock: FakeClock) -> None:
    """Exactly one of each change, with the time of the clock; a read leaves none."""
    for number, (name, operation) in enumerate(OPERATIONS.items()):
        scene = await a_scene(database, clock, f"acme-{number}")
        before = await audit_rows(database)
        clock.advance(60)
        await operation.call(ADMINISTRATOR, scene)
        rows = (await audit_rows(database))[len(before) :]
        assert tuple(row.action for row in rows) == operation.actions, name
        for row in rows:
            assert (row.at_ms, row.actor) == (clock.now_ms(), "command tester"), name
            assert (row.source_ip, row.request_id) == (ADMINISTRATOR.source_ip, ADMINISTRATOR.request_id), name


@on_each_database
async def test_without_its_row_a_change_is_not_made(database: Database, clock: FakeClock) -> None:
    """Both are in one transaction: where the audit cannot be written, nothing is."""
    scene = await a_scene(database, clock)
    before = await contents(database, *TABLES)
    await execute(database, REFUSE_AUDIT)
    for name, operation in OPERATIONS.items():
        if not operation.actions:
            continue
        with pytest.raises((sqlite3.IntegrityError, asyncpg.CheckViolationError)):
            await operation.call(ADMINISTRATOR, scene)
        assert await contents(database, *TABLES) == before, name


@on_each_database
async def test_no_secret_is_in_the_audit(database: Database, clock: FakeClock) -> None:
    """Of a secret at most the prefix that stays visible (section D2)."""
    scene = await a_scene(database, clock)
    for name in ("credentials.create_credential", "credentials.rotate_secret"):
        await OPERATIONS[name].call(ADMINISTRATOR, scene)
    rows = await audit_rows(database)
    rotated = next(row for row in rows if row.action == "key.rotate_secret")
    assert re.fullmatch(r"svc_cs_\w{4}", rotated.detail["secret_prefix"])
    assert not SECRETS.search(repr(rows))
    assert scene.client_secret not in repr(await contents(database, "audit", *TABLES))


@on_each_database
async def test_a_row_keeps_what_it_was_given(database: Database) -> None:
    """Details are a JSON object, text of any kind included; who asked over no network has no source."""
    somebody = Actor(kind="system", id="a chore")
    detail: dict[str, Any] = {
        "name": 'Zoë\'s \N{ATHLETIC SHOE} "shop"',
        "covers": ["a", "b"],
        "is_default": True,
        "was": None,
    }

    async def unit(transaction: Transaction) -> None:
        await trail.record(transaction, somebody, "thing.do", "it", at_ms=42, **detail)

    await database.write(unit)
    assert await audit_rows(database) == [AuditRow(42, "system a chore", None, None, "thing.do", "it", detail)]


@on_each_database
async def test_a_row_is_bound_to_the_organizations_that_it_concerns(database: Database, clock: FakeClock) -> None:
    """Each once, whatever their order; one that does not exist is left out, and none leaves nothing."""
    for slug in ("acme", "bolt", "cord"):
        await make_organization(database, clock, slug)
    somebody = Actor(kind="system", id="a chore")

    async def unit(transaction: Transaction) -> None:
        for slugs in (["cord", "acme", "cord", "nowhere"], []):
            await trail.record(transaction, somebody, "thing.do", "it", at_ms=42, organizations=slugs)

    await database.write(unit)
    both, neither = reversed(await latest_of(database, "it", limit=2))
    assert (both.organizations, neither.organizations) == (["acme", "cord"], [])


@on_each_database
async def test_details_say_what_a_change_was(database: Database, clock: FakeClock) -> None:
    """The row alone tells the story, without what is there today."""
    await make_organization(database, clock, "acme", default_group="news")
    await make_key(database, clock, "acme", label="shop")
    created, group, key = await audit_rows(database)
    assert (created.target, created.detail) == ("acme", {"name": "Acme"})
    assert group.detail == {"org_slug": "acme", "name": "news", "is_default": True}
    assert key.detail == {
        "label": "shop",
        "covers": ["acme"],
        "default_organization": "acme",
        "permissions": ["read", "unsubscribe"],
    }


@pytest.mark.parametrize("package", ["stoplist.db", "stoplist.audit", "stoplist.organizations", "stoplist.oauth"])
def test_no_statement_changes_or_deletes_what_was_recorded(package: str) -> None:
    """Append-only."""
    changes = re.compile(r"\b(?:UPDATE|DELETE\s+FROM|REPLACE\s+INTO|TRUNCATE|DROP\s+TABLE)\s+audit\b", re.IGNORECASE)
    for query in load_queries(package).values():
        assert not changes.search(query.sqlite), query.name
        assert not changes.search(query.postgresql), query.name
