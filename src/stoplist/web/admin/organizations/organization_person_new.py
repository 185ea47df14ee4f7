"""Add a person to an organization, or invite one, by e-mail address. Source: docs/interface.md section D11."""

from stoplist import ids
from stoplist.db import Transaction
from stoplist.notices.sealed_links import SealedLink, add_link
from stoplist.organizations.organizations import show_organization
from stoplist.staff.invitations import SendInvitation, invite
from stoplist.staff.model import NewInvitation
from stoplist.staff.people import add_to_organization
from stoplist.web.admin.page_request import HtmlPage, PageRequest, Redirect, get, post
from stoplist.web.admin.roles import ROLE_TEXTS, read_role
from stoplist.web.admin.sign_in_links import link_page, link_sender, person_path
from stoplist.web.request_context import INVITATION_PATH

_PATH = "/organizations/{slug}/people/new"


async def form(request: PageRequest) -> HtmlPage:
    """Show the form for an e-mail address and a role."""
    organization = await show_organization(request.actor, request.database, request.path["slug"])
    request.actor.require_admin_of(organization.slug)
    return HtmlPage("organizations/organization_person_new.html", {"organization": organization, "roles": ROLE_TEXTS})


async def add(request: PageRequest) -> HtmlPage | Redirect:
    """Give the person the role, for an administrator: a new person gets an account, whose link is sent or shown once.

    For an admin of the organization, offer the role: the answer is the same whether there is an account or not.
    """
    slug = request.path["slug"]
    if not request.actor.is_administrator:
        return await _invite(request, slug)
    person, link = await add_to_organization(
        request.actor,
        request.database,
        request.clock,
        email=request.form.text("email"),
        org_slug=slug,
        role=read_role(request),
        send=link_sender(request),
    )
    back = person_path(person.email, slug)
    if link is None:
        return Redirect(back, note="role-set-known")
    return link_page(request, link, back=back)


async def _invite(request: PageRequest, slug: str) -> HtmlPage:
    new = await invite(
        request.actor,
        request.database,
        request.clock,
        email=request.form.text("email"),
        org_slug=slug,
        role=read_role(request),
        send=_invitation_sender(request),
    )
    url = None if request.admin.sends_mail else _url_of(request, new)
    return HtmlPage("organizations/invitation_made.html", {"new": new, "url": url, "back": f"/organizations/{slug}"})


def _invitation_sender(request: PageRequest) -> SendInvitation | None:
    """Return what sends an invitation to its address; None if this deployment sends no e-mail."""
    if not request.admin.sends_mail:
        return None

    async def send(transaction: Transaction, new: NewInvitation, now_ms: int) -> None:
        await add_link(
            transaction,
            SealedLink(
                _url_of(request, new),
                address=new.invitation.email,
                organization=new.invitation.org_name,
                link_hash=ids.hash_secret(new.link_token),
            ),
            secret_keys=request.admin.secret_keys,
            now_ms=now_ms,
            expires_ms=new.link_expires_ms,
        )

    return send


def _url_of(request: PageRequest, new: NewInvitation) -> str:
    return f"{request.admin.base_url}{INVITATION_PATH}?token={new.link_token}"


ROUTES = (get(_PATH, form), post(_PATH, add, on_refusal=form))
