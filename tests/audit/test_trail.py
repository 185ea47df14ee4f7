"""Every change is recorded in one entry: actor, action, target, time and source. Without it there is no change."""

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
from tests.audit.operations import OPERATIONS, known_operations, make_deployment
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


def test_these_tests_cover_every_operation() -> None:
    """A new operation must be added to the list."""
    assert set(OPERATIONS) == known_operations()


@on_each_database
async def test_each_change_is_recorded_once(database: Database, clock: FakeClock) -> None:
    """The entry has the time of the clock; a read is not recorded."""
    for number, (name, operation) in enumerate(OPERATIONS.items()):
        deployment = await make_deployment(database, clock, f"acme-{number}")
        before = await audit_rows(database)
        clock.advance(60)
        await operation.call(ADMINISTRATOR, deployment)
        rows = (await audit_rows(database))[len(before) :]
        assert tuple(row.action for row in rows) == operation.actions, name
        for row in rows:
            assert (row.at_ms, row.actor) == (clock.now_ms(), "command tester"), name
            assert (row.source_ip, row.request_id) == (ADMINISTRATOR.source_ip, ADMINISTRATOR.request_id), name


@on_each_database
async def test_a_change_that_cannot_be_recorded_is_not_made(database: Database, clock: FakeClock) -> None:
    """Both are written in one transaction."""
    deployment = await make_deployment(database, clock)
    before = await contents(database, *TABLES)
    await execute(database, REFUSE_AUDIT)
    for name, operation in OPERATIONS.items():
        if not operation.actions:
            continue
        with pytest.raises((sqlite3.IntegrityError, asyncpg.CheckViolationError)):
            await operation.call(ADMINISTRATOR, deployment)
        assert await contents(database, *TABLES) == before, name


@on_each_database
async def test_no_secret_is_in_the_audit(database: Database, clock: FakeClock) -> None:
    """The audit holds at most the prefix of a secret, which stays visible (section D2)."""
    deployment = await make_deployment(database, clock)
    for name in ("credentials.create_credential", "credentials.rotate_secret"):
        await OPERATIONS[name].call(ADMINISTRATOR, deployment)
    rows = await audit_rows(database)
    rotated = next(row for row in rows if row.action == "key.rotate_secret")
    assert re.fullmatch(r"svc_cs_\w{4}", rotated.detail["secret_prefix"])
    assert not SECRETS.search(repr(rows))
    assert deployment.client_secret not in repr(await contents(database, "audit", *TABLES))


@on_each_database
async def test_an_entry_keeps_its_values(database: Database) -> None:
    """Details are a JSON object with any text; an actor without a network has no source address."""
    chore = Actor(kind="system", id="a chore")
    detail: dict[str, Any] = {
        "name": 'Zoë\'s \N{ATHLETIC SHOE} "shop"',
        "covers": ["a", "b"],
        "is_default": True,
        "was": None,
    }

    async def unit(transaction: Transaction) -> None:
        await trail.record(transaction, chore, "thing.do", "it", at_ms=42, **detail)

    await database.write(unit)
    assert await audit_rows(database) == [AuditRow(42, "system a chore", None, None, "thing.do", "it", detail)]


@on_each_database
async def test_an_entry_names_its_organizations_once(database: Database, clock: FakeClock) -> None:
    """Their order does not matter; one that does not exist is left out, and the list may be empty."""
    for slug in ("acme", "bolt", "cord"):
        await make_organization(database, clock, slug)
    chore = Actor(kind="system", id="a chore")

    async def unit(transaction: Transaction) -> None:
        for slugs in (["cord", "acme", "cord", "nowhere"], []):
            await trail.record(transaction, chore, "thing.do", "it", at_ms=42, organizations=slugs)

    await database.write(unit)
    both, neither = reversed(await latest_of(database, "it", limit=2))
    assert (both.organizations, neither.organizations) == (["acme", "cord"], [])


@on_each_database
async def test_details_describe_the_change(database: Database, clock: FakeClock) -> None:
    """The entry can be understood without the current state."""
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
        "refresh_needs_secret": False,
    }


@pytest.mark.parametrize("package", ["stoplist.db", "stoplist.audit", "stoplist.organizations", "stoplist.oauth"])
def test_no_statement_changes_or_deletes_entries(package: str) -> None:
    """The audit is append-only."""
    changes = re.compile(r"\b(?:UPDATE|DELETE\s+FROM|REPLACE\s+INTO|TRUNCATE|DROP\s+TABLE)\s+audit\b", re.IGNORECASE)
    for query in load_queries(package).values():
        assert not changes.search(query.sqlite), query.name
        assert not changes.search(query.postgresql), query.name
