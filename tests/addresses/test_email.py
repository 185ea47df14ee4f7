"""E-mail addresses (docs/interface.md section D7), clause by clause and against two widely used libraries."""

import contextlib
import unicodedata
from collections.abc import Callable
from typing import NamedTuple
from unittest import mock

import email_validator
import idna
import pytest
from hypothesis import given
from stoplist_addresses import AddressError, canonical_email
from stoplist_addresses import email as rule
from stoplist_addresses.domain_labels import uts46_mapped
from stoplist_addresses.email import EmailFault
from stoplist_addresses.input_limits import MAX_CHARACTERS

from tests.addresses.strategies import domains, emails, plain_emails

pytestmark = pytest.mark.interpreter


def outcome(address: str) -> str | None:
    """Return the canonical form, or None if there is none."""
    try:
        return canonical_email(address)
    except AddressError:
        return None


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("Jane.Doe@Example.COM", "jane.doe@example.com"),
        (" \t\r\n\f\vjane@example.com \t\r\n\f\v", "jane@example.com"),
        ("jane+news.x@example.com", "jane+news.x@example.com"),
        ("!#$%&'*+-/=?^_`{|}~@example.com", "!#$%&'*+-/=?^_`{|}~@example.com"),
        ("jane@STRASSE.example", "jane@strasse.example"),
        ("jane@Straße.example", "jane@xn--strae-oqa.example"),
        ("jane@mu\u0308nchen.example", "jane@xn--mnchen-3ya.example"),
        ("jane@XN--MNCHEN-3YA.example", "jane@xn--mnchen-3ya.example"),
        ("jane@a\u3002b\uff0ec\uff61de", "jane@a.b.c.de"),
        ("jane@ab--c.example", "jane@ab--c.example"),
        ("jane@a---b.1.x2", "jane@a---b.1.x2"),
        ("jane@example.test", "jane@example.test"),
        ("jane@example.local", "jane@example.local"),
        ("JOSE\u0301É@example.com", "josÉÉ@example.com"),
        ("J\u030c@example.com", "\u01f0@example.com"),
        ("\u212a@example.com", "k@example.com"),
        ("\ufb01@example.com", "\ufb01@example.com"),
        (f"{'é' * 32}@example.com", f"{'é' * 32}@example.com"),
        (f"{'a' * 64}@{'b' * 63}.{'c' * 63}.{'d' * 61}", f"{'a' * 64}@{'b' * 63}.{'c' * 63}.{'d' * 61}"),
        (f"jane@{'a' * 63}.example", f"jane@{'a' * 63}.example"),
    ],
)
def test_canonical_form_of_an_address(text: str, canonical: str) -> None:
    """The domain by UTS 46 and IDNA 2008, the local part in NFC with lowered ASCII, and no other change."""
    assert canonical_email(text) == canonical


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", EmailFault.EMPTY),
        ("jane", EmailFault.NO_AT),
        ("jane\uff20example.com", EmailFault.NO_AT),
        ("jane@x@example.com", EmailFault.MANY_AT),
        ("@example.com", EmailFault.NO_LOCAL_PART),
        ("jane@", EmailFault.NO_DOMAIN),
        ("Jane <jane@example.com>", EmailFault.DISPLAY_NAME),
        ("x<\u0338@example.com", EmailFault.DISPLAY_NAME),
        ('"jane"@example.com', EmailFault.QUOTED),
        ("jane(x)@example.com", EmailFault.COMMENT),
        ("jane@example.com(x)", EmailFault.COMMENT),
        (".jane@example.com", EmailFault.LOCAL_PART_DOTS),
        ("jane.@example.com", EmailFault.LOCAL_PART_DOTS),
        ("ja..ne@example.com", EmailFault.LOCAL_PART_DOTS),
        ("ja ne@example.com", EmailFault.LOCAL_PART_CHARACTER),
        ("ja\0ne@example.com", EmailFault.LOCAL_PART_CHARACTER),
        ("\u037e@example.com", EmailFault.LOCAL_PART_CHARACTER),
        ("ja\u0085ne@example.com", EmailFault.LOCAL_PART_UNSEEN),
        ("ja\u200dne@example.com", EmailFault.LOCAL_PART_UNSEEN),
        ("ja\u2003ne@example.com", EmailFault.LOCAL_PART_UNSEEN),
        ("ja\u2029ne@example.com", EmailFault.LOCAL_PART_UNSEEN),
        ("\u00a0jane@example.com", EmailFault.LOCAL_PART_UNSEEN),
        ("ja\ud800ne@example.com", EmailFault.LOCAL_PART_UNSEEN),
        (f"{'a' * 65}@example.com", EmailFault.LOCAL_PART_LONG),
        (f"{'é' * 33}@example.com", EmailFault.LOCAL_PART_LONG),
        ("jane@.example.com", EmailFault.DOMAIN_DOTS),
        ("jane@example.com.", EmailFault.DOMAIN_DOTS),
        ("jane@example.\u3002com", EmailFault.DOMAIN_DOTS),
        ("jane@\u00ad.com", EmailFault.DOMAIN_DOTS),
        ("jane@localhost", EmailFault.SINGLE_LABEL),
        ("jane@\u00ad", EmailFault.DOMAIN_DOTS),
        (f"jane@{'a' * 64}.com", EmailFault.LABEL_LONG),
        (f"jane@{'ü' * 60}.com", EmailFault.LABEL_LONG),
        ("jane@-a.com", EmailFault.LABEL_CHARACTER),
        ("jane@a-.com", EmailFault.LABEL_CHARACTER),
        ("jane@a.com-", EmailFault.LABEL_CHARACTER),
        ("jane@a_b.com", EmailFault.LABEL_CHARACTER),
        ("jane@[192.0.2.1]", EmailFault.LABEL_CHARACTER),
        ("jane@a\u00a0b.com", EmailFault.LABEL_CHARACTER),
        ("jane@xn--a.com", EmailFault.A_LABEL),
        ("jane@xn---tda.com", EmailFault.A_LABEL),  # decodes to "ü", whose A-label is another
        ("jane@XN--zzzzzzzz.com", EmailFault.A_LABEL),
        ("jane@☃.com", EmailFault.NOT_IDNA),
        ("jane@ab--ü.com", EmailFault.NOT_IDNA),
        ("jane@a\ud800.com", EmailFault.NOT_IDNA),
        ("jane@example.123", EmailFault.DIGITS_LAST),
        ("jane@example.\uff11", EmailFault.DIGITS_LAST),
        (f"{'a' * 64}@{'b' * 63}.{'c' * 63}.{'d' * 62}", EmailFault.TOO_LONG),
        (f"j@{'ü.' * 60}example", EmailFault.TOO_LONG),
        ("j" * 1025, EmailFault.TOO_LONG),
    ],
)
def test_invalid_address_is_refused(text: str, fault: EmailFault) -> None:
    """Each clause that refuses."""
    with pytest.raises(AddressError) as refusal:
        canonical_email(text)
    assert str(refusal.value) == fault


