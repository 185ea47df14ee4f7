"""Turn two-step sign-in on: the page shows a secret for an authenticator app, and a code proves that the app has it.

The secret travels in a field of the form that is signed for this person, so that no form can bring another secret.
Source: docs/interface.md section D11.
"""

import segno
from markupsafe import Markup

from stoplist.errors import Refused
from stoplist.staff import two_step
from stoplist.web.admin.account.paths import TWO_STEP_PATH
from stoplist.web.admin.form_names import read_signed_field, sign_field
from stoplist.web.admin.page_request import HtmlPage, PageRequest, get, post

_QUIET_ZONE = 4  # modules, as ISO/IEC 18004 requires


async def form(request: PageRequest) -> HtmlPage:
    """Show a new secret; after a wrong code the same one again, since the app already has it."""
    if request.person is not None and request.person.has_two_step:
        return HtmlPage("account/account_two_step.html", {"secret": ""})
    secret = _secret_shown_before(request) or two_step.begin(request.actor.id).secret
    return HtmlPage(
        "account/account_two_step.html",
        {
            "secret": secret,
            "signed_secret": sign_field(request, "secret", secret),
            "picture": qr_picture(two_step.provisioning_uri(secret, request.actor.id)),
        },
    )


async def turn_on(request: PageRequest) -> HtmlPage:
    """Turn it on and show the recovery codes once."""
    secret = read_signed_field(request, "secret")
    codes = await two_step.turn_on(
        request.actor,
        request.admin.staff,
        secret=secret,
        code=request.form.text("code"),
        password=request.form.exact("password"),
    )
    return HtmlPage("account/account_codes.html", {"codes": codes, "is_new": True})


def qr_picture(text: str) -> Markup:
    """Return a QR code as SVG, black on white even on dark pages."""
    # Any mask is readable. Trying all eight for the best one takes ten milliseconds.
    code = segno.make(text, micro=False, error="m", mask=0)
    return Markup(  # noqa: S704 - segno draws a path, which holds none of the text
        code.svg_inline(border=_QUIET_ZONE, dark="#000", light="#fff", omitsize=True, svgclass=None, lineclass=None)
    )


def _secret_shown_before(request: PageRequest) -> str | None:
    if "secret" not in request.form:
        return None
    try:
        return read_signed_field(request, "secret")
    except Refused:
        return None


ROUTES = (get(TWO_STEP_PATH, form), post(TWO_STEP_PATH, turn_on, on_refusal=form))
