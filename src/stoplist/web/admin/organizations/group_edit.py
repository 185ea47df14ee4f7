"""Rename a group. Source: docs/interface.md section D5."""

from stoplist.organizations.groups import rename_group
from stoplist.web.admin.organizations.groups import group_of
from stoplist.web.admin.page_request import HtmlPage, PageRequest, Redirect, get, post

_PATH = "/organizations/{slug}/groups/{group_id}/rename"


async def form(request: PageRequest) -> HtmlPage:
    """Show the form with the current name."""
    organization, _, group = await group_of(request)
    return HtmlPage("organizations/group_edit.html", {"organization": organization, "group": group})


async def rename(request: PageRequest) -> Redirect:
    """Rename the group."""
    group = await rename_group(
        request.actor,
        request.database,
        request.clock,
        group_id=request.path["group_id"],
        name=request.form.text("name"),
    )
    return Redirect(f"/organizations/{group.org_slug}", note="group-renamed")


ROUTES = (get(_PATH, form), post(_PATH, rename, on_refusal=form))
