"""Reads the body that is posted to a link: a choice on the page, Undo, or a one-click opt-out.

A body that cannot be read is a one-click opt-out, because a click must never be lost. A body with the Undo field is
never one. Source: RFC 8058; docs/interface.md section D15.
"""

import re
from typing import Literal, NamedTuple
from urllib.parse import parse_qs

MAX_BODY_BYTES = 64 * 1024

_CHOICE, _UNDO = "choice", "undo"
_MAX_FIELDS = 100
_USUAL_BODY = b"List-Unsubscribe=One-Click"
# The Undo field of a body that is too long or cut off: as a field of a form, and as browsers name a part of a multipart
# body (RFC 7578 section 4.2).
_UNDO_FIELD = re.compile(rb"(?:^|&)(?:u|%75)(?:n|%6e)(?:d|%64)(?:o|%6f)(?=[=&]|$)", re.IGNORECASE)
_UNDO_PART = re.compile(rb'name\s*=\s*"?undo"?(?:[\s;]|$)', re.IGNORECASE)


class LinkForm(NamedTuple):
    """The request of a body. `undo` is the content of the Undo field, empty if it cannot be read."""

    kind: Literal["group", "all", "one_click", "undo"]
    undo: str = ""


ONE_CLICK = LinkForm("one_click")


def read_link_form(body: bytes, *, is_complete: bool = True) -> LinkForm:
    """Return the request of a body, or of its beginning. Never raises."""
    if body == _USUAL_BODY:
        return ONE_CLICK
    fields = _fields(body) if is_complete else {}
    if _UNDO in fields:
        return LinkForm("undo", fields[_UNDO][0])
    if _UNDO_FIELD.search(body) or _UNDO_PART.search(body):
        return LinkForm("undo")
    choices = fields.get(_CHOICE, [])
    if "all" in choices:
        return LinkForm("all")
    return LinkForm("group") if "group" in choices else ONE_CLICK


def _fields(body: bytes) -> dict[str, list[str]]:
    """Return the fields of a form; none if there are too many."""
    try:
        return parse_qs(body.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=_MAX_FIELDS)
    except ValueError:
        return {}
