"""Give a group another name. Source: docs/interface.md section D5."""

from stoplist.errors import Missing
from stoplist.organizations.groups import list_groups, rename_group
from stoplist.organizations.model import Group, Organization
from stoplist.organizations.organizations import show_organization
from stoplist.web.admin.visit import Page, Redirect, Visit, get, post

_PATH = "/organizations/{slug}/groups/{group_id}/rename"


async def form(visit: Visit) -> Page:
    """The name as it is."""
    organization, _, group = await group_of(visit)
    return Page("group_edit.html", {"organization": organization, "group": group})


async def rename(visit: Visit) -> Redirect:
    """The group has the new name."""
    group = await rename_group(
        visit.actor, visit.database, visit.clock, group_id=visit.path["group_id"], name=visit.form.text("name")
    )
    return Redirect(f"/organizations/{group.org_slug}", note="group-renamed")


async def group_of(visit: Visit) -> tuple[Organization, list[Group], Group]:
    """The group that the address names, with its organization and all of its groups, for whoever may change them."""
    organization = await show_organization(visit.actor, visit.database, visit.path["slug"])
    visit.actor.must_administer(organization.slug)
    groups = await list_groups(visit.actor, visit.database, org_slug=organization.slug)
    for group in groups:
        if group.group_id == visit.path["group_id"]:
            return organization, groups, group
    raise Missing("There is no group of that id in this organization.")


WAYS = (get(_PATH, form), post(_PATH, rename, again=form))
