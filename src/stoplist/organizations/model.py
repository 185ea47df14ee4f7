"""Types for organizations and groups, and the rules for their names. Source: docs/interface.md section D5."""

import re

import msgspec

from stoplist.control_characters import first_invisible
from stoplist.errors import Refused

MAX_NAME_CHARS = 200
SLUG_PATTERN = "^[a-z0-9][a-z0-9-]{0,62}$"
_SLUG = re.compile(SLUG_PATTERN)
_COLOUR = re.compile("#[0-9a-f]{6}")


class Organization(msgspec.Struct, frozen=True, kw_only=True):
    """An organization. A closed one stays, with its records. Times are milliseconds since 1970 UTC.

    `contact_line` and `accent_colour` are for the page behind its opt-out links (docs/interface.md section D15).
    """

    organization_id: int
    slug: str
    name: str
    default_group_id: str | None
    created_ms: int
    closed_ms: int | None
    contact_line: str | None = None
    accent_colour: str | None = None

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


def checked_contact_line(text: str) -> str | None:
    """Return `text` if it can be a contact line, None if it is empty; otherwise raise Refused."""
    return checked_name(text, "The contact line", "contact_line") if text.strip() else None


def checked_colour(text: str) -> str | None:
    """Return `text` in lower case if it is a colour such as `#0a66c2`, None if it is empty; otherwise raise Refused."""
    colour = text.strip().lower()
    if colour and _COLOUR.fullmatch(colour) is None:
        raise Refused("A colour is # and six hexadecimal digits, such as #0a66c2.", field="accent_colour")
    return colour or None


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
    # Two names that look alike would otherwise be different ones.
    if invisible := first_invisible(name):
        raise Refused(
            f"{what} must be one line of text, without control characters and other invisible ones; "
            f"this one contains U+{ord(invisible):04X}.",
            field=field,
        )
    return name
