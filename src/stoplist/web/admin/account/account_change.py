"""Turn two-step sign-in off or create new recovery codes; both ask for the password.

Source: docs/interface.md section D11.
"""

from stoplist.staff import two_step
from stoplist.web.admin.account.paths import ACCOUNT_PATH
from stoplist.web.admin.page_request import HtmlPage, PageRequest, Redirect, get, post

_OFF_PATH = f"{ACCOUNT_PATH}/two-step-off"
_CODES_PATH = f"{ACCOUNT_PATH}/recovery-codes"


async def off_form(request: PageRequest) -> HtmlPage:
    """Show what turning it off means."""
    return HtmlPage("account/account_change.html", {"action": "two-step-off"})


async def turn_off(request: PageRequest) -> Redirect:
    """Turn two-step sign-in off."""
    await two_step.turn_off(request.actor, request.admin.staff, password=request.form.exact("password"))
    return Redirect(ACCOUNT_PATH, note="two-step-off")


async def codes_form(request: PageRequest) -> HtmlPage:
    """Show what happens to the old codes."""
    return HtmlPage("account/account_change.html", {"action": "recovery-codes"})


async def renew_codes(request: PageRequest) -> HtmlPage:
    """Create ten new codes and show them once."""
    codes = await two_step.new_recovery_codes(
        request.actor, request.admin.staff, password=request.form.exact("password")
    )
    return HtmlPage("account/account_codes.html", {"codes": codes, "is_new": False})


ROUTES = (
    get(_OFF_PATH, off_form),
    post(_OFF_PATH, turn_off, on_refusal=off_form),
    get(_CODES_PATH, codes_form),
    post(_CODES_PATH, renew_codes, on_refusal=codes_form),
)
