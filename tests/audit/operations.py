"""Every operation on organizations, keys and the audit, with a call of it, so that tests can go through all of them."""

import importlib
import inspect
import pkgutil
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, NamedTuple

from stoplist import audit, oauth, organizations
from stoplist.actor import Actor
from stoplist.audit import reading
from stoplist.audit.reading import AuditEntry
from stoplist.db import Database
from stoplist.oauth import ceilings, credentials, events, key_alerts, replacement, usage
from stoplist.oauth.credentials import Changes
from stoplist.organizations import groups, target
from stoplist.organizations import organizations as companies
from tests.builders import ADMINISTRATOR, make_key, make_organization
from tests.fakes import FakeClock


class AuditFixture(NamedTuple):
    """An organization with a default group and another group, an active key and an inactive one."""

    database: Database
    clock: FakeClock
    slug: str
    default_group_id: str
    group_id: str
    client_id: str
    client_secret: str
    inactive_id: str


class Operation(NamedTuple):
    """A call of the operation, and the actions that the audit then has; a read has none."""

    call: Callable[[Actor, AuditFixture], Awaitable[Any]]
    actions: tuple[str, ...] = ()


OPERATIONS = {
    "organizations.create_organization": Operation(
        lambda actor, env: companies.create_organization(
            actor,
            env.database,
            env.clock,
            slug=f"{env.slug}-two",
            name="Two",
            default_group="news",
        ),
        ("organization.create", "group.create"),
    ),
    "organizations.list_organizations": Operation(lambda actor, env: companies.list_organizations(actor, env.database)),
    "organizations.show_organization": Operation(
        lambda actor, env: companies.show_organization(actor, env.database, env.slug)
    ),
    "organizations.rename_organization": Operation(
        lambda actor, env: companies.rename_organization(actor, env.database, env.clock, slug=env.slug, name="Renamed"),
        ("organization.rename",),
    ),
    "organizations.set_link_page": Operation(
        lambda actor, env: companies.set_link_page(
            actor, env.database, env.clock, slug=env.slug, contact_line="privacy@example.com", accent_colour=""
        ),
        ("organization.link_page",),
    ),
    "organizations.close_organization": Operation(
        lambda actor, env: companies.close_organization(actor, env.database, env.clock, slug=env.slug),
        ("organization.close",),
    ),
    "groups.create_group": Operation(
        lambda actor, env: groups.create_group(
            actor, env.database, env.clock, org_slug=env.slug, name="letters", is_default=True
        ),
        ("group.create",),
    ),
    "groups.list_groups": Operation(lambda actor, env: groups.list_groups(actor, env.database, org_slug=env.slug)),
    "groups.rename_group": Operation(
        lambda actor, env: groups.rename_group(actor, env.database, env.clock, group_id=env.group_id, name="letters"),
        ("group.rename",),
    ),
    "groups.retire_group": Operation(
        lambda actor, env: groups.retire_group(actor, env.database, env.clock, group_id=env.default_group_id),
        ("group.retire",),
    ),
    "groups.set_default_group": Operation(
        lambda actor, env: groups.set_default_group(
            actor, env.database, env.clock, org_slug=env.slug, group_id=env.group_id
        ),
        ("organization.set_default_group",),
    ),
    "groups.unset_default_group": Operation(
        lambda actor, env: groups.unset_default_group(actor, env.database, env.clock, org_slug=env.slug),
        ("organization.unset_default_group",),
    ),
    "target.find_target_of_person": Operation(
        lambda actor, env: target.find_target_of_person(actor, env.database, org_slug=env.slug, group_id=env.group_id)
    ),
    "credentials.create_credential": Operation(
        lambda actor, env: credentials.create_credential(
            actor, env.database, env.clock, label="new", organizations=[env.slug]
        ),
        ("key.create",),
    ),
    "credentials.list_credentials": Operation(lambda actor, env: credentials.list_credentials(actor, env.database)),
    "credentials.show_credential": Operation(
        lambda actor, env: credentials.show_credential(actor, env.database, client_id=env.client_id)
    ),
    "credentials.deactivate_credential": Operation(
        lambda actor, env: credentials.deactivate_credential(actor, env.database, env.clock, client_id=env.client_id),
        ("key.deactivate",),
    ),
    "credentials.activate_credential": Operation(
        lambda actor, env: credentials.activate_credential(actor, env.database, env.clock, client_id=env.inactive_id),
        ("key.activate",),
    ),
    "credentials.revoke_tokens": Operation(
        lambda actor, env: credentials.revoke_tokens(actor, env.database, env.clock, client_id=env.client_id),
        ("key.revoke_tokens",),
    ),
    "credentials.rotate_secret": Operation(
        lambda actor, env: credentials.rotate_secret(actor, env.database, env.clock, client_id=env.client_id),
        ("key.rotate_secret",),
    ),
    "replacement.replace_credential": Operation(
        lambda actor, env: replacement.replace_credential(actor, env.database, env.clock, client_id=env.client_id),
        ("key.replace", "key.create"),
    ),
    "ceilings.set_ceilings": Operation(
        lambda actor, env: ceilings.set_ceilings(
            actor,
            env.database,
            env.clock,
            client_id=env.client_id,
            token_per_minute=20,
            api_per_minute="default",
        ),
        ("key.limits",),
    ),
    "credentials.update_credential": Operation(
        lambda actor, env: credentials.update_credential(
            actor,
            env.database,
            env.clock,
            client_id=env.client_id,
            changes=Changes(label="changed", permissions=frozenset(("read",))),
        ),
        ("key.update",),
    ),
    "usage.use_by_day": Operation(lambda actor, env: usage.use_by_day(actor, env.database, env.client_id, since_day=0)),
    "usage.last_refusals": Operation(lambda actor, env: usage.last_refusals(actor, env.database, env.client_id)),
    "events.events_of": Operation(lambda actor, env: events.events_of(actor, env.database, env.client_id)),
    "events.alarms": Operation(lambda actor, env: events.alarms(actor, env.database, since_ms=0)),
    "key_alerts.list_key_alerts": Operation(
        lambda actor, env: key_alerts.list_key_alerts(actor, env.database, env.clock)
    ),
    "reading.list_audit": Operation(lambda actor, env: reading.list_audit(actor, env.database)),
    "reading.export_audit": Operation(lambda actor, env: exported(actor, env.database)),
}


