"""What the release before recorded belongs to organizations too, once the database is this release's."""

import asyncio
from typing import Any

from stoplist.actor import ADMIN, Actor
from stoplist.db import Database, schema
from stoplist.db.schema import load_migrations
from tests.audit.operations import exported
from tests.builders import ADMINISTRATOR, execute, opened

BEFORE = 4

_WAS_THERE = [
    "INSERT INTO organizations (organization_id, slug, name, created_ms) "
    "VALUES (1, 'acme', 'A', 0), (2, 'bolt', 'B', 0)",
    "INSERT INTO groups (group_id, organization_id, group_no, name, created_ms) VALUES ('grp_1', 2, 1, 'news', 0)",
    "INSERT INTO clients (client_id, label, secret_hash, secret_prefix, epoch, is_active, default_organization_id, "
    "permissions, created_ms) VALUES ('svc_ci_1', 'x', CAST('h' AS bytea), 'svc_cs_', 1, 1, 1, 'read', 0)",
    "INSERT INTO client_organizations (client_id, organization_id) VALUES ('svc_ci_1', 1)",
]
_RECORDED = [
    ("organization.create", "acme", "{}", ["acme"]),
    ("group.create", "grp_1", '{"org_slug": "bolt"}', ["bolt"]),
    ("key.create", "svc_ci_1", '{"organizations": ["bolt", "acme"]}', ["acme", "bolt"]),
    ("key.update", "svc_ci_1", '{"organizations": ["acme"], "was": {"organizations": ["bolt"]}}', ["acme", "bolt"]),
    ("key.limits", "svc_ci_1", '{"was": {"api_per_minute": null}}', ["acme"]),
    ("key.create", "svc_ci_gone", "{}", []),
    ("database.restored", "database", '{"feeds": 3}', []),
]


def test_rows_of_the_release_before_concern_what_they_name(empty_database_url: str) -> None:
    """Organizations, groups, and keys with all that they cover or that a row names: nobody reads of another's."""

    async def body() -> None:
        async with opened(empty_database_url) as database:
            await migrate_to(database, BEFORE)
            for statement in _WAS_THERE:
                await execute(database, statement)
            for at_ms, (action, target, detail, _) in enumerate(_RECORDED):
                values: dict[str, Any] = {"at_ms": at_ms, "action": action, "target": target, "detail": detail}
                await execute(
                    database,
                    "INSERT INTO audit (at_ms, actor_kind, actor_id, action, target, detail) "
                    "VALUES (:at_ms, 'command', 'x', :action, :target, :detail)",
                    **values,
                )
            await migrate_to(database, BEFORE + 1)
            found = reversed(await exported(ADMINISTRATOR, database))
            assert [entry.organizations for entry in found] == [expected for *_, expected in _RECORDED]
            reader = Actor(kind="person", id="x", roles={"acme": ADMIN})
            assert [entry.action for entry in await exported(reader, database)] == ["key.limits", "organization.create"]

    asyncio.run(body())


async def migrate_to(database: Database, number: int) -> None:
    """The schema as of that migration."""
    steps = load_migrations()[:number]
    await schema.migrate(database, environment="development", now_ms=0, migrations=steps)
