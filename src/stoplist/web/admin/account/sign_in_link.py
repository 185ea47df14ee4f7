"""The page behind a sign-in link, where a person chooses a password.

Only sending the form uses the link up; opening it does not, since mail programs open links by themselves.
Source: docs/interface.md section D11.
"""

from stoplist.errors import Missing, Refused
from stoplist.staff import links
from stoplist.web.admin.account.sign_in_answer import answer_sign_in
from stoplist.web.admin.page_request import HtmlPage, PageRequest, Redirect, get, post
from stoplist.web.request_context import SIGN_IN_LINK_PATH

_USED = (
    "This sign-in link was used, replaced by a newer one, or is older than 24 hours. If you have chosen a password, "
    "sign in with it. If not, ask an administrator for a new link."
)


async def form(request: PageRequest) -> HtmlPage:
    """Show the form for a password. Raises Missing if the link is not valid."""
    token = request.form.text("token") or request.query.text("token")
    person = await links.person_of_link(request.database, request.clock, token)
    if person is None:
        raise Missing(_USED)
    return HtmlPage("account/sign_in_link.html", {"link": person, "token": token})


async def choose(request: PageRequest) -> HtmlPage | Redirect:
    """Set the password and sign the person in."""
    password = request.form.exact("password")
    if password != request.form.exact("repeated"):
        raise Refused("The two passwords do not match. Enter the password twice.", field="repeated")
    outcome = await links.use_link(
        request.actor,
        request.admin.staff,
        link_token=request.form.text("token"),
        password=password,
        user_agent=request.user_agent,
    )
    return await answer_sign_in(request, outcome, to="/")


ROUTES = (
    get(SIGN_IN_LINK_PATH, form, is_open=True),
    post(SIGN_IN_LINK_PATH, choose, on_refusal=form, is_open=True),
)
