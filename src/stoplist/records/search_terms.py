"""Reads what a person types into the search: addresses in any spelling, one or several. No I/O.

Source: docs/interface.md sections D7 and D11.
"""

import re
from collections.abc import Iterator

import msgspec
from stoplist_addresses import AddressError, calling_codes, canonical_national_phone

from stoplist.errors import Refused
from stoplist.unsubscribes.channel import CHANNELS, Channel

MAX_TERMS = 100
EMAIL_CHANNELS = (CHANNELS["email"],)
NUMBER_CHANNELS = (CHANNELS["sms"], CHANNELS["phone"])  # both have the same rule for numbers

_EMPTY = "Enter an e-mail address, a phone number or a submission ID."
_PARTIAL = (
    "Only a whole address can be searched, because parts of addresses are in no index. To find a part, a name or a "
    "domain, download the list with an API key (GET /api/v1/unsubscribe/email, or changes() of the Python client) and "
    "filter your copy."
)
_NO_COUNTRY = "This number has no country code. Select its country, or write the number with a + and the code."
_SEVERAL_WITHOUT_COUNTRY = "Some of the numbers have no country code. Select their country."
_UNKNOWN_COUNTRY = "Select a country from the list."

# No address contains these: each ends a term.
_SEPARATORS = re.compile(r"[\n\r,;\t]+")
# White space separates e-mail addresses, and begins another number where a + follows; other numbers may contain it.
# A run of it is searched from its beginning alone: from each space in it, tens of thousands would take half a minute.
_SPACE, _SPACE_BEFORE_PLUS = re.compile(r"\s+"), re.compile(r"(?<!\s)\s+(?=\+|\(\+)")
_LETTER, _DIGIT = re.compile(r"[^\W\d_]"), re.compile(r"\d")
_WILDCARDS = ("*@", "%@")


class SearchTerm(msgspec.Struct, frozen=True, kw_only=True):
    """An address to search for, in its canonical form, and the channels that have such addresses."""

    canonical: str
    channels: tuple[Channel, ...]


class UnreadTerm(msgspec.Struct, frozen=True, kw_only=True):
    """One of several texts that is not an address: as typed, and why."""

    typed: str
    problem: str


def split_terms(text: str, *, country: str = "") -> list[str]:
    """Return the terms of a text as typed. They are separated by line breaks, commas, semicolons and, if clear, spaces.

    Refused: `country` if a number needs one or it is unknown, `address` if there is no term or more than MAX_TERMS.
    """
    typed = list(_split(text))
    if not typed:
        raise Refused(_EMPTY, field="address")
    if len(typed) > MAX_TERMS:
        raise Refused(
            f"At most {MAX_TERMS} addresses can be searched at once. These are {len(typed):,}.", field="address"
        )
    _require_country(typed, country)
    return typed


def read_term(typed: str, *, country: str = "") -> SearchTerm:
    """Return the address that was typed, in any spelling. Refused (`address`) if it is not one.

    A term with an @ is an e-mail address, any other a number; a number without a + is one of `country` (two letters,
    ISO 3166-1).
    """
    channels = EMAIL_CHANNELS if "@" in typed else NUMBER_CHANNELS
    if _is_part(typed):
        raise Refused(_PARTIAL, field="address")
    try:
        if country and not _is_international(typed) and channels is NUMBER_CHANNELS:
            canonical = canonical_national_phone(typed, country)
        else:
            canonical = channels[0].canonical(typed)
    except AddressError as error:
        hint = "" if channels is EMAIL_CHANNELS else " An e-mail address has an @."
        raise Refused(f"{error}{hint}", field="address") from None
    return SearchTerm(canonical=canonical, channels=channels)


def _split(text: str) -> Iterator[str]:
    for part in _SEPARATORS.split(text):
        separator = _SPACE if part.count("@") > 1 else _SPACE_BEFORE_PLUS
        yield from (one.strip() for one in separator.split(part) if one.strip())


def _require_country(typed: list[str], country: str) -> None:
    if country:
        if country not in calling_codes():
            raise Refused(_UNKNOWN_COUNTRY, field="country")
    elif any(_is_national(one) for one in typed):
        raise Refused(_NO_COUNTRY if len(typed) == 1 else _SEVERAL_WITHOUT_COUNTRY, field="country")


def _is_national(typed: str) -> bool:
    return "@" not in typed and not _is_international(typed) and not _is_name(typed) and bool(_DIGIT.search(typed))


def _is_international(typed: str) -> bool:
    return typed.lstrip("( ").startswith("+")


def _is_name(typed: str) -> bool:
    """Return whether a text without an @ is more letters than digits: part of an address, a domain, or a name."""
    return len(_LETTER.findall(typed)) > len(_DIGIT.findall(typed))


def _is_part(typed: str) -> bool:
    """Return whether this is a part of an address: without a name, without a domain, or with a wildcard."""
    if "@" not in typed:
        return not _is_international(typed) and _is_name(typed)
    name, _, domain = typed.rpartition("@")
    return not name or "." not in domain.strip(".") or typed.startswith(_WILDCARDS)
