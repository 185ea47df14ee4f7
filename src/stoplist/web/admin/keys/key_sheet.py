"""What a partner needs to know to use a key, to copy or print: everything but the secret."""

from stoplist.oauth.credentials import show_credential
from stoplist.organizations.groups import list_groups
from stoplist.organizations.organizations import list_organizations
from stoplist.web.admin.page_request import Page, Visit, get
from stoplist.web.request_context import API_PATH, DOCS_PATH, TOKEN_PATH


async def show(visit: Visit) -> Page:
    """The sheet."""
    key = await show_credential(visit.actor, visit.database, client_id=visit.path["client_id"])
    organizations = [
        (one, await list_groups(visit.actor, visit.database, org_slug=one.slug))
        for one in await list_organizations(visit.actor, visit.database)
        if one.slug in key.organizations and not one.is_closed
    ]
    return Page(
        "keys/key_sheet.html",
        {
            "key": key,
            "organizations": organizations,
            "base_url": visit.desk.base_url,
            "token_path": TOKEN_PATH,
            "api_path": API_PATH,
            "docs_path": DOCS_PATH,
        },
    )


WAYS = (get("/settings/keys/{client_id}/sheet", show),)