def test_lengths_are_those_of_the_canonical_form() -> None:
    """Four typed characters may become one, and a domain of 30 characters may become one of 300."""
    name = "\u03b1\u0313\u0300\u0345"  # one character of three octets in NFC
    assert len(canonical_email(f"{name * 21}@example.com").partition("@")[0].encode()) == 63
    assert outcome(f"{name * 22}@example.com") is None
    domain = ".".join(["e\u0301" * 20] * 9)
    assert len(domain) > 254
    assert canonical_email(f"j@{domain}") == f"j@{idna.encode(domain, uts46=True).decode()}"


def test_length_limit_refuses_no_valid_address() -> None:
    """NFC composes at most four characters into one, so every input that can shrink to 254 octets is checked."""
    assert max(len(unicodedata.normalize("NFD", chr(code))) for code in range(0x110000)) == 4
    assert MAX_CHARACTERS >= 4 * 254


@given(emails)
def test_canonical_form_is_stable(address: str) -> None:
    """Nothing but AddressError is ever raised, with a message that contains nothing of the address."""
    try:
        canonical = canonical_email(address)
    except AddressError as error:
        fault: str | None = str(error)
    else:
        fault = None
        assert canonical_email(canonical) == canonical
    assert fault is None or fault in set(EmailFault)


@given(emails)
def test_fast_path_agrees_with_the_full_rule(address: str) -> None:
    """The pattern of plain addresses only saves time."""
    try:
        whole = rule._apply_full_rule(address.strip(" \t\r\n\f\v"))
    except AddressError:
        assert outcome(address) is None
    else:
        assert canonical_email(address) == whole


