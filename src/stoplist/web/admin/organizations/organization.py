"""An organization: its groups, its people, and the way to its keys and opt-outs. docs/interface.md sections D5, D11."""

from stoplist.oauth.credentials import list_credentials
from stoplist.organizations.groups import list_groups
from stoplist.organizations.organizations import show_organization
from stoplist.staff.people import people_of
from stoplist.unsubscribes.channel import CHANNELS
from stoplist.web.admin.page_request import Page, Visit, get
from stoplist.web.reference import prose


async def show(visit: Visit) -> Page:
    """The organization's page; its people are for its admins."""
    slug = visit.path["slug"]
    organization = await show_organization(visit.actor, visit.database, slug)
    keys = [key for key in await list_credentials(visit.actor, visit.database) if slug in key.organizations]
    is_admin = visit.actor.administers([slug])
    return Page(
        "organizations/organization.html",
        {
            "organization": organization,
            "groups": await list_groups(visit.actor, visit.database, org_slug=slug),
            "is_admin": is_admin,
            "may_change": is_admin and not organization.is_closed,
            "people": await people_of(visit.actor, visit.database, org_slug=slug) if is_admin else [],
            "keys": keys,
            "channels": CHANNELS,
            "words": prose.CHANNELS,
        },
    )


WAYS = (get("/organizations/{slug}", show),)
