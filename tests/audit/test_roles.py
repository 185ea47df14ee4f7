"""Rights on organizations, groups, keys and the audit: the table of docs/interface.md section D11."""

import msgspec
import pytest

from stoplist.actor import ADMIN, VIEWER, Actor
from stoplist.db import Database
from stoplist.errors import Forbidden, Missing, Refused
from tests.audit.operations import OPERATIONS, AuditFixture, exported, make_deployment
from tests.builders import ADMINISTRATOR, audit_rows, contents, make_organization, on_each_database
from tests.fakes import FakeClock
from tests.unsubscribes.people import person

TABLES = ("organizations", "groups", "clients", "client_organizations", "audit", "audit_organizations")

DONE, FORBIDDEN, MISSING = "done", "forbidden", "missing"
_REFUSALS = {FORBIDDEN: Forbidden, MISSING: Missing}

# One row per kind of operation, with the outcome for an administrator, an admin and a viewer of the organization, an
# admin of another organization, a person without roles, and an admin of one of the two organizations that a key covers.
_ADMINISTRATORS = (DONE, FORBIDDEN, FORBIDDEN, FORBIDDEN, FORBIDDEN, FORBIDDEN)
_CHANGE = (DONE, DONE, FORBIDDEN, MISSING, MISSING, DONE)
_CHANGE_OF_A_KEY = (DONE, DONE, FORBIDDEN, MISSING, MISSING, FORBIDDEN)
_LOOK = (DONE, DONE, DONE, MISSING, MISSING, DONE)
_LIST = (DONE, DONE, DONE, DONE, DONE, DONE)
_READ_THE_AUDIT = (DONE, DONE, FORBIDDEN, DONE, FORBIDDEN, DONE)

MAY = {
    "organizations.create_organization": _ADMINISTRATORS,
    "organizations.close_organization": _ADMINISTRATORS,
    "organizations.list_organizations": _LIST,
    "organizations.show_organization": _LOOK,
    "organizations.rename_organization": _CHANGE,
    "organizations.set_link_page": _CHANGE,
    "groups.create_group": _CHANGE,
    "groups.list_groups": _LOOK,
    "groups.rename_group": _CHANGE,
    "groups.retire_group": _CHANGE,
    "groups.set_default_group": _CHANGE,
    "groups.unset_default_group": _CHANGE,
    "target.find_target_of_person": _CHANGE,
    "credentials.create_credential": _CHANGE,
    "credentials.list_credentials": _LIST,
    "credentials.show_credential": _LOOK,
    "credentials.deactivate_credential": _CHANGE_OF_A_KEY,
    "credentials.activate_credential": _CHANGE_OF_A_KEY,
    "credentials.revoke_tokens": _CHANGE_OF_A_KEY,
    "credentials.rotate_secret": _CHANGE_OF_A_KEY,
    "replacement.replace_credential": _CHANGE_OF_A_KEY,
    "credentials.update_credential": _CHANGE_OF_A_KEY,
    "ceilings.set_ceilings": _ADMINISTRATORS,
    "usage.use_by_day": _LOOK,
    "usage.last_refusals": _LOOK,
    "events.events_of": _LOOK,
    "events.alarms": _LIST,
    "key_alerts.list_key_alerts": _LIST,
    "reading.list_audit": _READ_THE_AUDIT,
    "reading.export_audit": _READ_THE_AUDIT,
}
"""The outcome of each operation for each of the six actors."""

OTHER = "other"


def actors(slug: str) -> tuple[Actor, ...]:
    """Return the six actors of the table."""
    return (
        ADMINISTRATOR,
        person(**{slug: ADMIN}),
        person(**{slug: VIEWER}),
        person(**{OTHER: ADMIN}),
        person(),
        person(**{slug: ADMIN}),
    )


def test_every_operation_has_a_row() -> None:
    assert MAY.keys() == OPERATIONS.keys()


