"""Who may do what to organizations, groups, keys and the audit: the table of docs/interface.md section D11."""

import msgspec
import pytest

from stoplist.actor import ADMIN, VIEWER, Actor, Role
from stoplist.db import Database
from stoplist.errors import Forbidden, Missing, Refused
from tests.audit.operations import OPERATIONS, Scene, a_scene, exported
from tests.builders import ADMINISTRATOR, audit_rows, contents, make_organization, on_each_database
from tests.fakes import FakeClock

TABLES = ("organizations", "groups", "clients", "client_organizations", "audit", "audit_organizations")

DONE, FORBIDDEN, MISSING = "done", "forbidden", "missing"
_REFUSALS = {FORBIDDEN: Forbidden, MISSING: Missing}

# One row a kind of operation: what becomes of it when it is asked for by an administrator, an admin and a viewer of
# the organization, an admin of another one, nobody in particular, and an admin of one of the two organizations that
# a key covers.
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
    "credentials.replace_credential": _CHANGE_OF_A_KEY,
    "credentials.update_credential": _CHANGE_OF_A_KEY,
    "credentials.set_ceilings": _ADMINISTRATORS,
    "usage.use_by_day": _LOOK,
    "usage.last_refusals": _LOOK,
    "events.events_of": _LOOK,
    "events.alarms": _LIST,
    "key_alerts.list_key_alerts": _LIST,
    "reading.list_audit": _READ_THE_AUDIT,
    "reading.export_audit": _READ_THE_AUDIT,
}
"""What each operation says to each of the six."""

OTHER = "other"


def person(**roles: Role) -> Actor:
    """Somebody who signed in, with a role in these organizations."""
    return Actor(kind="person", id="zoe@example.org", roles=dict(roles))


def asking(slug: str) -> tuple[Actor, ...]:
    """The six of the table."""
    return (
        ADMINISTRATOR,
        person(**{slug: ADMIN}),
        person(**{slug: VIEWER}),
        person(**{OTHER: ADMIN}),
        person(),
        person(**{slug: ADMIN}),
    )


def test_every_operation_has_its_row() -> None:
    """A new one says who may do it."""
    assert MAY.keys() == OPERATIONS.keys()


@on_each_database
async def test_every_operation_keeps_to_the_roles(database: Database, clock: FakeClock) -> None:
    """Done for whom it should be, and refused in its way otherwise; whatever is refused leaves nothing."""
    await make_organization(database, clock, OTHER)
    for number, (name, outcomes) in enumerate(MAY.items()):
        slug = f"acme-{number}"
        scene = await a_scene(database, clock, slug)
        before = await contents(database, *TABLES)
        for actor, outcome in zip(asking(slug)[:5], outcomes[:5], strict=True):
            if outcome is not DONE:
                assert type(await refusal(name, actor, scene)) is _REFUSALS[outcome], (name, actor)
        assert await contents(database, *TABLES) == before, name
        for turn, (actor, outcome) in enumerate(zip(asking(slug)[:5], outcomes[:5], strict=True)):
            if outcome is DONE:
                again = f"{slug}-{turn}"
                await OPERATIONS[name].call(as_if(actor, slug, again), await a_scene(database, clock, again))


@on_each_database
async def test_a_key_of_several_organizations_is_changed_by_who_has_them_all(
    database: Database, clock: FakeClock
) -> None:
    """An admin of one of the two sees it; it is for an administrator, or for an admin of both."""
    await make_organization(database, clock, OTHER)
    for number, (name, outcomes) in enumerate(MAY.items()):
        slug = f"acme-{number}"
        scene = await a_scene(database, clock, slug, OTHER)
        of_one, of_both = person(**{slug: ADMIN}), person(**{slug: ADMIN, OTHER: ADMIN})
        viewer_of_one = person(**{slug: ADMIN, OTHER: VIEWER})
        if outcomes[5] is DONE:
            await OPERATIONS[name].call(of_one, scene)
            continue
        before = await contents(database, *TABLES)
        for actor in (of_one, viewer_of_one):
            assert type(await refusal(name, actor, scene)) is Forbidden, name
        assert await contents(database, *TABLES) == before, name
        if outcomes is _CHANGE_OF_A_KEY:
            await OPERATIONS[name].call(of_both, scene)


@on_each_database
async def test_what_may_not_be_seen_is_answered_like_what_is_not_there(database: Database, clock: FakeClock) -> None:
    """Word for word what an administrator is told of something that never existed."""
    await make_organization(database, clock, OTHER)
    scene = await a_scene(database, clock)
    unknown = scene._replace(
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
        hidden, absent = await refusal(name, outsider, scene), await refusal(name, ADMINISTRATOR, unknown)
        told = [
            (type(it), it.text.replace("nowhere", "acme"), it.field, it.command, it.extra) for it in (hidden, absent)
        ]
        assert told[0] == told[1], name


@on_each_database
async def test_of_a_list_only_what_one_may_see_is_shown(database: Database, clock: FakeClock) -> None:
    """Organizations, keys and the audit; a viewer sees as much of them as an admin, but no audit."""
    await make_organization(database, clock, OTHER)
    await a_scene(database, clock, "acme")
    await a_scene(database, clock, "bolt")

    async def listed(actor: Actor) -> tuple[list[str], set[str]]:
        scene = Scene(database, clock, "", "", "", "", "", "")
        organizations = await OPERATIONS["organizations.list_organizations"].call(actor, scene)
        keys = await OPERATIONS["credentials.list_credentials"].call(actor, scene)
        return [it.slug for it in organizations], {slug for key in keys for slug in key.organizations}

    assert await listed(ADMINISTRATOR) == (["acme", "bolt", OTHER], {"acme", "bolt"})
    for role in (ADMIN, VIEWER):
        assert await listed(person(acme=role)) == (["acme"], {"acme"})
        assert await listed(person(acme=role, other=role)) == (["acme", OTHER], {"acme"})
    assert await listed(person()) == ([], set())
    assert len(await exported(ADMINISTRATOR, database)) == len(await audit_rows(database))


def as_if(actor: Actor, slug: str, other_slug: str) -> Actor:
    """The same with its role in another organization instead."""
    roles = {other_slug if known == slug else known: role for known, role in actor.roles.items()}
    return msgspec.structs.replace(actor, roles=roles)


async def refusal(name: str, actor: Actor, scene: Scene) -> Refused:
    """How the operation is refused."""
    with pytest.raises(Refused) as raised:
        await OPERATIONS[name].call(actor, scene)
    return raised.value
