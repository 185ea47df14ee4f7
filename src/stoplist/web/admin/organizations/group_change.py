"""What can be done with a group, each said beforehand: retire it, make it the default; and to go without a default.

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
    """What will be refused."""
    return await _page(request, "retire")


async def retire(request: PageRequest) -> Redirect:
    """The group is retired for good."""
    group = await retire_group(request.actor, request.database, request.clock, group_id=request.path["group_id"])
    return Redirect(f"/organizations/{group.org_slug}", note="group-retired")


async def default_form(request: PageRequest) -> HtmlPage:
    """What will go where."""
    return await _page(request, "default")


async def make_default(request: PageRequest) -> Redirect:
    """Submissions that name no group go to this one."""
    slug, group_id = request.path["slug"], request.path["group_id"]
    await set_default_group(request.actor, request.database, request.clock, org_slug=slug, group_id=group_id)
    return Redirect(f"/organizations/{slug}", note="group-default")


async def no_default_form(request: PageRequest) -> HtmlPage:
    """What will be refused without a default group."""
    organization = await show_organization(request.actor, request.database, request.path["slug"])
    request.actor.must_administer(organization.slug)
    return HtmlPage(
        "organizations/group_change.html",
        {"organization": organization, "group": None, "default": None, "what": "none"},
    )


async def go_without(request: PageRequest) -> Redirect:
    """The organization has no default group."""
    slug = request.path["slug"]
    await unset_default_group(request.actor, request.database, request.clock, org_slug=slug)
    return Redirect(f"/organizations/{slug}", note="group-no-default")


async def _page(request: PageRequest, what: str) -> HtmlPage:
    organization, groups, group = await group_of(request)
    default = next((one for one in groups if one.is_default), None)
    values = {"organization": organization, "group": group, "default": default, "what": what}
    return HtmlPage("organizations/group_change.html", values)


ROUTES = (
    get(_RETIRE_PATH, retire_form),
    post(_RETIRE_PATH, retire, again=retire_form),
    get(_DEFAULT_PATH, default_form),
    post(_DEFAULT_PATH, make_default, again=default_form),
    get(_NO_DEFAULT_PATH, no_default_form),
    post(_NO_DEFAULT_PATH, go_without, again=no_default_form),
)
