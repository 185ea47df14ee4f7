"""Our faster ways through IDNA have the outcomes of `idna` and of Python's codec."""

import sys
import unicodedata
from collections.abc import Callable

import idna
import pytest
from hypothesis import given
from hypothesis import strategies as st
from stoplist_addresses import domain_labels
from stoplist_addresses.domain_labels import check_a_label, check_u_label, punycode, uts46_mapped

pytestmark = pytest.mark.interpreter

# Letters and digits of both directions, marks, joiners, and what is valid only beside certain characters.
TELLING = (
    "abl059-\u00df\u00e9\u00fc\u0131\u03b1\u03c3\u03c2\u0375\u05d0\u05d1\u05b0\u05f3\u05f4\u0627\u0628\u0647\u064b\u0660\u0669"
    "\u06f0\u06f9\u0915\u093f\u094d\u200c\u200d\u00b7\u30fb\u3042\u6f22\u30a2\u3099\u0301\u0338\U0001d165\u00b5"
)
PRIVATE_USE = {0xE000, 0xF8FF, 0xF0000, 0xFFFFD, 0x100000, 0x10FFFD}
labels = st.text(st.sampled_from(TELLING) | st.characters(), min_size=1, max_size=70) | st.text(
    st.sampled_from(TELLING), min_size=1, max_size=6
)


def is_accepted(check: Callable[[str], object], text: str) -> bool:
    try:
        check(text)
    except UnicodeError:
        return False
    return True


@given(labels)
def test_punycode_is_that_of_the_codec(label: str) -> None:
    if all(ord(character) < 0xD800 or ord(character) > 0xDFFF for character in label):
        assert punycode(label) == label.encode("punycode").decode("ascii")


@given(labels)
def test_a_u_label_is_valid_if_idna_accepts_it(label: str) -> None:
    assert is_accepted(check_u_label, label) == is_accepted(idna.check_label, label)


@given(
    labels.filter(lambda label: not label.isascii()).map(
        lambda label: label.encode("punycode", "replace").decode("ascii")
    )
    | st.text(st.sampled_from("abcz019-"), max_size=20)
)
def test_an_a_label_is_valid_if_idna_accepts_it(encoded: str) -> None:
    label = f"xn--{encoded.lower()}"
    assert is_accepted(check_a_label, label) == is_accepted(idna.ulabel, label)


@given(labels | st.text(max_size=40))
def test_mapping_is_that_of_idna(domain: str) -> None:
    assert is_accepted(uts46_mapped, domain) == is_accepted(
        lambda text: idna.uts46_remap(text, std3_rules=False), domain
    )
    if is_accepted(uts46_mapped, domain):
        assert uts46_mapped(domain) == idna.uts46_remap(domain, std3_rules=False)


@pytest.mark.slow
@pytest.mark.parametrize(
    "label",
    [
        "{}",
        "\N{CJK UNIFIED IDEOGRAPH-4E00}{}",
        "{}\N{CJK UNIFIED IDEOGRAPH-4E00}",
        "\N{ARABIC LETTER ALEF}{}",
        "{}\N{ARABIC LETTER ALEF}",
    ],
)
def test_every_character_is_valid_where_idna_accepts_it(label: str) -> None:
    """Those for private use, half of all, stand for one another: the first and the last of each range are tried."""
    for code_point in range(0x80, sys.maxunicode + 1):
        if unicodedata.category(chr(code_point)) not in ("Cn", "Co") or code_point in PRIVATE_USE:
            text = label.format(chr(code_point))
            assert is_accepted(check_u_label, text) == is_accepted(idna.check_label, text), hex(code_point)


def test_remembered_characters_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(domain_labels, "_KEPT_CHARACTERS", 100)
    for code_point in range(0x4E00, 0x4E00 + 1000):
        uts46_mapped(chr(code_point))
        check_u_label(chr(code_point))
    assert max(len(domain_labels._mapping), len(domain_labels._kinds)) <= 100
