"""The canonical form of an e-mail address, the same for all spellings that must mean the same mailbox.

Source: docs/interface.md section D7.
"""

import re
import unicodedata
from enum import StrEnum
from functools import lru_cache

from stoplist_addresses.domain_labels import A_LABEL_PREFIX, check_a_label, check_u_label, punycode, uts46_mapped
from stoplist_addresses.errors import AddressError
from stoplist_addresses.input_limits import MAX_CHARACTERS, WHITE_SPACE

_MAX_OCTETS = 254
_MAX_LOCAL_OCTETS = 64
_MAX_LABEL_OCTETS = 63
_MAX_ENCODED_OCTETS = _MAX_LABEL_OCTETS - len(A_LABEL_PREFIX)

# NFC composes at most four characters into one. So a longer local part has no canonical form of 64 octets, and an
# address of more than MAX_CHARACTERS none of 254 octets (unless it is full of characters that UTS 46 drops).
_MAX_LOCAL_CHARACTERS = 4 * _MAX_LOCAL_OCTETS

# The domains and labels whose form is remembered: as many as the largest batch has addresses, at most some 20 MB.
_KEPT_DOMAINS = _KEPT_LABELS = 10_000

_ATEXT = r"A-Za-z0-9!#$%&'*+/=?^_`{|}~\-"

# Matches most addresses, which the full rule would only change to lower case (except labels with xn--, which this
# cannot exclude). May miss some. All repetitions are possessive, so that matching never backtracks.
_PLAIN = re.compile(
    rf"(?=[^@]{{1,64}}@)[{_ATEXT}]++(?:\.[{_ATEXT}]++)*+@"
    r"(?!-)(?:[A-Za-z0-9-]{1,63}+(?<!-)\.(?!-))++[A-Za-z]{2,63}+"
)

_LOCAL_PART = re.compile(rf"[{_ATEXT}.\u0080-\U0010ffff]*")
_ASCII_LABEL = re.compile("[a-z0-9](?:[a-z0-9-]*[a-z0-9])?")
_LOWERED = {ord(capital): capital.lower() for capital in "ABCDEFGHIJKLMNOPQRSTUVWXYZ"}


class EmailFault(StrEnum):
    """The messages for everything that can be wrong with an e-mail address."""

    EMPTY = "The e-mail address is empty: it takes a name, an @ and a domain."
    TOO_LONG = (
        "The e-mail address is too long: 254 octets are the most, a domain beyond ASCII counted in its xn-- form."
    )
    DISPLAY_NAME = "The e-mail address holds < or >: send it bare, without the name of a person beside it."
    QUOTED = "The e-mail address holds a quotation mark: quoted names before the @ are not accepted."
    COMMENT = "The e-mail address holds a parenthesis: leave comments out."
    NO_AT = "The e-mail address has no @: one must stand between its name and its domain."
    MANY_AT = "The e-mail address has more than one @: send one address at a time, with a single @ in it."
    NO_LOCAL_PART = "Nothing stands before the @ of the e-mail address: the name of the mailbox is missing."
    LOCAL_PART_DOTS = (
        "The part before the @ begins or ends with a dot or has two in a row: only single, inner ones may be."
    )
    LOCAL_PART_CHARACTER = (
        "The part before the @ holds a character that is not allowed there: of ASCII, letters, digits, "
        "single dots and !#$%&'*+-/=?^_`{|}~ are; white space is not."
    )
    LOCAL_PART_UNSEEN = "The part before the @ holds a space or a character that nobody sees: remove it."
    LOCAL_PART_LONG = "The part before the @ is too long: 64 octets are the most, counted in UTF-8."
    NO_DOMAIN = "Nothing stands after the @ of the e-mail address: the domain is missing."
    DOMAIN_DOTS = (
        "The domain begins or ends with a dot or has two in a row: only single dots between its labels may be."
    )
    SINGLE_LABEL = "The domain has a single label: write it in full, with a dot and the top-level domain."
    LABEL_LONG = "A label of the domain is too long: 63 octets are the most, counted in its xn-- form."
    LABEL_CHARACTER = (
        "The domain holds a character that is not allowed there: a label consists of letters, digits and, not at "
        "either end, hyphens; an address of a machine in brackets is not accepted."
    )
    A_LABEL = "A label of the domain that begins with xn-- does not stand for a valid label of IDNA 2008."
    NOT_IDNA = "The domain holds a character, or an order of characters, that IDNA 2008 does not allow."
    DIGITS_LAST = "The last label of the domain consists of digits alone: no top-level domain does."


def canonical_email(text: str) -> str:
    """Return the canonical form of an e-mail address. Raises AddressError if `text` is not one.

    The canonical form of a canonical form is the form itself. Source: docs/interface.md section D7.
    """
    if len(text) <= _MAX_OCTETS and _PLAIN.fullmatch(text):
        lowered = text.lower()
        if A_LABEL_PREFIX not in lowered:
            return lowered
    stripped = text.strip(WHITE_SPACE)
    return _apply_full_rule(text) if stripped == text else canonical_email(stripped)


