"""Choose the organization and channel of an import; the form with the file follows.

Source: docs/interface.md section D12, On the pages.
"""

from stoplist.errors import Forbidden, Missing, Refused
from stoplist.organizations.organizations import list_organizations
from stoplist.unsubscribes.channel import CHANNELS
from stoplist.web.admin.imports.paths import upload_path
from stoplist.web.admin.page_request import HtmlPage, PageRequest, Redirect, get


async def show(request: PageRequest) -> HtmlPage | Redirect:
    """Show the form, or lead on once both are chosen."""
    organizations = await list_organizations(request.actor, request.database)
    own = [each for each in organizations if request.actor.administers([each.slug]) and not each.is_closed]
    if not own:
        raise Forbidden("Only admins of an organization can import a file into it.")
    status = 200
    if "channel" in request.query:
        try:
            return Redirect(_chosen(request, {each.slug for each in own}))
        except Missing:
            raise
        except Refused as refusal:
            request.refusal, status = refusal, 422
    return HtmlPage("imports/import_new.html", {"organizations": own, "words": CHANNELS}, status)


def _chosen(request: PageRequest, own: set[str]) -> str:
    org_slug, channel = request.query.text("organization"), request.query.text("channel")
    if org_slug not in own:
        raise Refused("Choose one of the organizations that you administer.", field="organization")
    if channel not in CHANNELS:
        raise Refused(f"Choose one of these channels: {', '.join(CHANNELS)}.", field="channel")
    return upload_path(org_slug, CHANNELS[channel])


ROUTES = (get("/settings/imports/new", show),)
