"""What is done with two-step sign-in once it is on, against the password: new recovery codes, and turning it off.

Source: docs/interface.md section D11.
"""

from stoplist.staff import two_step
from stoplist.web.admin.account.paths import ACCOUNT_PATH
from stoplist.web.admin.page_request import HtmlPage, PageRequest, Redirect, get, post

_OFF_PATH = f"{ACCOUNT_PATH}/two-step-off"
_CODES_PATH = f"{ACCOUNT_PATH}/recovery-codes"


async def off_form(request: PageRequest) -> HtmlPage:
    """What is given up."""
    return HtmlPage("account/account_change.html", {"what": "two-step-off"})


async def turn_off(request: PageRequest) -> Redirect:
    """No code is asked for any more."""
    await two_step.turn_off(request.actor, request.admin.staff, password=request.form.exact("password"))
    return Redirect(ACCOUNT_PATH, note="two-step-off")


async def codes_form(request: PageRequest) -> HtmlPage:
    """What becomes of the codes from before."""
    return HtmlPage("account/account_change.html", {"what": "recovery-codes"})


async def renew_codes(request: PageRequest) -> HtmlPage:
    """There are ten new codes, which are shown this once."""
    codes = await two_step.new_recovery_codes(
        request.actor, request.admin.staff, password=request.form.exact("password")
    )
    return HtmlPage("account/account_codes.html", {"codes": codes, "is_new": False})


ROUTES = (
    get(_OFF_PATH, off_form),
    post(_OFF_PATH, turn_off, again=off_form),
    get(_CODES_PATH, codes_form),
    post(_CODES_PATH, renew_codes, again=codes_form),
)
