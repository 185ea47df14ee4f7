"""Settings → Your account: password, two-step sign-in, sessions. Source: docs/interface.md section D11."""

from stoplist.errors import Refused
from stoplist.staff.passwords import change_password
from stoplist.staff.sessions import end_other_sessions, end_session, list_sessions
from stoplist.web.admin.account.paths import ACCOUNT_PATH
from stoplist.web.admin.page_request import Page, Redirect, Visit, get, post


async def show(visit: Visit) -> Page:
    """The account of the person who asks."""
    return Page(
        "account/account.html",
        {
            "sessions": await list_sessions(
                visit.actor,
                visit.database,
                visit.clock,
                email=visit.actor.id,
                current_session_id=visit.session_id,
            )
        },
    )


async def set_password(visit: Visit) -> Redirect:
    """The new password holds, and no other session lives on."""
    new = visit.form.exact("new")
    if new != visit.form.exact("repeated"):
        raise Refused("The two are not the same: type the new password twice.", field="repeated")
    await change_password(
        visit.actor,
        visit.desk.staff,
        session_token=visit.session_token,
        current=visit.form.exact("current"),
        new=new,
    )
    return Redirect(ACCOUNT_PATH, note="password-changed")


async def end(visit: Visit) -> Redirect:
    """That session has ended."""
    await end_session(visit.actor, visit.database, visit.clock, session_id=visit.form.text("session_id"))
    return Redirect(ACCOUNT_PATH, note="session-ended")


async def end_others(visit: Visit) -> Redirect:
    """Every session but this one has ended."""
    await end_other_sessions(visit.actor, visit.database, visit.clock, keep_session_id=visit.session_id)
    return Redirect(ACCOUNT_PATH, note="sessions-ended")


WAYS = (
    get(ACCOUNT_PATH, show),
    post(f"{ACCOUNT_PATH}/password", set_password, again=show),
    post(f"{ACCOUNT_PATH}/end-session", end, again=show),
    post(f"{ACCOUNT_PATH}/end-other-sessions", end_others, again=show),
)
