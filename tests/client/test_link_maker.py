"""Opt-out links made by a partner, without the service."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stoplist_addresses import AddressError
from stoplist_addresses.link_tokens import LinkContent, LinkKey, parse_content
from stoplist_client import ConfigurationError, LinkMaker

from stoplist import ids

BASE_URL = "https://stop.example.com"
LINK_KEY = ids.new_secret(ids.LINK_KEY)
GROUP_ID = ids.new_id(ids.GROUP_ID)


def content_of(url: str) -> LinkContent | None:
    content = LinkKey(LINK_KEY).open(url.removeprefix(f"{BASE_URL}/u/"))
    return None if content is None else parse_content(content)


def test_the_same_person_gets_the_same_link() -> None:
    """The spelling does not matter: the link holds the canonical address."""
    maker = LinkMaker(f"{BASE_URL}/", LINK_KEY)
    url = maker.url("email", "ann@example.com", group_id=GROUP_ID, source="march newsletter")
    assert maker.url("email", " Ann@Example.com ", group_id=GROUP_ID, source="march newsletter") == url
    assert content_of(url) == LinkContent("email", GROUP_ID, "ann@example.com", "march newsletter")
    assert content_of(maker.url("sms", "+44 (0)20 7946-0958")) == LinkContent("sms", None, "+442079460958")


def test_headers_are_those_of_rfc_8058() -> None:
    maker = LinkMaker(BASE_URL, LINK_KEY)
    assert maker.headers("ann@example.com", group_id=GROUP_ID) == {
        "List-Unsubscribe": f"<{maker.url('email', 'ann@example.com', group_id=GROUP_ID)}>",
        "List-Unsubscribe-Post": "List-Unsubscribe=One-Click",
    }


@given(st.text())
def test_no_source_keeps_a_link_from_being_made(source: str) -> None:
    assert LinkMaker(BASE_URL, LINK_KEY).url("email", "ann@example.com", source=source)


def test_wrong_arguments_are_refused_without_repeating_them() -> None:
    maker = LinkMaker(BASE_URL, LINK_KEY)
    for kind, made in (
        (AddressError, lambda: maker.url("email", "ann")),
        (ValueError, lambda: maker.url("fax", "ann@example.com")),  # type: ignore[arg-type]
        (ValueError, lambda: maker.url("email", "ann@example.com", group_id="newsletter")),
        (ConfigurationError, lambda: LinkMaker("http://stop.example.com", LINK_KEY)),
        (ConfigurationError, lambda: LinkMaker("https://stop.example.com/u", LINK_KEY)),
        (ConfigurationError, lambda: LinkMaker(BASE_URL, LINK_KEY[:-1])),
    ):
        with pytest.raises(kind) as raised:
            made()
        assert "ann@" not in str(raised.value)
        assert LINK_KEY[:-1] not in str(raised.value)
    assert LINK_KEY not in repr(maker)
