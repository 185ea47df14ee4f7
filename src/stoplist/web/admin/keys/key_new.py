"""Create an API key; the answer shows its secret once. Source: docs/interface.md section 2.1."""

from stoplist import ids
from stoplist.errors import AlreadyMade
from stoplist.oauth.credentials import create_credential
from stoplist.organizations.organizations import list_organizations
from stoplist.web.admin.form_names import read_signed_field, sign_field
from stoplist.web.admin.keys.fields import PERMISSION_TEXTS, REFRESH_OPTIONS, read_rate_limit
from stoplist.web.admin.page_request import HtmlPage, PageRequest, Redirect, get, post

_PATH = "/settings/keys/new"


async def form(request: PageRequest) -> HtmlPage:
    """Show the form. It carries the future client_id, so that sending it twice creates one key."""
    organizations = [
        one
        for one in await list_organizations(request.actor, request.database)
        if not one.is_closed and request.actor.administers([one.slug])
    ]
    return HtmlPage(
        "keys/key_new.html",
        {
            "organizations": organizations,
            "permissions": PERMISSION_TEXTS,
            "refresh_options": REFRESH_OPTIONS,
            "client_id": sign_field(request, "client_id", ids.new_id(ids.CLIENT_ID)),
        },
    )


async def create(request: PageRequest) -> HtmlPage | Redirect:
    """Create the key and show its secret."""
    client_id = read_signed_field(request, "client_id")
    try:
        created = await create_credential(
            request.actor,
            request.database,
            request.clock,
            label=request.form.text("label"),
            organizations=request.form.all("organizations"),
            default_organization=request.form.text("default_organization") or None,
            permissions=frozenset(request.form.all("permissions")),
            client_id=client_id,
            token_per_minute=read_rate_limit(request, "token_per_minute"),
            api_per_minute=read_rate_limit(request, "api_per_minute"),
            refresh_needs_secret="needs_secret" in request.form.all("refresh"),
        )
    except AlreadyMade:
        return Redirect(f"/settings/keys/{client_id}", note="key-made-already")
    values = {
        "key": created.credential,
        "secret": created.client_secret,
        "heading": "Key created",
        "old_client_id": None,
    }
    return HtmlPage("keys/key_secret.html", values)


ROUTES = (get(_PATH, form), post(_PATH, create, on_refusal=form))
