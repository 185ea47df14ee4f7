"""Withdraw the invitations of an organization. Source: docs/interface.md section D11."""

from stoplist.staff.invitations import withdraw
from stoplist.web.admin.organizations.organization import show
from stoplist.web.admin.page_request import PageRequest, Redirect, post


async def end(request: PageRequest) -> Redirect:
    """Delete an invitation that the person has not answered."""
    slug = request.path["slug"]
    await withdraw(request.actor, request.database, request.clock, email=request.form.text("email"), org_slug=slug)
    return Redirect(f"/organizations/{slug}", note="invitation-withdrawn")


ROUTES = (post("/organizations/{slug}/withdraw-invitation", end, on_refusal=show),)
