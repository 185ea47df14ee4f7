"""Every operation that somebody does, with how it is called: what is held of one is held of all."""

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
from stoplist.oauth import credentials, events, key_alerts, usage
from stoplist.oauth.credentials import Changes
from stoplist.organizations import groups, target
from stoplist.organizations import organizations as companies
from tests.builders import ADMINISTRATOR, make_key, make_organization
from tests.fakes import FakeClock


class Scene(NamedTuple):
    """An organization with a default group and another one, an active key and an inactive one."""

    database: Database
    clock: FakeClock
    slug: str
    default_group_id: str
    group_id: str
    client_id: str
    client_secret: str
    inactive_id: str


class Operation(NamedTuple):
    """How it is called, and the actions that the audit then shows; a read shows none."""

    call: Callable[[Actor, Scene], Awaitable[Any]]
    actions: tuple[str, ...] = ()


OPERATIONS = {
    "organizations.create_organization": Operation(
        lambda actor, it: companies.create_organization(
            actor, it.database, it.clock, slug=f"{it.slug}-two", name="Two", default_group="news"
        ),
        ("organization.create", "group.create"),
    ),
    "organizations.list_organizations": Operation(lambda actor, it: companies.list_organizations(actor, it.database)),
    "organizations.show_organization": Operation(
        lambda actor, it: companies.show_organization(actor, it.database, it.slug)
    ),
    "organizations.rename_organization": Operation(
        lambda actor, it: companies.rename_organization(actor, it.database, it.clock, slug=it.slug, name="Renamed"),
        ("organization.rename",),
    ),
    "organizations.close_organization": Operation(
        lambda actor, it: companies.close_organization(actor, it.database, it.clock, slug=it.slug),
        ("organization.close",),
    ),
    "groups.create_group": Operation(
        lambda actor, it: groups.create_group(
            actor, it.database, it.clock, org_slug=it.slug, name="letters", is_default=True
        ),
        ("group.create",),
    ),
    "groups.list_groups": Operation(lambda actor, it: groups.list_groups(actor, it.database, org_slug=it.slug)),
    "groups.rename_group": Operation(
        lambda actor, it: groups.rename_group(actor, it.database, it.clock, group_id=it.group_id, name="letters"),
        ("group.rename",),
    ),
    "groups.retire_group": Operation(
        lambda actor, it: groups.retire_group(actor, it.database, it.clock, group_id=it.default_group_id),
        ("group.retire",),
    ),
    "groups.set_default_group": Operation(
        lambda actor, it: groups.set_default_group(
            actor, it.database, it.clock, org_slug=it.slug, group_id=it.group_id
        ),
        ("organization.set_default_group",),
    ),
    "groups.unset_default_group": Operation(
        lambda actor, it: groups.unset_default_group(actor, it.database, it.clock, org_slug=it.slug),
        ("organization.unset_default_group",),
    ),
    "target.find_target_of_person": Operation(
        lambda actor, it: target.find_target_of_person(actor, it.database, org_slug=it.slug, group_id=it.group_id)
    ),
    "credentials.create_credential": Operation(
        lambda actor, it: credentials.create_credential(
            actor, it.database, it.clock, label="new", organizations=[it.slug]
        ),
        ("key.create",),
    ),
    "credentials.list_credentials": Operation(lambda actor, it: credentials.list_credentials(actor, it.database)),
    "credentials.show_credential": Operation(
        lambda actor, it: credentials.show_credential(actor, it.database, client_id=it.client_id)
    ),
    "credentials.deactivate_credential": Operation(
        lambda actor, it: credentials.deactivate_credential(actor, it.database, it.clock, client_id=it.client_id),
        ("key.deactivate",),
    ),
    "credentials.activate_credential": Operation(
        lambda actor, it: credentials.activate_credential(actor, it.database, it.clock, client_id=it.inactive_id),
        ("key.activate",),
    ),
    "credentials.revoke_tokens": Operation(
        lambda actor, it: credentials.revoke_tokens(actor, it.database, it.clock, client_id=it.client_id),
        ("key.revoke_tokens",),
    ),
    "credentials.rotate_secret": Operation(
        lambda actor, it: credentials.rotate_secret(actor, it.database, it.clock, client_id=it.client_id),
        ("key.rotate_secret",),
    ),
    "credentials.replace_credential": Operation(
        lambda actor, it: credentials.replace_credential(actor, it.database, it.clock, client_id=it.client_id),
        ("key.replace", "key.create"),
    ),
    "credentials.set_ceilings": Operation(
        lambda actor, it: credentials.set_ceilings(
            actor, it.database, it.clock, client_id=it.client_id, token_per_minute=20, api_per_minute="default"
        ),
        ("key.limits",),
    ),
    "credentials.update_credential": Operation(
        lambda actor, it: credentials.update_credential(
            actor,
            it.database,
            it.clock,
            client_id=it.client_id,
            changes=Changes(label="changed", permissions=frozenset(("read",))),
        ),
        ("key.update",),
    ),
    "usage.use_by_day": Operation(lambda actor, it: usage.use_by_day(actor, it.database, it.client_id, since_day=0)),
    "usage.last_refusals": Operation(lambda actor, it: usage.last_refusals(actor, it.database, it.client_id)),
    "events.events_of": Operation(lambda actor, it: events.events_of(actor, it.database, it.client_id)),
    "events.alarms": Operation(lambda actor, it: events.alarms(actor, it.database, since_ms=0)),
    "key_alerts.list_key_alerts": Operation(lambda actor, it: key_alerts.list_key_alerts(actor, it.database, it.clock)),
    "reading.list_audit": Operation(lambda actor, it: reading.list_audit(actor, it.database)),
    "reading.export_audit": Operation(lambda actor, it: exported(actor, it.database)),
}


async def exported(actor: Actor, database: Database, **filters: Any) -> list[AuditEntry]:
    """Every entry that an export brings."""
    return [entry async for entries in reading.export_audit(actor, database, **filters) for entry in entries]


def known_operations() -> set[str]:
    """Every public function that is given who acts, then the database; not the grants, for a partner's program."""
    return {f"{function.__module__.rsplit('.', 1)[1]}.{name}" for name, function in _functions()}


async def a_scene(database: Database, clock: FakeClock, slug: str = "acme", *more_slugs: str) -> Scene:
    """A scene of its own in a database that may hold others; its keys cover `more_slugs` too."""
    organization = await make_organization(database, clock, slug, default_group="news")
    other = await groups.create_group(ADMINISTRATOR, database, clock, org_slug=slug, name="reminders")
    key = await make_key(database, clock, slug, *more_slugs, default_organization=slug)
    inactive = await make_key(database, clock, slug, *more_slugs, default_organization=slug)
    inactive_id = inactive.credential.client_id
    await credentials.deactivate_credential(ADMINISTRATOR, database, clock, client_id=inactive_id)
    assert organization.default_group_id is not None
    return Scene(
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
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if found.name.startswith("stoplist.oauth.grants"):
                continue
            for name, function in inspect.getmembers(importlib.import_module(found.name), inspect.isfunction):
                is_its_own = function.__module__ == found.name and not name.startswith("_")
                if is_its_own and list(inspect.signature(function).parameters)[:2] == ["actor", "database"]:
                    yield name, function
