"""What a sign-in link leads to: the choice of a password. The link is used up by the form, not by being opened, since
mail programs open what they find. Source: docs/interface.md section D11."""

from stoplist.errors import Missing, Refused
from stoplist.staff import links
from stoplist.web.admin.account.entry import entered
from stoplist.web.admin.page_request import HtmlPage, PageRequest, Redirect, get, post
from stoplist.web.request_context import SIGN_IN_LINK_PATH

_USED = (
    "This sign-in link was used, replaced by another one, or is older than 24 hours. If you have chosen a password, "
    "sign in with it; if not, ask an administrator for a new link."
)


async def form(request: PageRequest) -> HtmlPage:
    """Choose a password."""
    token = request.form.text("token") or request.query.text("token")
    person = await links.person_of_link(request.database, request.clock, token)
    if person is None:
        raise Missing(_USED)
    return HtmlPage("account/sign_in_link.html", {"link": person, "token": token})


async def choose(request: PageRequest) -> HtmlPage | Redirect:
    """The password is set, and its person signed in."""
    password = request.form.exact("password")
    if password != request.form.exact("repeated"):
        raise Refused("The two are not the same: type the password twice.", field="repeated")
    outcome = await links.use_link(
        request.actor,
        request.admin.staff,
        link_token=request.form.text("token"),
        password=password,
        user_agent=request.user_agent,
    )
    return await entered(request, outcome, to="/")


ROUTES = (
    get(SIGN_IN_LINK_PATH, form, is_open=True),
    post(SIGN_IN_LINK_PATH, choose, again=form, is_open=True),
)
