"""Every operation on organizations, keys and the audit, with a call of it, so that tests can go through all of them."""

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterator
from operator import attrgetter
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
    """An operation, the actions that the audit then has (a read has none), and its arguments after the first ones.

    An argument that is a function is called with the AuditFixture.
    """

    function: Callable[..., Any]
    actions: tuple[str, ...]
    arguments: dict[str, Any]

    async def call(self, actor: Actor, env: AuditFixture) -> Any:
        """Call the operation on what `env` has."""
        if self.function is reading.export_audit:
            return await exported(actor, env.database)
        clock = {"clock": env.clock} if "clock" in inspect.signature(self.function).parameters else {}
        arguments = {name: value(env) if callable(value) else value for name, value in self.arguments.items()}
        return await self.function(actor, env.database, **clock, **arguments)


def _operation(function: Callable[..., Any], *actions: str, **arguments: Any) -> tuple[str, Operation]:
    return f"{function.__module__.rsplit('.', 1)[1]}.{function.__name__}", Operation(function, actions, arguments)


_SLUG = attrgetter("slug")
_BY_SLUG, _IN_ORGANIZATION = {"slug": _SLUG}, {"org_slug": _SLUG}
_GROUP, _KEY = {"group_id": attrgetter("group_id")}, {"client_id": attrgetter("client_id")}
_CHANGES = Changes(label="changed", permissions=frozenset(("read",)))

OPERATIONS = dict(
    [
        _operation(
            companies.create_organization,
            "organization.create",
            "group.create",
            slug=lambda env: f"{env.slug}-two",
            name="Two",
            default_group="news",
        ),
        _operation(companies.list_organizations),
        _operation(companies.show_organization, **_BY_SLUG),
        _operation(companies.rename_organization, "organization.rename", **_BY_SLUG, name="Renamed"),
        _operation(
            companies.set_link_page,
            "organization.link_page",
            **_BY_SLUG,
            contact_line="a@example.com",
            accent_colour="",
        ),
        _operation(companies.close_organization, "organization.close", **_BY_SLUG),
        _operation(groups.create_group, "group.create", **_IN_ORGANIZATION, name="letters", is_default=True),
        _operation(groups.list_groups, **_IN_ORGANIZATION),
        _operation(groups.rename_group, "group.rename", **_GROUP, name="letters"),
        _operation(groups.retire_group, "group.retire", group_id=attrgetter("default_group_id")),
        _operation(groups.set_default_group, "organization.set_default_group", **_IN_ORGANIZATION, **_GROUP),
        _operation(groups.unset_default_group, "organization.unset_default_group", **_IN_ORGANIZATION),
        _operation(target.find_target_of_person, **_IN_ORGANIZATION, **_GROUP),
        _operation(credentials.create_credential, "key.create", label="new", organizations=lambda env: [env.slug]),
        _operation(credentials.list_credentials),
        _operation(credentials.show_credential, **_KEY),
        _operation(credentials.deactivate_credential, "key.deactivate", **_KEY),
        _operation(credentials.activate_credential, "key.activate", client_id=attrgetter("inactive_id")),
        _operation(credentials.revoke_tokens, "key.revoke_tokens", **_KEY),
        _operation(credentials.rotate_secret, "key.rotate_secret", **_KEY),
        _operation(replacement.replace_credential, "key.replace", "key.create", **_KEY),
        _operation(ceilings.set_ceilings, "key.limits", **_KEY, token_per_minute=20, api_per_minute="default"),
        _operation(credentials.update_credential, "key.update", **_KEY, changes=_CHANGES),
        _operation(usage.use_by_day, **_KEY, since_day=0),
        _operation(usage.last_refusals, **_KEY),
        _operation(events.events_of, **_KEY),
        _operation(events.alarms, since_ms=0),
        _operation(key_alerts.list_key_alerts),
        _operation(reading.list_audit),
        _operation(reading.export_audit),
    ]
)


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
