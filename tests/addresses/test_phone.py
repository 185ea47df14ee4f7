"""Phone numbers (docs/interface.md section D7), clause by clause and against `phonenumbers` itself."""

import random

import phonenumbers
import pytest
from hypothesis import given
from stoplist_addresses import AddressError, canonical_phone
from stoplist_addresses import phone as rule
from stoplist_addresses.phone import PhoneFault

from tests.addresses.strategies import numbers, phones

pytestmark = pytest.mark.interpreter


def outcome(number: str) -> str | None:
    """Return the canonical form, or None if there is none."""
    try:
        return canonical_phone(number)
    except AddressError:
        return None


def naive(text: str) -> str | None:
    """Apply the rule literally, with `phonenumbers` for every number. Returns None for an error."""
    number = text.strip(" \t\r\n\f\v")
    for separator in " -.()":
        number = number.replace(separator, "")
    if not number.startswith("+") or not set(number[1:]) <= set("0123456789") or len(number) > 16:
        return None
    if number.startswith("+521") and len(number) == 14:
        number = "+52" + number[4:]
    try:
        while (formatted := _formatted(number)) != number:
            number = formatted
    except phonenumbers.NumberParseException:
        return None
    reason = phonenumbers.is_possible_number_with_reason(phonenumbers.parse(number))
    return number if reason == phonenumbers.ValidationResult.IS_POSSIBLE and len(number) <= 16 else None


def _formatted(number: str) -> str:
    return phonenumbers.format_number(phonenumbers.parse(number), phonenumbers.PhoneNumberFormat.E164)


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("+14155550123", "+14155550123"),
        (" \t\r\n\f\v+14155550123 \t\r\n\f\v", "+14155550123"),
        ("(+1) 415.555-0123", "+14155550123"),
        ("+44 (0)20 7946 0958", "+442079460958"),
        ("+44 00 20 7946 0958", "+442079460958"),
        ("+39 06 1234 5678", "+390612345678"),
        ("+521 55 1234 5678", "+525512345678"),
        ("+521 551 234 567", "+521551234567"),
        ("+54 0 11 15 2345 6789", "+5491123456789"),
        ("+55 0 11 912345678", "+5511912345678"),
        ("+378 886377", "+3780549886377"),
        ("+1 000 000 0000", "+10000000000"),
        ("+491234", "+491234"),
    ],
)
def test_canonical_form_of_a_number(text: str, canonical: str) -> None:
    """E.164: trunk zeros are removed, Italian ones kept, old Mexican mobile numbers changed; possible is enough."""
    assert canonical_phone(text) == canonical


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", PhoneFault.EMPTY),
        (" ()", PhoneFault.EMPTY),
        ("4155550123", PhoneFault.NO_PLUS),
        ("0014155550123", PhoneFault.NO_PLUS),
        ("\uff0b14155550123", PhoneFault.NO_PLUS),
        ("\u00a0+14155550123", PhoneFault.NO_PLUS),
        ("+", PhoneFault.NO_DIGITS),
        ("+1 800 FLOWERS", PhoneFault.LETTER),
        ("+1 415 555 0123 x5", PhoneFault.LETTER),
        ("+1\u00a04155550123", PhoneFault.CHARACTER),
        ("+1\u20114155550123", PhoneFault.CHARACTER),
        ("+1\u20134155550123", PhoneFault.CHARACTER),
        ("+1\t4155550123", PhoneFault.CHARACTER),
        ("+1/4155550123", PhoneFault.CHARACTER),
        ("+1415555012\u0663", PhoneFault.CHARACTER),
        ("+14155550123;ext=5", PhoneFault.CHARACTER),
        ("++14155550123", PhoneFault.CHARACTER),
        ("+1415\0005550123", PhoneFault.CHARACTER),
        ("+1415\ud8005550123", PhoneFault.CHARACTER),
        ("+4912345678901234", PhoneFault.MANY_DIGITS),
        ("+44000000002079460958", PhoneFault.MANY_DIGITS),
        ("+2101234567", PhoneFault.CALLING_CODE),
        ("+0123456789", PhoneFault.CALLING_CODE),
        ("+1", PhoneFault.TOO_SHORT),
        ("+33 12345678", PhoneFault.TOO_SHORT),
        ("+1 555 0123", PhoneFault.LOCAL),
        ("+33 1234567890", PhoneFault.TOO_LONG),
        ("+41 1234567890", PhoneFault.LENGTH),
        (f"+1{' ' * 1100}4155550123", PhoneFault.OVERLONG),
    ],
)
def test_invalid_number_is_refused(text: str, fault: PhoneFault) -> None:
    """Each clause that refuses."""
    with pytest.raises(AddressError) as refusal:
        canonical_phone(text)
    assert str(refusal.value) == fault


@given(phones)
def test_canonical_form_is_stable(number: str) -> None:
    """Nothing but AddressError is ever raised, with a message that contains nothing of the number."""
    try:
        canonical = canonical_phone(number)
    except AddressError as error:
        fault: str | None = str(error)
    else:
        fault = None
        assert canonical_phone(canonical) == canonical
    assert fault is None or fault in set(PhoneFault)


@given(numbers | phones)
def test_phonenumbers_agrees(number: str) -> None:
    """There is no known difference once the separators are removed."""
    assert outcome(number) == naive(number)


def test_fast_path_agrees_for_every_calling_code_and_length() -> None:
    """The seed differs in each run. A recognized number is one that `phonenumbers` does not change."""
    recognized = 0
    for number in _sample(random.Random()):  # noqa: S311 - not a secret
        assert outcome(number) == naive(number), number
        recognized += rule._RECOGNIZERS[number[:4]](number) is not None
    assert recognized > 1000


def _sample(rng: random.Random) -> list[str]:
    codes = phonenumbers.COUNTRY_CODE_TO_REGION_CODE
    return [
        f"+{code}{start}{''.join(rng.choices('0123456789', k=length))}"
        for code in codes
        for start in ("", "0", "1", "8", "9", "00", "15", "0115")
        for length in range(16 - len(f"{code}{start}"))
    ]


@pytest.mark.parametrize(
    "number",
    [
        "+14155550123",
        "+4915112345678",
        "+447700900123",
        "+5491123456789",
        "+5511912345678",
        "+819012345678",
        "+1 (415) 555-0123",
    ],
)
def test_common_number_takes_the_fast_path(number: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten thousand of them in a batch must not delay other requests."""
    monkeypatch.setattr(rule, "_apply_full_rule", None)
    assert canonical_phone(number).startswith(number[:2])


@pytest.mark.parametrize("junk", ["+99{}", "+ab{}", "x{}", "", "+", "+1", "+\u0661{}", "{}"])
def test_invalid_input_does_not_fill_the_cache(junk: str) -> None:
    """Only recognizers of existing calling codes are cached."""
    before = len(rule._RECOGNIZERS)
    for count in range(100):
        outcome(junk.format(chr(0x400 + count)))
    assert len(rule._RECOGNIZERS) == before


def test_no_calling_code_is_a_prefix_of_another() -> None:
    """So the first match is the only one."""
    codes = rule._CALLING_CODES
    assert not any(code[:end] in codes for code in codes for end in range(1, len(code)))


@pytest.mark.parametrize("trunk", ["", "0", "15"])
def test_formatting_ends_for_every_number_plan(trunk: str) -> None:
    """No plan of `phonenumbers` has a cycle."""
    for code in phonenumbers.COUNTRY_CODE_TO_REGION_CODE:
        for length in range(2, 14):
            for digit in "0123456789":
                outcome(f"+{code}{trunk}{digit * length}")
