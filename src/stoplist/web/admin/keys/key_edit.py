"""Change the settings of a key. Source: docs/interface.md sections 2.1 and D11."""

from stoplist.errors import Forbidden
from stoplist.oauth.ceilings import set_ceilings
from stoplist.oauth.credentials import Changes, show_credential, update_credential
from stoplist.oauth.key_rules import DEFAULT_CEILING
from stoplist.oauth.store import may_change
from stoplist.organizations.organizations import list_organizations
from stoplist.web.admin.keys.fields import PERMISSION_TEXTS, REFRESH_OPTIONS, read_rate_limit
from stoplist.web.admin.page_request import HtmlPage, PageRequest, Redirect, get, post

_PATH = "/settings/keys/{client_id}/edit"


async def form(request: PageRequest) -> HtmlPage:
    """Show the form with the current settings."""
    key = await show_credential(request.actor, request.database, client_id=request.path["client_id"])
    if not may_change(request.actor, key):
        raise Forbidden("Only an administrator, or an admin of every organization that this key covers, can change it.")
    organizations = [
        one
        for one in await list_organizations(request.actor, request.database)
        if one.slug in key.organizations or (not one.is_closed and request.actor.administers([one.slug]))
    ]
    return HtmlPage(
        "keys/key_edit.html",
        {
            "key": key,
            "organizations": organizations,
            "permissions": PERMISSION_TEXTS,
            "refresh_options": REFRESH_OPTIONS,
        },
    )


async def save(request: PageRequest) -> Redirect:
    """Save the settings."""
    client_id = request.path["client_id"]
    changes = Changes(
        label=request.form.text("label"),
        organizations=request.form.all("organizations"),
        default_organization=request.form.text("default_organization") or None,
        permissions=frozenset(request.form.all("permissions")),
        refresh_needs_secret="needs_secret" in request.form.all("refresh"),
    )
    await update_credential(request.actor, request.database, request.clock, client_id=client_id, changes=changes)
    return Redirect(f"/settings/keys/{client_id}", note="key-updated")


async def save_limits(request: PageRequest) -> Redirect:
    """Save the rate limits; an empty field means the default."""
    client_id = request.path["client_id"]
    await set_ceilings(
        request.actor,
        request.database,
        request.clock,
        client_id=client_id,
        token_per_minute=read_rate_limit(request, "token_per_minute") or DEFAULT_CEILING,
        api_per_minute=read_rate_limit(request, "api_per_minute") or DEFAULT_CEILING,
    )
    return Redirect(f"/settings/keys/{client_id}", note="key-limits")


ROUTES = (
    get(_PATH, form),
    post(_PATH, save, on_refusal=form),
    post("/settings/keys/{client_id}/limits", save_limits, on_refusal=form),
)
