"""What can be done with a group, each said beforehand: retire it, make it the default; and to go without a default.

Source: docs/interface.md section D5.
"""

from stoplist.organizations.groups import retire_group, set_default_group, unset_default_group
from stoplist.organizations.organizations import show_organization
from stoplist.web.admin.organizations.groups import group_of
from stoplist.web.admin.page_request import Page, Redirect, Visit, get, post

_RETIRE_PATH = "/organizations/{slug}/groups/{group_id}/retire"
_DEFAULT_PATH = "/organizations/{slug}/groups/{group_id}/default"
_NO_DEFAULT_PATH = "/organizations/{slug}/no-default"


async def retire_form(visit: Visit) -> Page:
    """What will be refused."""
    return await _page(visit, "retire")


async def retire(visit: Visit) -> Redirect:
    """The group is retired for good."""
    group = await retire_group(visit.actor, visit.database, visit.clock, group_id=visit.path["group_id"])
    return Redirect(f"/organizations/{group.org_slug}", note="group-retired")


async def default_form(visit: Visit) -> Page:
    """What will go where."""
    return await _page(visit, "default")


async def make_default(visit: Visit) -> Redirect:
    """Submissions that name no group go to this one."""
    slug, group_id = visit.path["slug"], visit.path["group_id"]
    await set_default_group(visit.actor, visit.database, visit.clock, org_slug=slug, group_id=group_id)
    return Redirect(f"/organizations/{slug}", note="group-default")


async def no_default_form(visit: Visit) -> Page:
    """What will be refused without a default group."""
    organization = await show_organization(visit.actor, visit.database, visit.path["slug"])
    visit.actor.must_administer(organization.slug)
    return Page(
        "organizations/group_change.html",
        {"organization": organization, "group": None, "default": None, "what": "none"},
    )


async def go_without(visit: Visit) -> Redirect:
    """The organization has no default group."""
    slug = visit.path["slug"]
    await unset_default_group(visit.actor, visit.database, visit.clock, org_slug=slug)
    return Redirect(f"/organizations/{slug}", note="group-no-default")


async def _page(visit: Visit, what: str) -> Page:
    organization, groups, group = await group_of(visit)
    default = next((one for one in groups if one.is_default), None)
    values = {"organization": organization, "group": group, "default": default, "what": what}
    return Page("organizations/group_change.html", values)


WAYS = (
    get(_RETIRE_PATH, retire_form),
    post(_RETIRE_PATH, retire, again=retire_form),
    get(_DEFAULT_PATH, default_form),
    post(_DEFAULT_PATH, make_default, again=default_form),
    get(_NO_DEFAULT_PATH, no_default_form),
    post(_NO_DEFAULT_PATH, go_without, again=no_default_form),
)
