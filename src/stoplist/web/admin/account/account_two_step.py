"""Turn two-step sign-in on: an authenticator app is told a secret, and shows that it has it by a code.

The secret goes with the form, sealed for the person whom it was shown to: nobody's form can bring another one.
Source: docs/interface.md section D11.
"""

import segno
from markupsafe import Markup

from stoplist.errors import Refused
from stoplist.staff import two_step
from stoplist.web.admin.form_names import opened, sealed
from stoplist.web.admin.page_request import HtmlPage, PageRequest, get, post

_PATH = "/settings/account/two-step"
_QUIET_ZONE = 4  # modules, as ISO/IEC 18004 wants it


async def form(request: PageRequest) -> HtmlPage:
    """A new secret; after a wrong code the same one again, since the app knows it by then."""
    if request.person is not None and request.person.has_two_step:
        return HtmlPage("account/account_two_step.html", {"secret": ""})
    secret = _shown_before(request) or two_step.begin(request.actor.id).secret
    return HtmlPage(
        "account/account_two_step.html",
        {
            "secret": secret,
            "sealed": sealed(request, "secret", secret),
            "picture": qr_picture(two_step.provisioning_uri(secret, request.actor.id)),
        },
    )


async def turn_on(request: PageRequest) -> HtmlPage:
    """Codes are asked for from now on; the recovery codes are shown this once."""
    secret = opened(request, "secret")
    codes = await two_step.turn_on(
        request.actor,
        request.admin.staff,
        secret=secret,
        code=request.form.text("code"),
        password=request.form.exact("password"),
    )
    return HtmlPage("account/account_codes.html", {"codes": codes, "is_new": True})


def qr_picture(text: str) -> Markup:
    """A QR code as SVG, black on white whatever the page's colours are."""
    # Any mask can be read; to try all eight for the prettiest takes ten milliseconds.
    code = segno.make(text, micro=False, error="m", mask=0)
    return Markup(  # noqa: S704 - segno draws it: a path, nothing of the text
        code.svg_inline(border=_QUIET_ZONE, dark="#000", light="#fff", omitsize=True, svgclass=None, lineclass=None)
    )


def _shown_before(request: PageRequest) -> str | None:
    if "secret" not in request.form:
        return None
    try:
        return opened(request, "secret")
    except Refused:
        return None


ROUTES = (get(_PATH, form), post(_PATH, turn_on, again=form))
