"""Change the settings of a key. Source: docs/interface.md sections 2.1 and D11."""

from stoplist.errors import Forbidden
from stoplist.oauth.credentials import (
    DEFAULT_CEILING,
    Changes,
    set_ceilings,
    show_credential,
    update_credential,
)
from stoplist.oauth.store import may_change
from stoplist.organizations.organizations import list_organizations
from stoplist.web.admin.keys.fields import PERMISSION_TEXTS, read_ceiling
from stoplist.web.admin.page_request import Page, Redirect, Visit, get, post

_PATH = "/settings/keys/{client_id}/edit"


async def form(visit: Visit) -> Page:
    """The settings as they are."""
    key = await show_credential(visit.actor, visit.database, client_id=visit.path["client_id"])
    if not may_change(visit.actor, key):
        raise Forbidden("Only an admin of every organization that this key covers, or an administrator, changes it.")
    organizations = [
        one
        for one in await list_organizations(visit.actor, visit.database)
        if one.slug in key.organizations or (not one.is_closed and visit.actor.administers([one.slug]))
    ]
    return Page("keys/key_edit.html", {"key": key, "organizations": organizations, "permissions": PERMISSION_TEXTS})


async def save(visit: Visit) -> Redirect:
    """The key has what the form says."""
    client_id = visit.path["client_id"]
    changes = Changes(
        label=visit.form.text("label"),
        organizations=visit.form.all("organizations"),
        default_organization=visit.form.text("default_organization") or None,
        permissions=frozenset(visit.form.all("permissions")),
    )
    await update_credential(visit.actor, visit.database, visit.clock, client_id=client_id, changes=changes)
    return Redirect(f"/settings/keys/{client_id}", note="key-updated")


async def save_limits(visit: Visit) -> Redirect:
    """The key has these ceilings; an empty field means the default."""
    client_id = visit.path["client_id"]
    await set_ceilings(
        visit.actor,
        visit.database,
        visit.clock,
        client_id=client_id,
        token_per_minute=read_ceiling(visit, "token_per_minute") or DEFAULT_CEILING,
        api_per_minute=read_ceiling(visit, "api_per_minute") or DEFAULT_CEILING,
    )
    return Redirect(f"/settings/keys/{client_id}", note="key-limits")


WAYS = (
    get(_PATH, form),
    post(_PATH, save, again=form),
    post("/settings/keys/{client_id}/limits", save_limits, again=form),
)
