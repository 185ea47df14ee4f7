"""Create a group. Source: docs/interface.md section D5."""

from stoplist.organizations.groups import create_group
from stoplist.organizations.organizations import show_organization
from stoplist.web.admin.page_request import Page, Redirect, Visit, get, post

_PATH = "/organizations/{slug}/groups/new"


async def form(visit: Visit) -> Page:
    """A name, and whether it is the default."""
    organization = await show_organization(visit.actor, visit.database, visit.path["slug"])
    visit.actor.must_administer(organization.slug)
    return Page("organizations/group_new.html", {"organization": organization})


async def create(visit: Visit) -> Redirect:
    """The group exists."""
    slug = visit.path["slug"]
    await create_group(
        visit.actor,
        visit.database,
        visit.clock,
        org_slug=slug,
        name=visit.form.text("name"),
        is_default="is_default" in visit.form,
    )
    return Redirect(f"/organizations/{slug}", note="group-created")


WAYS = (get(_PATH, form), post(_PATH, create, again=form))
