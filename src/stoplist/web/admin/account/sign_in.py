"""Sign in, with a second step if it is on, and sign out. Source: docs/interface.md section D11."""

from stoplist.staff import sessions, signing_in
from stoplist.web.admin import cookies
from stoplist.web.admin.account.paths import SIGN_OUT_PATH
from stoplist.web.admin.account.sign_in_answer import answer_sign_in
from stoplist.web.admin.page_request import HtmlPage, PageRequest, Redirect, get, post
from stoplist.web.request_context import SIGN_IN_PATH

_CODE_PATH = f"{SIGN_IN_PATH}/code"
_HOME = "/"


async def form(request: PageRequest) -> HtmlPage | Redirect:
    """Show the form for e-mail address and password; people who are signed in are redirected."""
    if request.person is not None and request.refusal is None:
        return Redirect(_next(request))
    return HtmlPage("account/sign_in.html", {"ticket": "", "next": _next(request)})


async def code_form(request: PageRequest) -> HtmlPage:
    """Show the form for the code again, after a refusal."""
    return HtmlPage("account/sign_in.html", {"ticket": request.form.text("ticket"), "next": _next(request)})


async def sign_in(request: PageRequest) -> HtmlPage | Redirect:
    """Sign the person in, or ask for a code."""
    outcome = await signing_in.sign_in(
        request.actor,
        request.admin.staff,
        email=request.form.text("email"),
        password=request.form.exact("password"),
        user_agent=request.user_agent,
    )
    return await answer_sign_in(request, outcome, to=_next(request))


async def enter_code(request: PageRequest) -> HtmlPage | Redirect:
    """Sign the person in by a code."""
    outcome = await signing_in.second_step(
        request.actor,
        request.admin.staff,
        ticket=request.form.text("ticket"),
        code=request.form.text("code"),
        user_agent=request.user_agent,
    )
    return await answer_sign_in(request, outcome, to=_next(request))


async def sign_out(request: PageRequest) -> Redirect:
    """End this session and clear the pages from the browser's cache."""
    await sessions.sign_out(request.database, request.session_token)
    return Redirect(SIGN_IN_PATH, note="signed-out", headers=cookies.clear_session())


def _next(request: PageRequest) -> str:
    """Return the path of the page to open after signing in; never one of another site."""
    path = request.form.text("next") or request.query.text("next")
    # One slash starts a path of this host. Browsers read a backslash as a slash and drop control characters.
    is_own = path.startswith("/") and not path.startswith(("//", SIGN_IN_PATH)) and "\\" not in path
    return path if is_own and path.isascii() and path.isprintable() else _HOME


ROUTES = (
    get(SIGN_IN_PATH, form, is_open=True),
    post(SIGN_IN_PATH, sign_in, on_refusal=form, is_open=True),
    post(_CODE_PATH, enter_code, on_refusal=code_form, is_open=True),
    post(SIGN_OUT_PATH, sign_out, on_refusal=form),
)
