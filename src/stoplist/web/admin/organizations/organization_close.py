"""Close an organization, said beforehand what stops: this cannot be undone. Source: docs/interface.md section D5."""

from stoplist.oauth.credentials import list_credentials
from stoplist.organizations.organizations import close_organization, show_organization
from stoplist.web.admin.page_request import Page, Redirect, Visit, get, post

_PATH = "/organizations/{slug}/close"


async def form(visit: Visit) -> Page:
    """What will stop, and for which keys."""
    visit.actor.must_be_administrator()
    organization = await show_organization(visit.actor, visit.database, visit.path["slug"])
    keys = [
        key
        for key in await list_credentials(visit.actor, visit.database)
        if key.is_active and organization.slug in key.organizations
    ]
    return Page("organizations/organization_close.html", {"organization": organization, "keys": keys})


async def close(visit: Visit) -> Redirect:
    """The organization is closed for good."""
    slug = visit.path["slug"]
    await close_organization(visit.actor, visit.database, visit.clock, slug=slug)
    return Redirect(f"/organizations/{slug}", note="organization-closed")


WAYS = (get(_PATH, form), post(_PATH, close, again=form))
