"""Turn two-step sign-in on: an authenticator app is told a secret, and shows that it has it by a code.

The secret goes with the form, sealed for the person whom it was shown to: nobody's form can bring another one.
Source: docs/interface.md section D11.
"""

import segno
from markupsafe import Markup

from stoplist.errors import Refused
from stoplist.staff import two_step
from stoplist.web.admin.form_names import opened, sealed
from stoplist.web.admin.page_request import Page, Visit, get, post

_PATH = "/settings/account/two-step"
_QUIET_ZONE = 4  # modules, as ISO/IEC 18004 wants it


async def form(visit: Visit) -> Page:
    """A new secret; after a wrong code the same one again, since the app knows it by then."""
    if visit.person is not None and visit.person.has_two_step:
        return Page("account/account_two_step.html", {"secret": ""})
    secret = _shown_before(visit) or two_step.begin(visit.actor.id).secret
    return Page(
        "account/account_two_step.html",
        {
            "secret": secret,
            "sealed": sealed(visit, "secret", secret),
            "picture": qr_picture(two_step.uri_of(secret, visit.actor.id)),
        },
    )


async def turn_on(visit: Visit) -> Page:
    """Codes are asked for from now on; the recovery codes are shown this once."""
    secret = opened(visit, "secret")
    codes = await two_step.turn_on(
        visit.actor,
        visit.desk.staff,
        secret=secret,
        code=visit.form.text("code"),
        password=visit.form.exact("password"),
    )
    return Page("account/account_codes.html", {"codes": codes, "is_new": True})


def qr_picture(text: str) -> Markup:
    """A QR code as SVG, black on white whatever the page's colours are."""
    # Any mask can be read; to try all eight for the prettiest takes ten milliseconds.
    code = segno.make(text, micro=False, error="m", mask=0)
    return Markup(  # noqa: S704 - segno draws it: a path, nothing of the text
        code.svg_inline(border=_QUIET_ZONE, dark="#000", light="#fff", omitsize=True, svgclass=None, lineclass=None)
    )


def _shown_before(visit: Visit) -> str | None:
    if "secret" not in visit.form:
        return None
    try:
        return opened(visit, "secret")
    except Refused:
        return None


WAYS = (get(_PATH, form), post(_PATH, turn_on, again=form))