async def exported(actor: Actor, database: Database, **filters: Any) -> list[AuditEntry]:
    """Return all entries of an export."""
    return [entry async for entries in reading.export_audit(actor, database, **filters) for entry in entries]


def known_operations() -> set[str]:
    """Return every public function whose first parameters are `actor` and `database`, except the OAuth grants."""
    return {f"{function.__module__.rsplit('.', 1)[1]}.{name}" for name, function in _functions()}


async def make_deployment(database: Database, clock: FakeClock, slug: str = "acme", *more_slugs: str) -> AuditFixture:
    """Create an organization with groups and keys, which also cover `more_slugs`. The database may hold others."""
    organization = await make_organization(database, clock, slug, default_group="news")
    other = await groups.create_group(ADMINISTRATOR, database, clock, org_slug=slug, name="reminders")
    key = await make_key(database, clock, slug, *more_slugs, default_organization=slug)
    inactive = await make_key(database, clock, slug, *more_slugs, default_organization=slug)
    inactive_id = inactive.credential.client_id
    await credentials.deactivate_credential(ADMINISTRATOR, database, clock, client_id=inactive_id)
    assert organization.default_group_id is not None
    return AuditFixture(
        database=database,
        clock=clock,
        slug=slug,
        default_group_id=organization.default_group_id,
        group_id=other.group_id,
        client_id=key.credential.client_id,
        client_secret=key.client_secret,
        inactive_id=inactive_id,
    )


def _functions() -> Iterator[tuple[str, Any]]:
    for package in (organizations, oauth, audit):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if module.name.startswith("stoplist.oauth.grants"):
                continue
            for name, function in inspect.getmembers(importlib.import_module(module.name), inspect.isfunction):
                is_public = function.__module__ == module.name and not name.startswith("_")
                if is_public and list(inspect.signature(function).parameters)[:2] == ["actor", "database"]:
                    yield name, function
