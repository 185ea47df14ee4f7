"""Makes the page behind an opt-out link: plain HTML with one style sheet inside, and no script.

`_fill` escapes every value. (Markup.format does the same in Python, and would take most of the time of a page.)
Source: docs/interface.md section D15.
"""

import base64
import hashlib
import re
from functools import cache, lru_cache
from importlib import resources
from typing import NamedTuple

from markupsafe import Markup, escape

from stoplist.links.clicked_link import ClickedLink, LinkOrganization
from stoplist.links.opt_out import OptOutState
from stoplist.web.links.address_mask import masked
from stoplist.web.links.colours import DARK_CARD, DEFAULT_ACCENT, LIGHT_CARD, edge_colour, text_colour_on
from stoplist.web.links.texts import Texts
from stoplist.web.request_context import NO_STORE, Headers

_CSS = resources.files(__package__).joinpath("page.css").read_text("utf-8")

_DOCUMENT = """<!DOCTYPE html>
<html lang="{language}" dir="{direction}">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="robots" content="noindex">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<main>
{sender}<h1>{heading}</h1>
{content}{contact}</main>
</body>
</html>
"""
_SENDER = '<p class="from"><bdi>{}</bdi></p>\n'
_PARAGRAPH = "<p>{}</p>\n"
_DONE = '<p class="done">{}</p>\n'
_HINT = '<p class="hint">{}</p>\n'
_CONTACT = "<footer><p>{}</p></footer>\n"
_FORM = '<form method="post">\n{}</form>\n'
_BUTTON = '<button name="choice" value="{}"{}>{}</button>\n'
_UNDO = '<input type="hidden" name="undo" value="{}"><button class="second">{}</button>\n'
_NAME = "<bdi>{}</bdi>"
_ADDRESS = '<bdi dir="ltr">{}</bdi>'
_HYPHENATED = re.compile(r"\w+-\w+")
_NOTHING = Markup()
_PLAIN_TEXT = (b"content-type", b"text/plain; charset=utf-8")
_Names = dict[str, Markup]
_SECOND = Markup(' class="second"')


class LinkPage(NamedTuple):
    """A page with its status and headers."""

    status: int
    body: bytes
    headers: Headers


def ask_page(texts: Texts, link: ClickedLink, state: OptOutState) -> LinkPage:
    """Return the page that asks, with a button for the group of the link and one for everything on its channel."""
    names = _names(link)
    content = _fill(_PARAGRAPH, _text(texts.about, names)) + _state_lines(texts, link, state, names)
    return _page(texts, 200, texts.ask, content + _choices(texts, link, state, names), link.organization)


def done_page(texts: Texts, link: ClickedLink, state: OptOutState, *, undo_field: str | None) -> LinkPage:
    """Return the page that confirms a choice. `undo_field` undoes it; None if there is nothing to undo."""
    names = _names(link)
    content = _fill(_PARAGRAPH, _text(texts.about, names)) + _state_lines(texts, link, state, names)
    if undo_field is not None:
        content += _fill(_FORM, _fill(_UNDO, undo_field, texts.undo)) + _fill(_HINT, texts.undo_hint)
    return _page(texts, 200, texts.done, content + _choices(texts, link, state, names), link.organization)


def undone_page(texts: Texts, link: ClickedLink, state: OptOutState, *, is_undone: bool) -> LinkPage:
    """Return the page after Undo. `is_undone` is false if an opt-out sent since then stands."""
    names = _names(link)
    heading, text = (texts.undone, texts.undone_text) if is_undone else (texts.not_undone, texts.not_undone_text)
    content = _fill(_PARAGRAPH, text) + _state_lines(texts, link, state, names) + _choices(texts, link, state, names)
    return _page(texts, 200, heading, content, link.organization)


def expired_undo_page(texts: Texts, link: ClickedLink) -> LinkPage:
    """Return the page for an Undo that has expired or was altered."""
    return _page(texts, 422, texts.undo_expired, _fill(_PARAGRAPH, texts.undo_expired_text), link.organization)


def ended_page(texts: Texts, organization: LinkOrganization) -> LinkPage:
    """Return the page for a link whose key was revoked."""
    content = _fill(_PARAGRAPH, _fill(texts.ended_text, organization=_fill(_NAME, organization.name)))
    return _page(texts, 410, texts.ended, content, organization)


def unusable_page(texts: Texts, organization: LinkOrganization) -> LinkPage:
    """Return the page for a link without an acceptable address."""
    content = _fill(_PARAGRAPH, _fill(texts.unusable_text, organization=_fill(_NAME, organization.name)))
    return _page(texts, 422, texts.unusable, content, organization)


def unknown_page(texts: Texts) -> LinkPage:
    """Return the page for an unknown link."""
    return _page(texts, 404, texts.unknown, _fill(_PARAGRAPH, texts.unknown_text), None)


