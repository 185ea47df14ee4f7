"""The `Prefer` header (RFC 7240): how a batch with bad items is handled, and how much is answered."""

import re
from typing import NamedTuple

from stoplist.web.request_context import Headers

_CHOICES = {"handling": ("strict", "lenient"), "return": ("representation", "minimal")}
# What stands between two commas, but for those in quotes. It never fails, so it never goes back.
_PREFERENCE = re.compile(r'(?:[^",]|"(?:[^"\\]|\\.?)*(?:"|$))+')


class Preferences(NamedTuple):
    """What was asked for; `applied` names it for `Preference-Applied`, empty where nothing was."""

    is_lenient: bool
    is_minimal: bool
    applied: str


def read_preferences(headers: Headers) -> Preferences:
    """The preferences that we know; others are ignored, and of one that is repeated the first counts (section 2)."""
    sent: dict[str, str] = {}
    for name, value in headers:
        if name == b"prefer":
            for preference in _PREFERENCE.findall(value.decode("latin-1")):
                key, _, choice = preference.partition(";")[0].partition("=")
                sent.setdefault(key.strip().lower(), choice.strip().strip('"').lower())
    chosen = {key: choice for key, choice in sent.items() if choice in _CHOICES.get(key, ())}
    return Preferences(
        is_lenient=chosen.get("handling") == "lenient",
        is_minimal=chosen.get("return") == "minimal",
        applied=", ".join(f"{key}={choice}" for key, choice in chosen.items()),
    )
