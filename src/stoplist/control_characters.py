"""Characters that control a terminal, or reorder or hide text, in what others wrote.

Pure rules, no I/O. Source: docs/interface.md sections D5 and D6; Unicode's UAX #9 (formatting characters) and
Default_Ignorable_Code_Point.
"""

import re
import unicodedata

from stoplist_addresses.control_characters import CONTROLS, with_spaces

__all__ = ["escaped", "escaped_json", "first_invisible", "with_spaces"]

_CONTROL = re.compile(f"[{CONTROLS}]")
_CONTROL_BUT_LINE_FEED = re.compile(f"(?!\n)[{CONTROLS}]")
_INVISIBLE_CATEGORIES = frozenset(("Cc", "Cf", "Cs", "Zl", "Zp"))
# Letters and marks that show nothing, too: joiners, fillers, selectors of a variation, the empty Braille pattern.
_INVISIBLE = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)


def escaped(text: str, *, keeps_lines: bool = False) -> str:
    """Return `text` as it may be printed on a terminal, with escapes such as `\\x1b` for the same characters.

    With `keeps_lines` line feeds stay.
    """
    if text.isprintable():
        return text
    return (_CONTROL_BUT_LINE_FEED if keeps_lines else _CONTROL).sub(_escape, text)


def escaped_json(text: str) -> str:
    """Return a JSON text that means the same, with escapes for these characters, save line feeds between values."""
    return _CONTROL_BUT_LINE_FEED.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def first_invisible(text: str) -> str | None:
    """Return the first character of `text` that nobody can see (save spaces), or None."""
    for character in text:
        if unicodedata.category(character) in _INVISIBLE_CATEGORIES or _INVISIBLE.match(character):
            return character
    return None


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
