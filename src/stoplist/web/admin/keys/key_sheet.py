"""A sheet for the partner with everything needed to use a key except the secret, to copy or print."""

from stoplist.oauth.credentials import show_credential
from stoplist.oauth.store import may_change
from stoplist.organizations.groups import list_groups
from stoplist.organizations.organizations import list_organizations
from stoplist.web.admin.page_request import HtmlPage, PageRequest, get
from stoplist.web.request_context import API_PATH, DOCS_PATH, TOKEN_PATH


async def show(request: PageRequest) -> HtmlPage:
    """Show the sheet."""
    key = await show_credential(request.actor, request.database, client_id=request.path["client_id"])
    organizations = [
        (one, await list_groups(request.actor, request.database, org_slug=one.slug))
        for one in await list_organizations(request.actor, request.database)
        if one.slug in key.organizations and not one.is_closed
    ]
    return HtmlPage(
        "keys/key_sheet.html",
        {
            "key": key,
            "may_change": may_change(request.actor, key),
            "organizations": organizations,
            "base_url": request.admin.base_url,
            "token_path": TOKEN_PATH,
            "api_path": API_PATH,
            "docs_path": DOCS_PATH,
        },
    )


ROUTES = (get("/settings/keys/{client_id}/sheet", show),)
