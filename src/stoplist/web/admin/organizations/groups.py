"""Looks up the group in a path."""

from stoplist.errors import Missing
from stoplist.organizations.groups import list_groups
from stoplist.organizations.model import Group, Organization
from stoplist.organizations.organizations import show_organization
from stoplist.web.admin.page_request import PageRequest


async def group_of(request: PageRequest) -> tuple[Organization, list[Group], Group]:
    """Return the organization and the group in the path, and all groups of the organization.

    Raises Missing, and Forbidden unless the person may change groups there.
    """
    organization = await show_organization(request.actor, request.database, request.path["slug"])
    request.actor.require_admin_of(organization.slug)
    groups = await list_groups(request.actor, request.database, org_slug=organization.slug)
    for group in groups:
        if group.group_id == request.path["group_id"]:
            return organization, groups, group
    raise Missing("This organization has no group with that id.")