@pytest.mark.parametrize("address", ["jane.doe@example.com", "Jane+News@Mail.Example.co.uk", " j@e--x.com\n"])
def test_plain_address_takes_the_fast_path(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten thousand of them in a batch must not delay other requests."""
    monkeypatch.setattr(rule, "_apply_full_rule", None)
    assert canonical_email(address) == address.strip().lower()


class Difference(NamedTuple):
    """A difference between our rule and email-validator: an example, both outcomes, and a test for such addresses."""

    example: str
    ours: str | None
    email_validator_outcome: str | None
    applies: Callable[[str, str], bool]


def _has(*categories: str) -> Callable[[str, str], bool]:
    return lambda local, _domain: any(unicodedata.category(character) in categories for character in local)


def _labels(domain: str) -> list[str]:
    try:
        return idna.uts46_remap(domain, std3_rules=False).split(".")
    except idna.IDNAError:
        return [domain]


def _is_special(_local: str, domain: str) -> bool:
    labels = _labels(domain)
    return any(
        labels[-count:] == name.split(".") for name in email_validator.SPECIAL_USE_DOMAIN_NAMES for count in (1, 2)
    )


def _is_bidi(_local: str, domain: str) -> bool:
    return any(unicodedata.bidirectional(character) in {"R", "AL", "AN"} for character in _shown(domain))


def _shown(domain: str) -> str:
    try:
        return idna.decode(domain, uts46=True)
    except idna.IDNAError:
        return domain


# All of them, as email-validator 2.4 is by default, but strict, without asking the DNS, and by its ASCII domain.
DIFFERENCES = {
    "white space around an address is trimmed": Difference(
        " jane@example.com",
        "jane@example.com",
        None,
        lambda local, domain: local != local.lstrip() or domain != domain.rstrip(),
    ),
    "ASCII letters of the local part are lowered, then NFC again": Difference(
        "J\u030c@example.com", "\u01f0@example.com", "J\u030c@example.com", lambda local, _: local != local.lower()
    ),
    "special-use domains are accepted": Difference("jane@a.local", "jane@a.local", None, _is_special),
    "an ASCII label may have two hyphens in third place": Difference(
        "jane@ab--c.com", "jane@ab--c.com", None, lambda _, domain: any(label[2:4] == "--" for label in _labels(domain))
    ),
    "a last label may end in a digit": Difference(
        "jane@example.x1", "jane@example.x1", None, lambda _, domain: _labels(domain)[-1][-1:].isdigit()
    ),
    "a local part may begin with a combining mark": Difference(
        "\u0301x@example.com",
        "\u0301x@example.com",
        None,
        lambda local, _: unicodedata.category(local[:1] or "x")[0] == "M",
    ),
    "a domain may begin with a combining mark that UTS 46 makes a letter of": Difference(
        "jane@\u0345.com",
        "jane@xn--uxa.com",
        None,
        lambda _, domain: unicodedata.category(domain[:1] or "x")[0] == "M",
    ),
    "private and unassigned characters are no control characters": Difference(
        "\ue000@example.com", "\ue000@example.com", None, _has("Co", "Cn")
    ),
    "the local part has 64 octets, not 64 characters": Difference(
        f"{'é' * 33}@example.com",
        None,
        f"{'é' * 33}@example.com",
        lambda local, _: len(local.encode(errors="replace")) > 64,
    ),
    "lengths as typed do not count": Difference(
        f"jane@{'x' * 60}{chr(0xAD) * 200}.com", f"jane@{'x' * 60}.com", None, lambda _, domain: len(domain) > 200
    ),
    "the bidi rule holds for each label by itself": Difference("j@1.אב.com", "j@1.xn--4dbc.com", None, _is_bidi),
    "whatever UTS 46 drops is dropped": Difference(
        "jane@exa\ufeffmple.com", "jane@example.com", None, lambda _, domain: any(map(_is_dropped, domain))
    ),
}


def _is_dropped(character: str) -> bool:
    try:
        return idna.uts46_remap(f"a{character}b", std3_rules=False) == "ab"
    except idna.IDNAError:
        return False


def email_validator_outcome(address: str) -> str | None:
    """Return the result of email-validator, with the domain as it goes over the wire."""
    try:
        valid = email_validator.validate_email(address, check_deliverability=False, strict=True)
    except email_validator.EmailNotValidError:
        return None
    return f"{valid.local_part}@{valid.ascii_domain}"


@pytest.mark.parametrize("name", DIFFERENCES)
def test_known_difference_exists(name: str) -> None:
    example, ours, other, applies = DIFFERENCES[name]
    assert (outcome(example), email_validator_outcome(example)) == (ours, other)
    assert applies(*example.split("@"))


@given(emails)
def test_email_validator_agrees_except_for_known_differences(address: str) -> None:
    local, _, domain = address.partition("@")
    excused = any(difference.applies(local, domain) for difference in DIFFERENCES.values())
    assert excused or outcome(address) == email_validator_outcome(address)


@given(plain_emails.map(str.lower))
def test_email_validator_agrees_on_lower_case_addresses(address: str) -> None:
    """Addresses with capitals are excused by a known difference."""
    local, _, domain = address.partition("@")
    excused = any(difference.applies(local, domain) for difference in DIFFERENCES.values())
    assert excused or outcome(address) == email_validator_outcome(address) == address


@given(domains)
def test_idna_agrees_on_domains(domain: str) -> None:
    """Known differences: idna accepts single labels, a final dot and digits only, and no hyphens in third place."""
    ours = outcome(f"j@{domain.strip()}")
    try:
        encoded: str | None = idna.encode(domain.strip(), uts46=True).decode()
    except UnicodeError:
        encoded = None
    if encoded is None:
        assert ours is None or any(label[2:4] == "--" != label[:2] + "--" for label in _labels(domain.strip()))
    elif "." not in encoded or encoded.endswith(".") or encoded.rpartition(".")[2].isdigit() or len(encoded) > 252:
        assert ours is None
    else:
        assert ours == f"j@{encoded}"


def test_a_domain_is_worked_out_once() -> None:
    """Valid or not: it takes as long as hundreds of plain addresses."""
    domains = ["once-b\N{LATIN SMALL LETTER U WITH DIAERESIS}cher.example", "once-\N{SNOWMAN}.example"]
    with mock.patch("stoplist_addresses.email.uts46_mapped", side_effect=uts46_mapped) as mapped:
        for number in range(100):
            with contextlib.suppress(AddressError):
                canonical_email(f"person{number}@{domains[number % 2]}")
    assert mapped.call_count == 2
