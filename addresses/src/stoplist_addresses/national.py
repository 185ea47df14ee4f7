"""Reads phone numbers as people of a country write and dial them, for searches by people.

No request of a partner may rely on it: a program states the calling code. Source: docs/interface.md section D7.
"""

from functools import cache

from phonenumbers import (
    SUPPORTED_REGIONS,
    NumberParseException,
    PhoneNumberFormat,
    country_code_for_region,
    format_number,
    parse,
)

from stoplist_addresses.errors import AddressError
from stoplist_addresses.input_limits import MAX_CHARACTERS, WHITE_SPACE
from stoplist_addresses.phone import PhoneFault, canonical_phone

_SEPARATORS = str.maketrans("", "", " -.()/\N{NO-BREAK SPACE}")


@cache
def calling_codes() -> dict[str, int]:
    """Return the calling code of each country that has a number plan, by its two letters (ISO 3166-1)."""
    return {country: country_code_for_region(country) for country in sorted(SUPPORTED_REGIONS)}


def canonical_national_phone(text: str, country: str) -> str:
    """Return the canonical form of a number as it is dialled in a country, such as "020 7946 0958" in "GB".

    A number that begins with + is taken as it is. Raises AddressError if the text is not a number, KeyError for a
    country that `calling_codes` does not have.
    """
    if country not in calling_codes():
        raise KeyError(country)
    number = text.strip(WHITE_SPACE)
    if len(number) > MAX_CHARACTERS:
        raise AddressError(PhoneFault.OVERLONG)
    number = number.translate(_SEPARATORS)
    if number.startswith("+"):
        return canonical_phone(number)
    if not number:
        raise AddressError(PhoneFault.EMPTY)
    if not (number.isascii() and number.isdigit()):
        raise AddressError(PhoneFault.LETTER if any(map(str.isalpha, number)) else PhoneFault.CHARACTER)
    try:
        international = format_number(parse(number, country), PhoneNumberFormat.E164)
    except NumberParseException as error:
        is_long = error.error_type == NumberParseException.TOO_LONG
        raise AddressError(PhoneFault.TOO_LONG if is_long else PhoneFault.TOO_SHORT) from None
    return canonical_phone(international)
