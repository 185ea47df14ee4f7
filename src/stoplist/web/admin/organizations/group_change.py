"""Actions on groups: retire one, make it the default, remove the default. Each page states the consequences first.

Source: docs/interface.md section D5.
"""

from stoplist.organizations.groups import retire_group, set_default_group, unset_default_group
from stoplist.organizations.organizations import show_organization
from stoplist.web.admin.organizations.groups import group_of
from stoplist.web.admin.page_request import HtmlPage, PageRequest, Redirect, get, post

_RETIRE_PATH = "/organizations/{slug}/groups/{group_id}/retire"
_DEFAULT_PATH = "/organizations/{slug}/groups/{group_id}/default"
_NO_DEFAULT_PATH = "/organizations/{slug}/no-default"


async def retire_form(request: PageRequest) -> HtmlPage:
    """Show what retiring the group means."""
    return await _page(request, "retire")


async def retire(request: PageRequest) -> Redirect:
    """Retire the group, which cannot be undone."""
    group = await retire_group(request.actor, request.database, request.clock, group_id=request.path["group_id"])
    return Redirect(f"/organizations/{group.org_slug}", note="group-retired")


async def default_form(request: PageRequest) -> HtmlPage:
    """Show which submissions would go to this group."""
    return await _page(request, "default")


async def make_default(request: PageRequest) -> Redirect:
    """Make this the group of submissions that name none."""
    slug, group_id = request.path["slug"], request.path["group_id"]
    await set_default_group(request.actor, request.database, request.clock, org_slug=slug, group_id=group_id)
    return Redirect(f"/organizations/{slug}", note="group-default")


async def no_default_form(request: PageRequest) -> HtmlPage:
    """Show which submissions would be refused without a default group."""
    organization = await show_organization(request.actor, request.database, request.path["slug"])
    request.actor.require_admin_of(organization.slug)
    return HtmlPage(
        "organizations/group_change.html",
        {"organization": organization, "group": None, "default": None, "action": "none"},
    )


async def remove_default(request: PageRequest) -> Redirect:
    """Leave the organization without a default group."""
    slug = request.path["slug"]
    await unset_default_group(request.actor, request.database, request.clock, org_slug=slug)
    return Redirect(f"/organizations/{slug}", note="group-no-default")


async def _page(request: PageRequest, action: str) -> HtmlPage:
    organization, groups, group = await group_of(request)
    default = next((one for one in groups if one.is_default), None)
    values = {"organization": organization, "group": group, "default": default, "action": action}
    return HtmlPage("organizations/group_change.html", values)


ROUTES = (
    get(_RETIRE_PATH, retire_form),
    post(_RETIRE_PATH, retire, on_refusal=retire_form),
    get(_DEFAULT_PATH, default_form),
    post(_DEFAULT_PATH, make_default, on_refusal=default_form),
    get(_NO_DEFAULT_PATH, no_default_form),
    post(_NO_DEFAULT_PATH, remove_default, on_refusal=no_default_form),
)
