"""The `Prefer` header (RFC 7240): the handling of bad items, and the size of the answer."""

import re
from typing import NamedTuple

from stoplist.web.request_context import Headers

_CHOICES = {"handling": ("strict", "lenient"), "return": ("representation", "minimal")}
# The text between two commas outside quotes. No alternative can fail, so the expression never backtracks.
_PREFERENCE = re.compile(r'(?:[^",]|"(?:[^"\\]|\\.?)*(?:"|$))+')


class Preferences(NamedTuple):
    """The preferences of a request; `applied` is the value of `Preference-Applied`, empty if there is none."""

    is_lenient: bool
    is_minimal: bool
    applied: str


def read_preferences(headers: Headers) -> Preferences:
    """Return the known preferences, ignoring others; of a repeated one the first counts (RFC 7240 section 2)."""
    sent: dict[str, str] = {}
    for name, value in headers:
        if name == b"prefer":
            for preference in _PREFERENCE.findall(value.decode("latin-1")):
                key, _, choice = preference.partition(";")[0].partition("=")
                sent.setdefault(key.strip().lower(), choice.strip().strip('"').lower())
    known = {key: choice for key, choice in sent.items() if choice in _CHOICES.get(key, ())}
    return Preferences(
        is_lenient=known.get("handling") == "lenient",
        is_minimal=known.get("return") == "minimal",
        applied=", ".join(f"{key}={choice}" for key, choice in known.items()),
    )