@on_each_database
async def test_every_operation_checks_the_role(database: Database, clock: FakeClock) -> None:
    """It is done for the permitted roles; otherwise it is refused and changes nothing."""
    await make_organization(database, clock, OTHER)
    for number, (name, outcomes) in enumerate(MAY.items()):
        slug = f"acme-{number}"
        deployment = await make_deployment(database, clock, slug)
        before = await contents(database, *TABLES)
        for actor, outcome in zip(actors(slug)[:5], outcomes[:5], strict=True):
            if outcome is not DONE:
                assert type(await refusal(name, actor, deployment)) is _REFUSALS[outcome], (name, actor)
        assert await contents(database, *TABLES) == before, name
        for turn, (actor, outcome) in enumerate(zip(actors(slug)[:5], outcomes[:5], strict=True)):
            if outcome is DONE:
                other_slug = f"{slug}-{turn}"
                await OPERATIONS[name].call(
                    with_role_in(actor, slug, other_slug), await make_deployment(database, clock, other_slug)
                )


@on_each_database
async def test_changing_a_key_needs_admin_of_all_its_organizations(database: Database, clock: FakeClock) -> None:
    """An admin of one of the two sees the key; an administrator or an admin of both may change it."""
    await make_organization(database, clock, OTHER)
    for number, (name, outcomes) in enumerate(MAY.items()):
        slug = f"acme-{number}"
        deployment = await make_deployment(database, clock, slug, OTHER)
        of_one, of_both = person(**{slug: ADMIN}), person(**{slug: ADMIN, OTHER: ADMIN})
        viewer_of_one = person(**{slug: ADMIN, OTHER: VIEWER})
        if outcomes[5] is DONE:
            await OPERATIONS[name].call(of_one, deployment)
            continue
        before = await contents(database, *TABLES)
        for actor in (of_one, viewer_of_one):
            assert type(await refusal(name, actor, deployment)) is Forbidden, name
        assert await contents(database, *TABLES) == before, name
        if outcomes is _CHANGE_OF_A_KEY:
            await OPERATIONS[name].call(of_both, deployment)


@on_each_database
async def test_invisible_things_look_like_missing_ones(database: Database, clock: FakeClock) -> None:
    """The error is exactly the one that an administrator gets for an unknown id."""
    await make_organization(database, clock, OTHER)
    deployment = await make_deployment(database, clock)
    unknown = deployment._replace(
        slug="nowhere",
        default_group_id="grp_0000000000000000000000",
        group_id="grp_0000000000000000000001",
        client_id="svc_ci_0000000000000000000000",
        inactive_id="svc_ci_0000000000000000000001",
    )
    outsider = person(**{OTHER: ADMIN})
    for name, outcomes in MAY.items():
        if outcomes[3] is not MISSING:
            continue
        hidden, absent = await refusal(name, outsider, deployment), await refusal(name, ADMINISTRATOR, unknown)
        errors = [
            (type(error), error.text.replace("nowhere", "acme"), error.field, error.command, error.extra)
            for error in (hidden, absent)
        ]
        assert errors[0] == errors[1], name


@on_each_database
async def test_lists_have_only_what_the_actor_may_see(database: Database, clock: FakeClock) -> None:
    """Organizations, keys and the audit; a viewer sees the same as an admin, except the audit."""
    await make_organization(database, clock, OTHER)
    await make_deployment(database, clock, "acme")
    await make_deployment(database, clock, "bolt")

    async def listed(actor: Actor) -> tuple[list[str], set[str]]:
        deployment = AuditFixture(database, clock, "", "", "", "", "", "")
        organizations = await OPERATIONS["organizations.list_organizations"].call(actor, deployment)
        keys = await OPERATIONS["credentials.list_credentials"].call(actor, deployment)
        return [organization.slug for organization in organizations], {
            slug for key in keys for slug in key.organizations
        }

    assert await listed(ADMINISTRATOR) == (["acme", "bolt", OTHER], {"acme", "bolt"})
    for role in (ADMIN, VIEWER):
        assert await listed(person(acme=role)) == (["acme"], {"acme"})
        assert await listed(person(acme=role, other=role)) == (["acme", OTHER], {"acme"})
    assert await listed(person()) == ([], set())
    assert len(await exported(ADMINISTRATOR, database)) == len(await audit_rows(database))


def with_role_in(actor: Actor, slug: str, other_slug: str) -> Actor:
    """Return the actor with the role in `slug` moved to `other_slug`."""
    roles = {other_slug if org_slug == slug else org_slug: role for org_slug, role in actor.roles.items()}
    return msgspec.structs.replace(actor, roles=roles)


async def refusal(name: str, actor: Actor, deployment: AuditFixture) -> Refused:
    """Return the error of an operation that must be refused."""
    with pytest.raises(Refused) as raised:
        await OPERATIONS[name].call(actor, deployment)
    return raised.value
