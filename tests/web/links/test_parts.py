"""Parts of the page: colours that can be read, addresses that cannot, what was posted, and the Undo field."""

import re
from importlib import resources

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoplist import ids
from stoplist.web.links.address_mask import masked
from stoplist.web.links.colours import DARK_CARD, LIGHT_CARD, contrast, edge_colour, text_colour_on
from stoplist.web.links.link_form import ONE_CLICK, LinkForm, read_link_form
from stoplist.web.links.undo_field import LIFETIME_MS, read_undo_field, undo_field

KEYS = ("k" * 32, "l" * 32)
SUBMISSION = ids.new_submission_id("link:lnk_1")


@given(st.integers(0, 0xFFFFFF))
def test_text_on_any_accent_colour_can_be_read(colour: int) -> None:
    """WCAG 2.2 AA asks for 4.5 to 1."""
    accent = f"#{colour:06x}"
    assert contrast(accent, text_colour_on(accent)) >= 4.5


def test_a_button_has_an_edge_on_any_card() -> None:
    """WCAG 2.2 AA asks for 3 to 1. Both colours of lines have it, too."""
    assert edge_colour("#0a66c2", LIGHT_CARD) == "#0a66c2"
    for accent, card in ((LIGHT_CARD, LIGHT_CARD), ("#ffff00", LIGHT_CARD), (DARK_CARD, DARK_CARD)):
        assert edge_colour(accent, card) == "var(--line)"
    lines = re.findall(
        r"--line: (#[0-9a-f]{6})", resources.files("stoplist.web.links").joinpath("page.css").read_text()
    )
    assert [contrast(line, card) >= 3 for line, card in zip(lines, (LIGHT_CARD, DARK_CARD), strict=True)] == [
        True,
        True,
    ]


def test_contrasts_are_those_of_wcag() -> None:
    assert contrast("#ffffff", "#000000") == 21
    assert round(contrast("#777777", "#ffffff"), 2) == 4.48
    assert [text_colour_on(one) for one in ("#ffff00", "#00008b")] == ["#000000", "#ffffff"]


def test_addresses_of_any_length_are_masked_alike() -> None:
    assert masked("email", "ann@example.com") == "a••••@e••••.com"
    assert masked("email", "a" * 64 + "@" + "b" * 60 + ".example.museum") == "a••••@b••••.museum"
    assert masked("email", "ann@xn--mnchen-3ya.example") == "a••••@m••••.example"
    assert masked("email", "ann@xn--e1afmkfd.xn--p1ai") == "a••••@п••••.рф"
    assert masked("email", "ann@xn--99999999.example") == "a••••@x••••.example"
    assert masked("sms", "+442079460967") == masked("phone", "+1202555867") == "••••67"


@given(st.binary(max_size=300), st.booleans())
def test_no_body_is_lost(body: bytes, is_complete: bool) -> None:
    """Any body is a choice, an Undo, or a one-click opt-out."""
    form = read_link_form(body, is_complete=is_complete)
    assert form.kind in ("group", "all", "one_click", "undo")
    if b"undo" not in body.lower() and b"%" not in body:
        assert form.kind != "undo"


def test_the_fields_of_the_form_are_understood() -> None:
    for body, expected in (
        (b"choice=group", LinkForm("group")),
        (b"choice=all", LinkForm("all")),
        (b"choice=group&choice=all", LinkForm("all")),
        (b"choice=", ONE_CLICK),
        (b"undo=1.x", LinkForm("undo", "1.x")),
        (b"choice=all&undo=", LinkForm("undo")),
        (b"%75ndo=1", LinkForm("undo", "1")),
        (b"List-Unsubscribe=One-Click", ONE_CLICK),
    ):
        assert read_link_form(body) == expected


@pytest.mark.parametrize(
    "field", [b"undo=1", b"%75%6E%64%6f=1", b"undo", b'--x\r\nContent-Disposition: a; name="undo"\r\n']
)
def test_the_undo_field_is_found_in_every_body(field: bytes) -> None:
    """The body may have too many fields; or be too large or late, and its beginning has the field."""
    for body, is_complete in (
        (field, False),
        (b"a=1&" * 120 + field, True),
        (b"a=1&" + field + b"&x=" + b"y" * 1000, False),
    ):
        assert read_link_form(body, is_complete=is_complete) == LinkForm("undo")
    assert read_link_form(b"a=1&" * 120 + b"fundo=1", is_complete=False) == ONE_CLICK
    assert read_link_form(b"choice=all", is_complete=False) == ONE_CLICK


def test_an_undo_field_is_bound_to_all_that_it_is_for() -> None:
    """Link, submission, time and key; a key that was put second still reads it."""
    field = undo_field(KEYS, token="t", submission_id=SUBMISSION, now_ms=1_000)
    last_ms = 1_000 + LIFETIME_MS
    assert read_undo_field(KEYS[::-1], field, token="t", now_ms=last_ms) == SUBMISSION
    assert read_undo_field(KEYS, field, token="t", now_ms=last_ms + 1) is None
    assert read_undo_field(KEYS, field, token="u", now_ms=0) is None
    assert read_undo_field(("m" * 32,), field, token="t", now_ms=0) is None
    expires, submission, mac = field.split(".")
    for other in (
        f"{int(expires) + 1}.{submission}.{mac}",
        f"{expires}.{ids.new_submission_id('link:lnk_1')}.{mac}",
        f"{expires}.{submission}.{mac[::-1]}",
        f"{expires}.{submission}",
        "",
    ):
        assert read_undo_field(KEYS, other, token="t", now_ms=0) is None
