"""The group that a path names."""

from stoplist.errors import Missing
from stoplist.organizations.groups import list_groups
from stoplist.organizations.model import Group, Organization
from stoplist.organizations.organizations import show_organization
from stoplist.web.admin.page_request import PageRequest


async def group_of(request: PageRequest) -> tuple[Organization, list[Group], Group]:
    """The group that the address names, with its organization and all of its groups, for whoever may change them."""
    organization = await show_organization(request.actor, request.database, request.path["slug"])
    request.actor.must_administer(organization.slug)
    groups = await list_groups(request.actor, request.database, org_slug=organization.slug)
    for group in groups:
        if group.group_id == request.path["group_id"]:
            return organization, groups, group
    raise Missing("There is no group of that id in this organization.")
