"""Sign in, with a second step where it is turned on; and sign out. Source: docs/interface.md section D11."""

from stoplist.staff import sessions, signing_in
from stoplist.web.admin import cookies
from stoplist.web.admin.account.entry import entered
from stoplist.web.admin.page_request import HtmlPage, PageRequest, Redirect, get, post
from stoplist.web.request_context import SIGN_IN_PATH

_CODE_PATH = f"{SIGN_IN_PATH}/code"
_HOME = "/"


async def form(request: PageRequest) -> HtmlPage | Redirect:
    """E-mail address and password."""
    if request.person is not None and request.refusal is None:
        return Redirect(_next(request))
    return HtmlPage("account/sign_in.html", {"ticket": "", "next": _next(request)})


async def code_form(request: PageRequest) -> HtmlPage:
    """The code of the second step."""
    return HtmlPage("account/sign_in.html", {"ticket": request.form.text("ticket"), "next": _next(request)})


async def sign_in(request: PageRequest) -> HtmlPage | Redirect:
    """Signed in, or asked for a code."""
    outcome = await signing_in.sign_in(
        request.actor,
        request.admin.staff,
        email=request.form.text("email"),
        password=request.form.exact("password"),
        user_agent=request.user_agent,
    )
    return await entered(request, outcome, to=_next(request))


async def enter_code(request: PageRequest) -> HtmlPage | Redirect:
    """Signed in by the second step."""
    outcome = await signing_in.second_step(
        request.actor,
        request.admin.staff,
        ticket=request.form.text("ticket"),
        code=request.form.text("code"),
        user_agent=request.user_agent,
    )
    return await entered(request, outcome, to=_next(request))


async def sign_out(request: PageRequest) -> Redirect:
    """This session has ended; the browser keeps none of its pages."""
    await sessions.sign_out(request.database, request.session_token)
    return Redirect(SIGN_IN_PATH, note="signed-out", headers=cookies.forget())


def _next(request: PageRequest) -> str:
    """The page of ours that was asked for before; never another site's."""
    wanted = request.form.text("next") or request.query.text("next")
    # One slash begins a path of this host; browsers take a backslash for another, and leave out control characters.
    is_ours = wanted.startswith("/") and not wanted.startswith(("//", SIGN_IN_PATH)) and "\\" not in wanted
    return wanted if is_ours and wanted.isascii() and wanted.isprintable() else _HOME


ROUTES = (
    get(SIGN_IN_PATH, form, is_open=True),
    post(SIGN_IN_PATH, sign_in, again=form, is_open=True),
    post(_CODE_PATH, enter_code, again=code_form, is_open=True),
    post("/settings/sign-out", sign_out, again=form),
)
