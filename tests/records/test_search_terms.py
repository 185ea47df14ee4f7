"""Reading of the text that a person enters into the search. docs/interface.md sections D7 and D11."""

import pytest

from stoplist.errors import Refused
from stoplist.records.search_terms import MAX_TERMS, read_term, split_terms


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        (" ann@x.org ", ["ann@x.org"]),
        ("a@x.org, b@x.org;c@x.org\r\nd@x.org", ["a@x.org", "b@x.org", "c@x.org", "d@x.org"]),
        ("a@x.org b@x.org\t c@x.org", ["a@x.org", "b@x.org", "c@x.org"]),
        ("+44 20 7946 0958", ["+44 20 7946 0958"]),
        ("+44 20 7946 0958 +1 (415) 555-0123", ["+44 20 7946 0958", "+1 (415) 555-0123"]),
        ("+44 20 7946 0958 (+1) 415", ["+44 20 7946 0958", "(+1) 415"]),
        ("a@x.org +44 20 7946 0958", ["a@x.org", "+44 20 7946 0958"]),
        (",;\n a@x.org ,, \n", ["a@x.org"]),
        ("not an address", ["not an address"]),
    ],
)
def test_terms_are_separated_where_no_address_could_go_on(text: str, terms: list[str]) -> None:
    """Numbers keep their spaces."""
    assert split_terms(text) == terms


@pytest.mark.timeout(60)
def test_a_long_run_of_spaces_is_searched_once() -> None:
    """A search from each of them would take hours: half a minute in the longest form."""
    spaces = " " * 1_000_000
    assert split_terms(f"+1{spaces}7946{spaces}+4930") == [f"+1{spaces}7946", "+4930"]


@pytest.mark.parametrize("text", ["020 7946 0958", "a@x.org\n020 7946 0958", "0044 20 7946 0958", "(020) 7946 0958 x2"])
def test_a_number_without_a_calling_code_asks_for_the_country(text: str) -> None:
    with pytest.raises(Refused) as refusal:
        split_terms(text)
    assert refusal.value.field == "country"
    assert "Select" in refusal.value.text
    assert split_terms(text, country="GB")


def test_a_national_number_is_read_in_its_country() -> None:
    """One with a + is read as it is."""
    assert read_term("020 7946 0958", country="GB").canonical == "+442079460958"
    assert read_term("(415) 555-0123", country="US").canonical == "+14155550123"
    assert read_term("+44 20 7946 0958", country="US").canonical == "+442079460958"
    assert read_term("Ann@X.org", country="US").canonical == "ann@x.org"


@pytest.mark.parametrize("country", ["XX", "gb", "United Kingdom", "\0"])
def test_an_unknown_country_is_refused(country: str) -> None:
    with pytest.raises(Refused) as refusal:
        split_terms("020 7946 0958", country=country)
    assert refusal.value.field == "country"


@pytest.mark.parametrize(
    "text", ["carla", "example.org", "@example.org", "carla@", "carla@example", "*@example.org", "a b c"]
)
def test_a_part_of_an_address_says_why_not_and_what_to_do(text: str) -> None:
    """Parts are in no index; the list can be downloaded and filtered."""
    with pytest.raises(Refused) as refusal:
        read_term(text)
    assert refusal.value.text.startswith("Only a whole address can be searched, because")
    assert "download the list" in refusal.value.text


@pytest.mark.parametrize("text", ["020 7946 0958 ext 3", "+44 20 CALL NOW", "+12", "1,2"])
def test_a_wrong_number_is_not_called_a_part(text: str) -> None:
    with pytest.raises(Refused) as refusal:
        read_term(text, country="GB")
    assert "phone number" in refusal.value.text
    assert "An e-mail address has an @." in refusal.value.text


def test_the_number_of_addresses_is_limited() -> None:
    """A text without any is refused too."""
    text = "\n".join(f"p{number}@x.org" for number in range(MAX_TERMS + 1))
    assert len(split_terms(text.rpartition("\n")[0])) == MAX_TERMS
    for refused in (text, "", " ,; "):
        with pytest.raises(Refused) as refusal:
            split_terms(refused)
        assert refusal.value.field == "address"
