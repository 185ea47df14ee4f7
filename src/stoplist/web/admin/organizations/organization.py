"""An organization: its groups and people, and links to its keys and opt-outs. docs/interface.md sections D5, D11."""

from stoplist.oauth.credentials import list_credentials
from stoplist.organizations.groups import list_groups
from stoplist.organizations.organizations import show_organization
from stoplist.staff.invitations import list_invitations
from stoplist.staff.people import people_of
from stoplist.unsubscribes.channel import CHANNELS
from stoplist.web.admin.page_request import HtmlPage, PageRequest, get


async def show(request: PageRequest) -> HtmlPage:
    """Show the organization; only its admins see its people."""
    slug = request.path["slug"]
    organization = await show_organization(request.actor, request.database, slug)
    keys = [key for key in await list_credentials(request.actor, request.database) if slug in key.organizations]
    is_admin = request.actor.administers([slug])
    return HtmlPage(
        "organizations/organization.html",
        {
            "organization": organization,
            "groups": await list_groups(request.actor, request.database, org_slug=slug),
            "is_admin": is_admin,
            "may_change": is_admin and not organization.is_closed,
            "people": await people_of(request.actor, request.database, org_slug=slug) if is_admin else [],
            "invitations": await list_invitations(request.actor, request.database, request.clock, org_slug=slug)
            if is_admin
            else [],
            "keys": keys,
            "channels": CHANNELS,
            "words": CHANNELS,
        },
    )


ROUTES = (get("/organizations/{slug}", show),)
