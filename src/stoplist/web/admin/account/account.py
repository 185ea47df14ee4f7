"""Settings → Your account: password, two-step sign-in, sessions. Source: docs/interface.md section D11."""

from stoplist.errors import Refused
from stoplist.staff.passwords import change_password
from stoplist.staff.sessions import end_other_sessions, end_session, list_sessions
from stoplist.web.admin.account.paths import ACCOUNT_PATH
from stoplist.web.admin.page_request import HtmlPage, PageRequest, Redirect, get, post


async def show(request: PageRequest) -> HtmlPage:
    """The account of the person who asks."""
    return HtmlPage(
        "account/account.html",
        {
            "sessions": await list_sessions(
                request.actor,
                request.database,
                request.clock,
                email=request.actor.id,
                current_session_id=request.session_id,
            )
        },
    )


async def set_password(request: PageRequest) -> Redirect:
    """The new password holds, and no other session lives on."""
    new = request.form.exact("new")
    if new != request.form.exact("repeated"):
        raise Refused("The two are not the same: type the new password twice.", field="repeated")
    await change_password(
        request.actor,
        request.admin.staff,
        session_token=request.session_token,
        current=request.form.exact("current"),
        new=new,
    )
    return Redirect(ACCOUNT_PATH, note="password-changed")


async def end(request: PageRequest) -> Redirect:
    """That session has ended."""
    await end_session(request.actor, request.database, request.clock, session_id=request.form.text("session_id"))
    return Redirect(ACCOUNT_PATH, note="session-ended")


async def end_others(request: PageRequest) -> Redirect:
    """Every session but this one has ended."""
    await end_other_sessions(request.actor, request.database, request.clock, keep_session_id=request.session_id)
    return Redirect(ACCOUNT_PATH, note="sessions-ended")


ROUTES = (
    get(ACCOUNT_PATH, show),
    post(f"{ACCOUNT_PATH}/password", set_password, again=show),
    post(f"{ACCOUNT_PATH}/end-session", end, again=show),
    post(f"{ACCOUNT_PATH}/end-other-sessions", end_others, again=show),
)
