"""Give a group another name. Source: docs/interface.md section D5."""

from stoplist.organizations.groups import rename_group
from stoplist.web.admin.organizations.groups import group_of
from stoplist.web.admin.page_request import Page, Redirect, Visit, get, post

_PATH = "/organizations/{slug}/groups/{group_id}/rename"


async def form(visit: Visit) -> Page:
    """The name as it is."""
    organization, _, group = await group_of(visit)
    return Page("organizations/group_edit.html", {"organization": organization, "group": group})


async def rename(visit: Visit) -> Redirect:
    """The group has the new name."""
    group = await rename_group(
        visit.actor, visit.database, visit.clock, group_id=visit.path["group_id"], name=visit.form.text("name")
    )
    return Redirect(f"/organizations/{group.org_slug}", note="group-renamed")


WAYS = (get(_PATH, form), post(_PATH, rename, again=form))
