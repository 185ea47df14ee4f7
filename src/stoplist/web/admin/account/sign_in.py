"""Sign in, with a second step where it is turned on; and sign out. Source: docs/interface.md section D11."""

from stoplist.staff import sessions, signing_in
from stoplist.web.admin import cookies
from stoplist.web.admin.account.entry import entered
from stoplist.web.admin.page_request import Page, Redirect, Visit, get, post
from stoplist.web.request_context import SIGN_IN_PATH

_CODE_PATH = f"{SIGN_IN_PATH}/code"
_HOME = "/"


async def form(visit: Visit) -> Page | Redirect:
    """E-mail address and password."""
    if visit.person is not None and visit.refusal is None:
        return Redirect(_next(visit))
    return Page("account/sign_in.html", {"ticket": "", "next": _next(visit)})


async def code_form(visit: Visit) -> Page:
    """The code of the second step."""
    return Page("account/sign_in.html", {"ticket": visit.form.text("ticket"), "next": _next(visit)})


async def sign_in(visit: Visit) -> Page | Redirect:
    """Signed in, or asked for a code."""
    outcome = await signing_in.sign_in(
        visit.actor,
        visit.desk.staff,
        email=visit.form.text("email"),
        password=visit.form.exact("password"),
        user_agent=visit.user_agent,
    )
    return await entered(visit, outcome, to=_next(visit))


async def enter_code(visit: Visit) -> Page | Redirect:
    """Signed in by the second step."""
    outcome = await signing_in.second_step(
        visit.actor,
        visit.desk.staff,
        ticket=visit.form.text("ticket"),
        code=visit.form.text("code"),
        user_agent=visit.user_agent,
    )
    return await entered(visit, outcome, to=_next(visit))


async def sign_out(visit: Visit) -> Redirect:
    """This session has ended; the browser keeps none of its pages."""
    await sessions.sign_out(visit.database, visit.session_token)
    return Redirect(SIGN_IN_PATH, note="signed-out", headers=cookies.forget())


def _next(visit: Visit) -> str:
    """The page of ours that was asked for before; never another site's."""
    wanted = visit.form.text("next") or visit.query.text("next")
    # One slash begins a path of this host; browsers take a backslash for another, and leave out control characters.
    is_ours = wanted.startswith("/") and not wanted.startswith(("//", SIGN_IN_PATH)) and "\\" not in wanted
    return wanted if is_ours and wanted.isascii() and wanted.isprintable() else _HOME


WAYS = (
    get(SIGN_IN_PATH, form, is_open=True),
    post(SIGN_IN_PATH, sign_in, again=form, is_open=True),
    post(_CODE_PATH, enter_code, again=code_form, is_open=True),
    post("/settings/sign-out", sign_out, again=form),
)
