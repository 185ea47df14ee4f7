"""The canonical form of a phone number for sms and phone: E.164, as the pinned `phonenumbers` formats it.

Source: docs/interface.md section D7.
"""

import re
from collections.abc import Callable
from enum import StrEnum
from functools import cache
from typing import cast

from phonenumbers import (
    COUNTRY_CODE_TO_REGION_CODE,
    NumberParseException,
    PhoneMetadata,
    PhoneNumber,
    PhoneNumberDesc,
    PhoneNumberFormat,
    ValidationResult,
    format_number,
    is_possible_number_with_reason,
    parse,
    region_code_for_country_code,
)

from stoplist_addresses.errors import AddressError
from stoplist_addresses.input_limits import MAX_CHARACTERS, WHITE_SPACE

_MAX_DIGITS = 15

_CALLING_CODES = frozenset(map(str, COUNTRY_CODE_TO_REGION_CODE))
_NO_DIGIT = re.compile("[^0-9]")
_OLD_MEXICAN_MOBILE = re.compile(r"\+521(?=[0-9]{10}\Z)")

Recognizer = Callable[[str], re.Match[str] | None]


class PhoneFault(StrEnum):
    """The messages for everything that can be wrong with a phone number."""

    EMPTY = "The phone number is empty: it takes a +, the calling code of the country and the number."
    OVERLONG = "The phone number has more than 1024 characters: leave out what only separates its digits."
    NO_PLUS = "The phone number does not begin with +: write it with a + and the calling code of the country."
    NO_DIGITS = "Nothing stands after the + of the phone number: the calling code and the number are missing."
    LETTER = "The phone number holds a letter: write digits alone, without an extension."
    CHARACTER = (
        "The phone number holds a character that is not allowed: after the +, only digits, plain spaces, "
        "hyphens, dots and parentheses are; no-break spaces and dashes are not."
    )
    MANY_DIGITS = "The phone number has more than 15 digits, which is the most of E.164."
    CALLING_CODE = "The phone number begins with a calling code that no country has."
    TOO_SHORT = "The phone number is too short for the numbers of its country."
    LOCAL = "The phone number is as long as a local one: write its area code too."
    TOO_LONG = "The phone number is too long for the numbers of its country."
    LENGTH = "No phone number of this country has as many digits as this one."


_FAULTS = {
    ValidationResult.TOO_SHORT: PhoneFault.TOO_SHORT,
    ValidationResult.IS_POSSIBLE_LOCAL_ONLY: PhoneFault.LOCAL,
    ValidationResult.TOO_LONG: PhoneFault.TOO_LONG,
    ValidationResult.INVALID_LENGTH: PhoneFault.LENGTH,
}


def canonical_phone(text: str) -> str:
    """Return the canonical form of a phone number, in E.164. Raises AddressError if `text` is not one.

    The canonical form of a canonical form is the form itself. Source: docs/interface.md section D7.
    """
    number = text.strip(WHITE_SPACE)
    if len(number) > MAX_CHARACTERS:
        raise AddressError(PhoneFault.OVERLONG)
    # Five calls of replace are faster than one translate with a table.
    number = number.replace(" ", "").replace("-", "").replace(".", "").replace("(", "").replace(")", "")
    if _RECOGNIZERS[number[:4]](number):
        return number
    return _apply_full_rule(number)


class _Recognizers(dict[str, Recognizer]):
    """Functions that recognize canonical numbers, by the first four characters, which contain the calling code.

    Built when a calling code first occurs, since loading all number plans would slow down every start.
    """

    def __missing__(self, start: str) -> Recognizer:
        code = _calling_code(start)
        if code is None:  # not cached, so that invalid input does not fill the memory
            return _recognizes_nothing
        self[start] = _recognizer(code)
        return self[start]


_RECOGNIZERS = _Recognizers()


def _calling_code(start: str) -> str | None:
    """Return the calling code at the beginning of a + and three digits. No code is a prefix of another one."""
    if start[:1] != "+" or len(start) != 4 or _NO_DIGIT.search(start, 1):
        return None
    return next((start[1:end] for end in (2, 3, 4) if start[1:end] in _CALLING_CODES), None)


def _recognizes_nothing(_number: str) -> None:
    """Return None for every number."""


@cache
def _recognizer(code: str) -> Recognizer:
    """Return a function that recognizes possible numbers of a calling code that `phonenumbers` does not change.

    `phonenumbers` changes nothing if its pattern of national prefixes does not match, or matches no digit. (If the
    pattern matches, the number may still be canonical, which the full rule decides.)
    """
    plan = _plan(code)
    prefix = plan.national_prefix_for_parsing
    general = cast("PhoneNumberDesc", plan.general_desc)  # every plan has one
    lengths = set(general.possible_length) - set(general.possible_length_local_only)
    national = "|".join(
        f"[0-9]{{{length}}}" for length in sorted(lengths, reverse=True) if len(code) + length <= _MAX_DIGITS
    )
    unprefixed = rf"(?!(?:{prefix})(?<!\+{code}))" if prefix else ""
    return re.compile(rf"\+{code}{unprefixed}(?:{national})").fullmatch


def _plan(code: str) -> PhoneMetadata:
    """Return the number plan of a calling code: that of its main region, which `phonenumbers` uses for all regions."""
    number_code = int(code)
    plan = PhoneMetadata.metadata_for_region_or_calling_code(number_code, region_code_for_country_code(number_code))
    return cast("PhoneMetadata", plan)  # every calling code has one


def _apply_full_rule(number: str) -> str:
    _check_characters(number)
    parsed, canonical = _formatted_until_stable(_OLD_MEXICAN_MOBILE.sub("+52", number))
    if len(canonical) > 1 + _MAX_DIGITS:
        raise AddressError(PhoneFault.MANY_DIGITS)
    reason = is_possible_number_with_reason(parsed)
    if reason != ValidationResult.IS_POSSIBLE:
        raise AddressError(_FAULTS[reason])
    return canonical


def _check_characters(number: str) -> None:
    if not number:
        raise AddressError(PhoneFault.EMPTY)
    if number[0] != "+":
        raise AddressError(PhoneFault.NO_PLUS)
    if number == "+":
        raise AddressError(PhoneFault.NO_DIGITS)
    if foreign := _NO_DIGIT.search(number, 1):
        raise AddressError(PhoneFault.LETTER if foreign[0].isalpha() else PhoneFault.CHARACTER)
    if len(number) > 1 + _MAX_DIGITS:
        raise AddressError(PhoneFault.MANY_DIGITS)


def _formatted_until_stable(number: str) -> tuple[PhoneNumber, str]:
    """Format a number as E.164 with `phonenumbers` until nothing changes, and return it parsed and as text.

    This ends, since no number plan of the pinned version has a cycle; a test checks all plans.
    """
    parsed = _parsed(number)
    formatted = format_number(parsed, PhoneNumberFormat.E164)
    return (parsed, formatted) if formatted == number else _formatted_until_stable(formatted)


def _parsed(number: str) -> PhoneNumber:
    try:
        return parse(number)
    except NumberParseException as error:
        is_unknown = error.error_type == NumberParseException.INVALID_COUNTRY_CODE
        raise AddressError(PhoneFault.CALLING_CODE if is_unknown else PhoneFault.TOO_SHORT) from None
