"""The page behind the link of an invitation, and the answers to invitations on the page of the account.

The page is the same whether the address has an account or not. Opening it answers nothing, since mail programs open
links by themselves. Source: docs/interface.md section D11.
"""

from stoplist.errors import Missing, Refused
from stoplist.staff.invitations import accept, accept_by_link, decline, invitation_of_link
from stoplist.web.admin.account.account import show as show_account
from stoplist.web.admin.account.paths import ACCOUNT_PATH
from stoplist.web.admin.account.sign_in_answer import answer_sign_in
from stoplist.web.admin.page_request import HtmlPage, PageRequest, Redirect, get, post
from stoplist.web.request_context import INVITATION_PATH

_DEAD = (
    "This invitation was answered, withdrawn or replaced by a newer one, or the link is older than 24 hours. If you "
    "have an account, sign in: open invitations are on the page Your account. If not, ask for a new invitation."
)


async def form(request: PageRequest) -> HtmlPage:
    """Show who invites, a way to sign in, and the form for a password. Raises Missing if the link is not valid."""
    token = request.form.text("token") or request.query.text("token")
    invitation = await invitation_of_link(request.database, request.clock, token)
    if invitation is None:
        raise Missing(_DEAD)
    return HtmlPage("account/invitation.html", {"invitation": invitation, "token": token})


async def choose(request: PageRequest) -> HtmlPage | Redirect:
    """Create the account with the role, and sign the person in."""
    password = request.form.exact("password")
    if password != request.form.exact("repeated"):
        raise Refused("The two passwords do not match. Enter the password twice.", field="repeated")
    outcome = await accept_by_link(
        request.actor,
        request.admin.staff,
        token=request.form.text("token"),
        password=password,
        user_agent=request.user_agent,
    )
    return await answer_sign_in(request, outcome, to="/")


async def accept_own(request: PageRequest) -> Redirect:
    """Accept an invitation of the signed-in person."""
    await accept(request.actor, request.database, request.clock, org_slug=request.form.text("org_slug"))
    return Redirect(ACCOUNT_PATH, note="invitation-accepted")


async def decline_own(request: PageRequest) -> Redirect:
    """Decline an invitation of the signed-in person."""
    await decline(request.actor, request.database, request.clock, org_slug=request.form.text("org_slug"))
    return Redirect(ACCOUNT_PATH, note="invitation-declined")


ROUTES = (
    get(INVITATION_PATH, form, is_open=True),
    post(INVITATION_PATH, choose, on_refusal=form, is_open=True),
    post(f"{ACCOUNT_PATH}/accept-invitation", accept_own, on_refusal=show_account),
    post(f"{ACCOUNT_PATH}/decline-invitation", decline_own, on_refusal=show_account),
)
