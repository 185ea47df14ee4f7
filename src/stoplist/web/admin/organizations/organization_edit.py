"""Give an organization another name. Source: docs/interface.md sections D5 and D11."""

from stoplist.organizations.organizations import rename_organization, show_organization
from stoplist.web.admin.page_request import Page, Redirect, Visit, get, post

_PATH = "/organizations/{slug}/rename"


async def form(visit: Visit) -> Page:
    """The name as it is."""
    organization = await show_organization(visit.actor, visit.database, visit.path["slug"])
    visit.actor.must_administer(organization.slug)
    return Page("organizations/organization_edit.html", {"organization": organization})


async def rename(visit: Visit) -> Redirect:
    """The organization has the new name."""
    slug = visit.path["slug"]
    await rename_organization(visit.actor, visit.database, visit.clock, slug=slug, name=visit.form.text("name"))
    return Redirect(f"/organizations/{slug}", note="organization-renamed")


WAYS = (get(_PATH, form), post(_PATH, rename, again=form))
