"""After a migration, entries of the previous release belong to organizations too."""

from typing import Any

from stoplist.actor import ADMIN, Actor
from tests.audit.operations import exported
from tests.builders import ADMINISTRATOR, execute, migrate_to, opened
from tests.deployment import in_own_loop

BEFORE = 4

_EXISTING_ROWS = [
    "INSERT INTO organizations (organization_id, slug, name, created_ms) "
    "VALUES (1, 'acme', 'A', 0), (2, 'bolt', 'B', 0)",
    "INSERT INTO groups (group_id, organization_id, group_no, name, created_ms) VALUES ('grp_1', 2, 1, 'news', 0)",
    "INSERT INTO clients (client_id, label, secret_hash, secret_prefix, epoch, is_active, default_organization_id, "
    "permissions, created_ms) VALUES ('svc_ci_1', 'x', CAST('h' AS bytea), 'svc_cs_', 1, 1, 1, 'read', 0)",
    "INSERT INTO client_organizations (client_id, organization_id) VALUES ('svc_ci_1', 1)",
]
_AUDIT_ENTRIES = [
    ("organization.create", "acme", "{}", ["acme"]),
    ("group.create", "grp_1", '{"org_slug": "bolt"}', ["bolt"]),
    ("key.create", "svc_ci_1", '{"organizations": ["bolt", "acme"]}', ["acme", "bolt"]),
    ("key.update", "svc_ci_1", '{"organizations": ["acme"], "was": {"organizations": ["bolt"]}}', ["acme", "bolt"]),
    ("key.limits", "svc_ci_1", '{"was": {"api_per_minute": null}}', ["acme"]),
    ("key.create", "svc_ci_gone", "{}", []),
    ("database.restored", "database", '{"feeds": 3}', []),
]


@in_own_loop
async def test_old_entries_concern_the_organizations_they_name(empty_database_url: str) -> None:
    """Directly, by a group, or by a key with all that it covers; so no admin reads entries of other organizations."""
    async with opened(empty_database_url) as database:
        await migrate_to(database, BEFORE)
        for statement in _EXISTING_ROWS:
            await execute(database, statement)
        for at_ms, (action, target, detail, _) in enumerate(_AUDIT_ENTRIES):
            values: dict[str, Any] = {"at_ms": at_ms, "action": action, "target": target, "detail": detail}
            await execute(
                database,
                "INSERT INTO audit (at_ms, actor_kind, actor_id, action, target, detail) "
                "VALUES (:at_ms, 'command', 'x', :action, :target, :detail)",
                **values,
            )
        await migrate_to(database, BEFORE + 1)
        entries = reversed(await exported(ADMINISTRATOR, database))
        assert [entry.organizations for entry in entries] == [expected for *_, expected in _AUDIT_ENTRIES]
        reader = Actor(kind="person", id="x", roles={"acme": ADMIN})
        assert [entry.action for entry in await exported(reader, database)] == ["key.limits", "organization.create"]
