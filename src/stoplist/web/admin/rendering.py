"""Renders templates to HTML: values are escaped, times have a zone, numbers have separators."""

import hashlib
from datetime import UTC, datetime
from functools import cache
from importlib import resources
from typing import Any
from urllib.parse import quote

import jinja2
from markupsafe import Markup, escape

from stoplist.clock import DAY_S
from stoplist.rfc3339 import format_ms
from stoplist.unsubscribes.erased import digest_of
from stoplist.web.admin.notes import NOTES, NOTHING_DONE
from stoplist.web.admin.page_request import PageRequest
from stoplist.web.admin.user_agents import browser_in_words

ASSETS_PATH = "/settings/assets"
_NEVER = "Never"
_SHOWN_DIGITS = 12


def render(template: str, request: PageRequest, values: dict[str, Any]) -> bytes:
    """Render a template to HTML in UTF-8."""
    note = request.query.text("note")
    shared = {
        "request": request,
        "refusal": request.refusal,
        "note": NOTES.get(note),
        "nothing_done": note in NOTHING_DONE,
        "me": request.person,
    }
    # A User-Agent may contain a lone surrogate, which cannot be encoded.
    return _environment().get_template(template).render(shared | values).encode("utf-8", "replace")


def template_names() -> list[str]:
    """Return the names of all templates."""
    return _environment().list_templates(extensions=["html"])


def load_template(name: str) -> None:
    """Compile a template, so that the first page that needs it does not wait."""
    _environment().get_template(name)


@cache
def asset(name: str) -> bytes:
    """Return the content of the style sheet, the script or the icon."""
    return resources.files(__package__).joinpath(f"assets/{name}").read_bytes()


@cache
def asset_path(name: str) -> str:
    """Return the URL path of an asset. It changes with the content, so that browsers may cache it for ever."""
    return f"{ASSETS_PATH}/{hashlib.sha256(asset(name)).hexdigest()[:12]}/{name}"


def moment(at_ms: int | None, absent: str = _NEVER) -> Markup:
    """Return `2026-03-01 09:30 UTC` in a <time> element with the full timestamp; `absent` if there is no time."""
    if at_ms is None:
        return Markup('<span class="absent">{}</span>').format(absent)
    return _time(at_ms, chars=16)


def instant(at_ms: int) -> Markup:
    """Return `2026-03-01 09:30:15 UTC`, for places where the order of two acts matters."""
    return _time(at_ms, chars=19)


def day(number: int) -> str:
    """Return `2026-03-01` for a number of days since 1970 UTC."""
    return datetime.fromtimestamp(number * DAY_S, UTC).date().isoformat()


def address(text: str) -> Markup:
    """Return an address that a narrow column breaks before its @; of an erased person, the beginning of the digest."""
    digest = digest_of(text)
    if digest is not None:
        return Markup(f"<em>Erased</em> {digest[:_SHOWN_DIGITS]}…")  # noqa: S704 - hexadecimal digits
    # Lists show a hundred of these: Markup.join would take four times as long.
    before, at, after = str(escape(text)).rpartition("@")
    return Markup(f"{before}{'<wbr>' if at else ''}{at}{after}")  # noqa: S704 - escaped above


def number(value: int) -> str:
    """Return `1,234,567`."""
    return f"{value:,}"


def file_size(size_bytes: int) -> str:
    """Return `1.2 MB`, or `12 KB` for less than a tenth of a megabyte."""
    if size_bytes < 100_000:
        return f"{-(-size_bytes // 1000):,} KB"
    return f"{size_bytes / 1_000_000:,.1f} MB"


def _time(at_ms: int, *, chars: int) -> Markup:
    timestamp = format_ms(at_ms)
    shown = timestamp[:chars].replace("T", " ")
    # Pages show a hundred of these, and Markup.format would take most of the time of a row.
    return Markup(f'<time datetime="{timestamp}">{shown} UTC</time>')  # noqa: S704 - digits only


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("stoplist.web", "admin"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        # A newer release may be installed under a running server, and its templates do not fit the values of this one.
        auto_reload=False,
    )
    environment.filters |= {
        "moment": moment,
        "instant": instant,
        "day": day,
        "number": number,
        "file_size": file_size,
        "address": address,
        "browser": browser_in_words,
        "segment": lambda text: quote(text, safe=""),
    }
    environment.globals |= {"asset_path": asset_path}
    return environment
