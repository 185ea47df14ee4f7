"""Renders templates to HTML: values are escaped, times have a zone, numbers have separators."""

import hashlib
from datetime import UTC, datetime
from functools import cache
from importlib import resources
from typing import Any
from urllib.parse import quote

import jinja2
from markupsafe import Markup

from stoplist.clock import DAY_S
from stoplist.rfc3339 import format_ms
from stoplist.web.admin.notes import NOTES, NOTHING_DONE
from stoplist.web.admin.page_request import PageRequest

ASSETS_PATH = "/settings/assets"
_NEVER = "Never"


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


def number(value: int) -> str:
    """Return `1,234,567`."""
    return f"{value:,}"


def _time(at_ms: int, *, chars: int) -> Markup:
    timestamp = format_ms(at_ms)
    shown = timestamp[:chars].replace("T", "\N{NO-BREAK SPACE}")
    # Pages show a hundred of these, and Markup.format would take most of the time of a row.
    return Markup(f'<time datetime="{timestamp}">{shown}\N{NO-BREAK SPACE}UTC</time>')  # noqa: S704 - digits only


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
        "segment": lambda text: quote(text, safe=""),
    }
    environment.globals |= {"asset_path": asset_path}
    return environment
