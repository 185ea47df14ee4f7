"""Create an organization. Source: docs/interface.md sections D5 and D11."""

from stoplist.organizations.organizations import create_organization
from stoplist.web.admin.page_request import Page, Redirect, Visit, get, post

_PATH = "/organizations/_new"  # no slug: an organization of that name would have no page


async def form(visit: Visit) -> Page:
    """Slug, name, and the first group."""
    visit.actor.must_be_administrator()
    return Page("organizations/organization_new.html")


async def create(visit: Visit) -> Redirect:
    """The organization exists; without a name for it, it has no default group."""
    organization = await create_organization(
        visit.actor,
        visit.database,
        visit.clock,
        slug=visit.form.text("slug"),
        name=visit.form.text("name"),
        default_group=visit.form.text("default_group") or None,
    )
    return Redirect(f"/organizations/{organization.slug}", note="organization-created")


WAYS = (get(_PATH, form), post(_PATH, create, again=form))
