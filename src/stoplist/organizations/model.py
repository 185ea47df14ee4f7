"""Types for organizations and groups, and the rules for their names. Source: docs/interface.md section D5."""

import re
import unicodedata

import msgspec

from stoplist.errors import Refused

MAX_NAME_CHARS = 200
_UNPRINTABLE = frozenset(("Cc", "Cs", "Zl", "Zp"))
# They reorder the text that people see.
_BIDI_CONTROLS = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
SLUG_PATTERN = "^[a-z0-9][a-z0-9-]{0,62}$"
_SLUG = re.compile(SLUG_PATTERN)


class Organization(msgspec.Struct, frozen=True, kw_only=True):
    """An organization. A closed one stays, with its records. Times are milliseconds since 1970 UTC."""

    organization_id: int
    slug: str
    name: str
    default_group_id: str | None
    created_ms: int
    closed_ms: int | None

    @property
    def is_closed(self) -> bool:
        return self.closed_ms is not None


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of message that people can opt out of separately. A retired group stays, with its records."""

    group_id: str
    org_slug: str
    name: str
    is_default: bool
    created_ms: int
    retired_ms: int | None


def is_slug(text: str) -> bool:
    """Return whether `text` is a well-formed slug of an organization."""
    return _SLUG.fullmatch(text) is not None


def checked_slug(text: str) -> str:
    """Return `text` if it is a well-formed slug; otherwise raise Refused."""
    if not is_slug(text):
        raise Refused(
            f"{text[:80]!r} cannot be a slug. A slug has 1 to 63 lower-case letters, digits and hyphens, "
            "and does not begin with a hyphen (for example acme-shoes).",
            field="slug",
        )
    return text


def checked_name(text: str, what: str, field: str = "name") -> str:
    """Return `text` without surrounding white space if it can be a name or label; otherwise raise Refused.

    `what` describes the name in the error, and `field` is the input field that it came from.
    """
    name = text.strip()
    if not name or len(name) > MAX_NAME_CHARS:
        raise Refused(f"{what} needs 1 to {MAX_NAME_CHARS} characters; this one has {len(name)}.", field=field)
    if any(unicodedata.category(character) in _UNPRINTABLE or character in _BIDI_CONTROLS for character in name):
        raise Refused(f"{what} must be one line of text, without control characters.", field=field)
    return name