def _apply_full_rule(text: str) -> str:
    local_part, domain = _parts(text)
    canonical_local_part = _canonical_local_part(local_part)
    canonical_domain = (_domain_outcome if len(domain) <= _MAX_OCTETS else _domain_outcome.__wrapped__)(domain)
    if isinstance(canonical_domain, EmailFault):
        raise AddressError(canonical_domain)
    canonical = f"{canonical_local_part}@{canonical_domain}"
    if len(canonical.encode()) > _MAX_OCTETS:
        raise AddressError(EmailFault.TOO_LONG)
    return canonical


def _parts(text: str) -> tuple[str, str]:
    if not text:
        raise AddressError(EmailFault.EMPTY)
    if len(text) > MAX_CHARACTERS:
        raise AddressError(EmailFault.TOO_LONG)
    for characters, fault in (("<>", EmailFault.DISPLAY_NAME), ('"', EmailFault.QUOTED), ("()", EmailFault.COMMENT)):
        if any(character in text for character in characters):
            raise AddressError(fault)
    local_part, at, domain = text.partition("@")
    if not at:
        raise AddressError(EmailFault.NO_AT)
    if "@" in domain:
        raise AddressError(EmailFault.MANY_AT)
    return local_part, domain


def _canonical_local_part(text: str) -> str:
    if not text:
        raise AddressError(EmailFault.NO_LOCAL_PART)
    if len(text) > _MAX_LOCAL_CHARACTERS:
        raise AddressError(EmailFault.LOCAL_PART_LONG)
    canonical = _normalized_until_stable(text)
    # Checks the canonical form, since NFC turns the Greek question mark into a semicolon. (The only forbidden
    # characters that it composes into others are < and >, which have been refused.)
    _check_local_part(canonical)
    if len(canonical.encode()) > _MAX_LOCAL_OCTETS:
        raise AddressError(EmailFault.LOCAL_PART_LONG)
    return canonical


def _normalized_until_stable(local_part: str) -> str:
    """Apply NFC and lower ASCII until nothing changes: NFC composes j and a caron, but not J and a caron."""
    changed = unicodedata.normalize("NFC", local_part).translate(_LOWERED)
    return local_part if changed == local_part else _normalized_until_stable(changed)


def _check_local_part(canonical: str) -> None:
    if canonical.startswith(".") or canonical.endswith(".") or ".." in canonical:
        raise AddressError(EmailFault.LOCAL_PART_DOTS)
    if not _LOCAL_PART.fullmatch(canonical):
        raise AddressError(EmailFault.LOCAL_PART_CHARACTER)
    if not canonical.isascii() and any(map(_is_invisible, canonical)):
        raise AddressError(EmailFault.LOCAL_PART_UNSEEN)


def _is_invisible(character: str) -> bool:
    # Cs are halves of a surrogate pair, which UTF-8, required by RFC 6531, cannot encode.
    category = unicodedata.category(character)
    return category[0] == "Z" or category in {"Cc", "Cf", "Cs"}


@lru_cache(maxsize=_KEPT_DOMAINS)
def _domain_outcome(text: str) -> str | EmailFault:
    try:
        return _canonical_domain(text)
    except AddressError as error:
        return EmailFault(str(error))


def _canonical_domain(text: str) -> str:
    if not text:
        raise AddressError(EmailFault.NO_DOMAIN)
    mapped = _uts46_mapped(text)
    labels = mapped.split(".")
    if not all(labels):
        raise AddressError(EmailFault.DOMAIN_DOTS)
    if len(labels) == 1:
        raise AddressError(EmailFault.SINGLE_LABEL)
    canonical = [_canonical_label(label) for label in labels]
    if canonical[-1].isdigit():
        raise AddressError(EmailFault.DIGITS_LAST)
    return ".".join(canonical)


def _uts46_mapped(domain: str) -> str:
    """Map a domain by UTS 46, non-transitional. Characters that stand for a dot become dots."""
    try:
        mapped = uts46_mapped(domain)
    except UnicodeError:
        raise AddressError(EmailFault.NOT_IDNA) from None
    if len(mapped) > _MAX_OCTETS:  # no label gets shorter, and checking each of them would take long
        raise AddressError(EmailFault.TOO_LONG)
    return mapped


@lru_cache(maxsize=_KEPT_LABELS)
def _canonical_label(label: str) -> str:
    if len(label) > _MAX_LABEL_OCTETS:
        raise AddressError(EmailFault.LABEL_LONG)
    if not label.isascii():
        return _a_label(label)
    if not _ASCII_LABEL.fullmatch(label):
        raise AddressError(EmailFault.LABEL_CHARACTER)
    if label.startswith(A_LABEL_PREFIX):
        _check_a_label(label)
    return label


def _a_label(label: str) -> str:
    try:
        check_u_label(label)
    except UnicodeError:
        raise AddressError(EmailFault.NOT_IDNA) from None
    # Punycode is at least as long, and takes time.
    if len(A_LABEL_PREFIX + label) > _MAX_LABEL_OCTETS or len(encoded := punycode(label)) > _MAX_ENCODED_OCTETS:
        raise AddressError(EmailFault.LABEL_LONG)
    return A_LABEL_PREFIX + encoded


def _check_a_label(label: str) -> None:
    try:
        check_a_label(label)
    except UnicodeError:
        raise AddressError(EmailFault.A_LABEL) from None
