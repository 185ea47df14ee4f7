"""The answer after a correct password or sign-in link. Source: docs/interface.md section D11."""

import msgspec

from stoplist.staff import sessions
from stoplist.staff.invitations import own_invitations
from stoplist.staff.model import SecondStep, SignedIn
from stoplist.web.admin import cookies
from stoplist.web.admin.account.paths import ACCOUNT_PATH
from stoplist.web.admin.page_request import HtmlPage, PageRequest, Redirect


async def answer_sign_in(request: PageRequest, outcome: SignedIn | SecondStep, *, to: str) -> HtmlPage | Redirect:
    """Return a redirect to the path `to` with the new session, or the page of the second step.

    Instead of the overview, a person with open invitations sees these first.
    """
    if isinstance(outcome, SecondStep):
        return HtmlPage("account/sign_in.html", {"ticket": outcome.ticket, "next": to})
    # End the session that this browser had, so that nobody can use it who finds its cookie.
    await sessions.sign_out(request.database, request.session_token)
    person = msgspec.structs.replace(request.actor, id=outcome.person.email)
    if to == "/" and await own_invitations(person, request.database, request.clock):
        to = ACCOUNT_PATH
    return Redirect(to, headers=cookies.set_session(outcome.session_token))
