"""What follows a right password or a sign-in link. Source: docs/interface.md section D11."""

from stoplist.staff import sessions
from stoplist.staff.model import SecondStep, SignedIn
from stoplist.web.admin import cookies
from stoplist.web.admin.page_request import HtmlPage, PageRequest, Redirect


async def entered(request: PageRequest, outcome: SignedIn | SecondStep, *, to: str) -> HtmlPage | Redirect:
    """What follows a right password: the page that was asked for, or the second step."""
    if isinstance(outcome, SecondStep):
        return HtmlPage("account/sign_in.html", {"ticket": outcome.ticket, "next": to})
    # The session that this browser had is not left behind for whoever finds its cookie.
    await sessions.sign_out(request.database, request.session_token)
    return Redirect(to, headers=cookies.keep(outcome.session_token))
