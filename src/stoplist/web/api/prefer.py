"""The `Prefer` header (RFC 7240): the handling of bad items, the size of an answer, waiting, and reading ahead."""

import re
from typing import NamedTuple

from stoplist.web.request_context import Headers

MAX_WAIT_S = 30
_WAIT_S = re.compile(r"0*([1-9][0-9]?)", re.ASCII)
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
    known = {key: choice for key, choice in _sent(headers).items() if choice in _CHOICES.get(key, ())}
    return Preferences(
        is_lenient=known.get("handling") == "lenient",
        is_minimal=known.get("return") == "minimal",
        applied=", ".join(f"{key}={choice}" for key, choice in known.items()),
    )


def read_wait_s(headers: Headers) -> int | None:
    """Return the seconds of `wait`, from 1 to MAX_WAIT_S; None if there is none or another value, which is ignored."""
    found = _WAIT_S.fullmatch(_sent(headers).get("wait", ""))
    wait_s = int(found[1]) if found else 0
    return wait_s if 1 <= wait_s <= MAX_WAIT_S else None


def reads_ahead(headers: Headers) -> bool:
    """Return whether the request asks for a page before the one before it is stored; a value makes it another word."""
    return _sent(headers).get("read-ahead") == ""


def _sent(headers: Headers) -> dict[str, str]:
    """Return the preferences of a request, of a repeated one the first."""
    sent: dict[str, str] = {}
    for name, value in headers:
        if name == b"prefer":
            for preference in _PREFERENCE.findall(value.decode("latin-1")):
                key, _, choice = preference.partition(";")[0].partition("=")
                sent.setdefault(key.strip().lower(), choice.strip().strip('"').lower())
    return sent
