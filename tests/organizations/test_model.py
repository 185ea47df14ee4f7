"""The rules for slugs and names."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoplist.errors import Refused
from stoplist.organizations.model import MAX_NAME_CHARS, checked_name, checked_slug, is_slug


@pytest.mark.parametrize("slug", ["a", "0", "acme", "acme-shoes", "a-", "a--b", "2nd", "x" * 63])
def test_slugs_are_lower_case_letters_digits_and_hyphens(slug: str) -> None:
    """Section D5: `[a-z0-9][a-z0-9-]{0,62}`."""
    assert checked_slug(slug) == slug


@pytest.mark.parametrize(
    "slug",
    [
        "",
        "-a",
        "Acme",
        "a b",
        "a_b",
        "a.b",
        "acme\n",
        "äcme",
        "\N{ARABIC-INDIC DIGIT ONE}",
        "\N{FULLWIDTH LATIN SMALL LETTER A}",
        "x" * 64,
        "a/b",
        "\0",
        " a",
    ],
)
def test_any_other_slug_is_refused_with_an_example(slug: str) -> None:
    """The error shows what would be right."""
    with pytest.raises(Refused, match="acme-shoes"):
        checked_slug(slug)


@given(st.text())
def test_slugs_match_the_pattern_of_the_interface(text: str) -> None:
    """Compared with the pattern over bytes, where Unicode digits and case folding play no part."""
    as_written = re.fullmatch(rb"[a-z0-9][a-z0-9-]{0,62}", text.encode("utf-8", "surrogatepass"))
    assert is_slug(text) == (as_written is not None)


def test_white_space_around_a_name_is_dropped() -> None:
    assert checked_name("  Acme  Shoes\n", "A name") == "Acme  Shoes"


@pytest.mark.parametrize("name", ["Ä", "株式会社", "Zoë's \N{ATHLETIC SHOE}", "x" * MAX_NAME_CHARS])
def test_names_are_text_of_any_script(name: str) -> None:
    """People read them, programs do not."""
    assert checked_name(name, "A name") == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        "   ",
        "x" * (MAX_NAME_CHARS + 1),
        "a\nb",
        "a\tb",
        "a\0b",
        "a\x1b[31mb",
        "a\u2028b",
        "a\u2029b",
        "a\ud800b",
        "a\x85b",
        "a\u202eb",
        "a\u2066b",
        "a\u200bb",
        "a\u2060b",
        "a\u00adb",
        "a\ufeffb",
        "a\u034fb",
        "a\ufe0fb",
        "a\u3164b",
        "a\u2800b",
        "\u115f",
        "a\U000e0041b",
        "a\U000e0100b",
    ],
)
def test_a_name_is_one_line_of_visible_characters(name: str) -> None:
    """PostgreSQL cannot store some, terminals act on others, and two names must not look alike. The error says what it
    names.
    """
    with pytest.raises(Refused, match="The label of a key"):
        checked_name(name, "The label of a key")
