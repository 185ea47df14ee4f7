"""Settings → Your account: password, two-step sign-in, sessions. Source: docs/interface.md section D11."""

from stoplist.errors import Refused
from stoplist.staff.invitations import own_invitations
from stoplist.staff.passwords import change_password
from stoplist.staff.sessions import end_other_sessions, end_session, list_sessions
from stoplist.web.admin.account.paths import ACCOUNT_PATH
from stoplist.web.admin.page_request import HtmlPage, PageRequest, Redirect, get, post


async def show(request: PageRequest) -> HtmlPage:
    """Show the account of the signed-in person."""
    return HtmlPage(
        "account/account.html",
        {
            "invitations": await own_invitations(request.actor, request.database, request.clock),
            "sessions": await list_sessions(
                request.actor,
                request.database,
                request.clock,
                email=request.actor.id,
                current_session_id=request.session_id,
            ),
        },
    )


async def set_password(request: PageRequest) -> Redirect:
    """Change the password, which ends all other sessions."""
    new = request.form.exact("new")
    if new != request.form.exact("repeated"):
        raise Refused("The two passwords do not match. Enter the new password twice.", field="repeated")
    await change_password(
        request.actor,
        request.admin.staff,
        session_token=request.session_token,
        current=request.form.exact("current"),
        new=new,
    )
    return Redirect(ACCOUNT_PATH, note="password-changed")


async def end(request: PageRequest) -> Redirect:
    """End one session."""
    await end_session(request.actor, request.database, request.clock, session_id=request.form.text("session_id"))
    return Redirect(ACCOUNT_PATH, note="session-ended")


async def end_others(request: PageRequest) -> Redirect:
    """End every session but this one."""
    await end_other_sessions(request.actor, request.database, request.clock, keep_session_id=request.session_id)
    return Redirect(ACCOUNT_PATH, note="sessions-ended")


ROUTES = (
    get(ACCOUNT_PATH, show),
    post(f"{ACCOUNT_PATH}/password", set_password, on_refusal=show),
    post(f"{ACCOUNT_PATH}/end-session", end, on_refusal=show),
    post(f"{ACCOUNT_PATH}/end-other-sessions", end_others, on_refusal=show),
)
