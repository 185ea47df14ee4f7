"""Phone numbers as they are dialled in a country. docs/interface.md section D7."""

import phonenumbers
import pytest
from hypothesis import given
from hypothesis import strategies as st
from stoplist_addresses import AddressError, calling_codes, canonical_national_phone, canonical_phone


@pytest.mark.parametrize(
    ("typed", "country", "canonical"),
    [
        ("020 7946 0958", "GB", "+442079460958"),
        ("07700 900123", "GB", "+447700900123"),
        ("(415) 555-0123", "US", "+14155550123"),
        ("1-415-555-0123", "US", "+14155550123"),
        ("030/901820", "DE", "+4930901820"),
        ("06 698 12345", "IT", "+390669812345"),
        ("0044 20 7946 0958", "DE", "+442079460958"),
        (" +44 (0)20 7946-0958\n", "FR", "+442079460958"),
        ("01 23 45\N{NO-BREAK SPACE}67 89", "FR", "+33123456789"),
        ("55 1234 5678", "MX", "+525512345678"),
    ],
)
def test_a_number_is_read_as_its_country_dials_it(typed: str, country: str, canonical: str) -> None:
    """It may have a trunk prefix, and the separators that people write."""
    assert canonical_national_phone(typed, country) == canonical


@pytest.mark.parametrize(
    "typed", ["", "  ", "12", "1" * 30, "9" * 2_000, "020 7946 ext 3", "٠٢٠٧٩٤٦٠٩٥٨", "#31#5", "\0"]
)
def test_what_is_no_number_is_refused_without_repeating_it(typed: str) -> None:
    with pytest.raises(AddressError) as refusal:
        canonical_national_phone(typed, "GB")
    assert len(typed.strip()) < 3 or typed.strip() not in str(refusal.value)


@pytest.mark.parametrize("country", ["", "XX", "gb", "001"])
def test_an_unknown_country_is_a_key_error(country: str) -> None:
    with pytest.raises(KeyError):
        canonical_national_phone("020 7946 0958", country)


def test_an_example_of_each_country_is_read_in_its_national_form() -> None:
    """The national notation that `phonenumbers` prints is read back as the same number."""
    for country, code in calling_codes().items():
        example = phonenumbers.example_number(country)
        if example is None:
            continue
        written = phonenumbers.format_number(example, phonenumbers.PhoneNumberFormat.NATIONAL)
        international = phonenumbers.format_number(example, phonenumbers.PhoneNumberFormat.E164)
        assert international.startswith(f"+{code}")
        assert canonical_national_phone(written, country) == canonical_phone(international), country


@given(st.text(), st.sampled_from(sorted(calling_codes())))
def test_every_text_has_a_canonical_form_or_an_error(text: str, country: str) -> None:
    try:
        found = canonical_national_phone(text, country)
    except AddressError:
        return
    assert canonical_phone(found) == found
