"""Characters that control a terminal, or reorder or hide text, in what others wrote."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stoplist_client.cli import escapes

from stoplist.control_characters import escaped, escaped_json, first_invisible, with_spaces

TERMINAL = ["\x1b", "\x07", "\r", "\n", "\x7f", "\x9b", "\u061c", "\u200e", "\u2028", "\u202e", "\u2069"]


@pytest.mark.parametrize("character", TERMINAL)
def test_a_character_for_terminals_is_replaced(character: str) -> None:
    """A space is stored, an escape is printed; in JSON the text stays the same."""
    text = f"a{character}é"
    assert with_spaces(text) == "a é"
    assert character not in escaped(text)
    assert escaped(text).startswith("a\\")
    printed = escaped_json(json.dumps([text], ensure_ascii=False))
    assert character not in printed
    assert json.loads(printed) == [text]


@pytest.mark.parametrize("text", ["Zoë", "株式会社", "a\u00a0b", "👩\u200d👩", "a\\b"])
def test_other_text_stays(text: str) -> None:
    assert with_spaces(text) == escaped(text) == escaped_json(text) == text


def test_line_feeds_stay_where_lines_are_printed() -> None:
    assert escaped("a\n\x1bb", keeps_lines=True) == "a\n\\x1bb"
    assert escaped("a\nb") == "a\\x0ab"


def test_the_first_invisible_character_is_found() -> None:
    assert first_invisible("a b\u200bc\u3164") == "\u200b"
    assert first_invisible("Ä 株\u0301") is None


@given(st.text())
def test_both_command_lines_escape_alike(text: str) -> None:
    """The client knows nothing of the server, so it has rules of its own."""
    assert escapes.escaped(text) == escaped(text)
    assert escapes.escaped(text, keeps_lines=True) == escaped(text, keeps_lines=True)
    encoded = json.dumps(text, ensure_ascii=False).encode("utf-8", "replace")
    assert escapes.escaped_json(encoded).decode() == escaped_json(encoded.decode())
