"""What a sign-in link leads to: the choice of a password. The link is used up by the form, not by being opened, since
mail programs open what they find. Source: docs/interface.md section D11."""

from stoplist.errors import Missing, Refused
from stoplist.staff import links
from stoplist.web.admin.account.entry import entered
from stoplist.web.admin.page_request import Page, Redirect, Visit, get, post
from stoplist.web.request_context import SIGN_IN_LINK_PATH

_USED = (
    "This sign-in link was used, replaced by another one, or is older than 24 hours. If you have chosen a password, "
    "sign in with it; if not, ask an administrator for a new link."
)


async def form(visit: Visit) -> Page:
    """Choose a password."""
    token = visit.form.text("token") or visit.query.text("token")
    person = await links.look_at_link(visit.database, visit.clock, token)
    if person is None:
        raise Missing(_USED)
    return Page("account/sign_in_link.html", {"link": person, "token": token})


async def choose(visit: Visit) -> Page | Redirect:
    """The password is set, and its person signed in."""
    password = visit.form.exact("password")
    if password != visit.form.exact("repeated"):
        raise Refused("The two are not the same: type the password twice.", field="repeated")
    outcome = await links.use_link(
        visit.actor,
        visit.desk.staff,
        link_token=visit.form.text("token"),
        password=password,
        user_agent=visit.user_agent,
    )
    return await entered(visit, outcome, to="/")


WAYS = (
    get(SIGN_IN_LINK_PATH, form, is_open=True),
    post(SIGN_IN_LINK_PATH, choose, again=form, is_open=True),
)
