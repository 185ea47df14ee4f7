"""What an organization and a group are, and the rules for their names. Source: docs/interface.md section D5."""

import re
import unicodedata

import msgspec

from stoplist.errors import Refused

MAX_NAME_CHARS = 200
_UNPRINTABLE = frozenset(("Cc", "Cs", "Zl", "Zp"))
_BIDI_CONTROLS = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")  # they reorder what people read
SLUG_PATTERN = "^[a-z0-9][a-z0-9-]{0,62}$"
_SLUG = re.compile(SLUG_PATTERN)


class Organization(msgspec.Struct, frozen=True, kw_only=True):
    """An organization; closed ones stay, with all that they hold. Times are milliseconds since 1970 UTC."""

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
    """A kind of message that people can leave on its own; retired ones stay."""

    group_id: str
    org_slug: str
    name: str
    is_default: bool
    created_ms: int
    retired_ms: int | None


def is_slug(text: str) -> bool:
    """Whether `text` can be the slug of an organization."""
    return _SLUG.fullmatch(text) is not None


def checked_slug(text: str) -> str:
    """`text`, if it can be a slug; else Refused."""
    if not is_slug(text):
        raise Refused(
            f"{text[:80]!r} cannot be a slug: 1 to 63 lower-case letters, digits and hyphens, "
            "the first no hyphen (for example acme-shoes).",
            field="slug",
        )
    return text


def checked_name(text: str, what: str, field: str = "name") -> str:
    """`text` without surrounding white space, if it can be a name or label; else Refused.

    `what` names it in the text, `field` is the input that it came in.
    """
    name = text.strip()
    if not name or len(name) > MAX_NAME_CHARS:
        raise Refused(f"{what} needs 1 to {MAX_NAME_CHARS} characters; this one has {len(name)}.", field=field)
    if any(unicodedata.category(one) in _UNPRINTABLE or one in _BIDI_CONTROLS for one in name):
        raise Refused(f"{what} must be one line of text, without control characters.", field=field)
    return name