def problem_page(texts: Texts, status: int) -> LinkPage:
    """Return the page for an error, which says to try again in a minute or to open the link again."""
    heading, text = {
        429: (texts.too_many, texts.too_many_text),
        503: (texts.unavailable, texts.unavailable_text),
    }.get(status, (texts.failed, texts.failed_text))
    return _page(texts, status, heading, _fill(_PARAGRAPH, text), None)


def one_click_answer(texts: Texts) -> LinkPage:
    """Return the short text that answers a one-click opt-out."""
    return LinkPage(200, f"{texts.one_click}\n".encode(), [_PLAIN_TEXT, *_headers(texts.language)])


def _fill(template: str, *values: object, **named: object) -> Markup:
    """Return a template with these values, which are escaped unless they are Markup."""
    escaped = {name: escape(value) for name, value in named.items()}
    return Markup(template.format(*map(escape, values), **escaped))  # noqa: S704 - a template of ours


def _state_lines(texts: Texts, link: ClickedLink, state: OptOutState, names: _Names) -> Markup:
    """Return a line for each thing that the person has opted out of."""
    said = _NOTHING
    if state.group and not state.everything:
        said += _fill(_DONE, _text(texts.has_left_group, names))
    if state.everything:
        said += _fill(_DONE, _text(texts.has_left_everything[link.channel.name], names))
    return said


def _choices(texts: Texts, link: ClickedLink, state: OptOutState, names: _Names) -> Markup:
    """Return the form with a button for each thing that the person can still opt out of."""
    buttons = _NOTHING
    if link.group is not None and not state.group and not state.everything:
        buttons += _fill(_BUTTON, "group", _NOTHING, _text(texts.leave_group, names))
    if not state.everything:
        # The group, if there is one, comes first: it is the narrower choice.
        look = _SECOND if link.group is not None else _NOTHING
        buttons += _fill(_BUTTON, "all", look, _text(texts.leave_everything[link.channel.name], names))
    return _fill(_FORM, buttons) if buttons else _NOTHING


def _names(link: ClickedLink) -> _Names:
    """Return the values that texts may contain, as HTML."""
    return {
        "organization": _fill(_NAME, link.organization.name),
        "group": _fill(_NAME, "" if link.group is None else link.group.name),
        "address": _fill(_ADDRESS, masked(link.channel.name, link.address)),
    }


def _text(text: str, names: _Names) -> Markup:
    return Markup(_unbroken(text).format_map(names))  # noqa: S704 - a text of ours, and names that are escaped


@lru_cache(maxsize=1024)
def _unbroken(text: str) -> str:
    """Return the text with its hyphenated words marked, which browsers would otherwise break after the hyphen."""
    return _HYPHENATED.sub(r'<span class="word">\g<0></span>', text)


def _page(texts: Texts, status: int, heading: str, content: Markup, organization: LinkOrganization | None) -> LinkPage:
    style, policy = _style(DEFAULT_ACCENT if organization is None else organization.accent_colour or DEFAULT_ACCENT)
    sender = contact = _NOTHING
    if organization is not None:
        sender = _fill(_SENDER, organization.name)
        if organization.contact_line:
            line = _fill(
                texts.contact,
                organization=_fill(_NAME, organization.name),
                contact=_fill(_NAME, organization.contact_line),
            )
            contact = _fill(_CONTACT, line)
    body = _fill(
        _DOCUMENT,
        language=texts.language,
        direction=texts.direction,
        title=texts.title,
        style=style,
        sender=sender,
        heading=heading,
        content=content,
        contact=contact,
    )
    headers = [
        (b"content-type", b"text/html; charset=utf-8"),
        (b"content-security-policy", policy),
        *_headers(texts.language),
    ]
    return LinkPage(status, body.encode("utf-8", "replace"), headers)


@cache
def _headers(language: str) -> tuple[tuple[bytes, bytes], ...]:
    return (
        NO_STORE,
        (b"content-language", language.encode()),
        (b"vary", b"accept-language"),
        (b"referrer-policy", b"no-referrer"),
        (b"x-robots-tag", b"noindex"),
        (b"cross-origin-opener-policy", b"same-origin"),
    )


@lru_cache(maxsize=1024)
def _style(accent: str) -> tuple[Markup, bytes]:
    """Return the style sheet with this accent colour, and the policy that allows nothing else."""
    style = (
        f":root{{--accent:{accent};--on-accent:{text_colour_on(accent)};{_card(accent, LIGHT_CARD)}}}\n"
        f"@media (prefers-color-scheme: dark){{:root{{{_card(accent, DARK_CARD)}}}}}\n{_CSS}"
    )
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; style-src 'sha256-{digest}'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    )
    return Markup(style), policy.encode()  # noqa: S704 - a file of ours, and a colour that was checked


def _card(accent: str, card: str) -> str:
    return f"--card:{card};--edge:{edge_colour(accent, card)}"
