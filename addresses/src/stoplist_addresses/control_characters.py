"""The characters that control a terminal, or the direction of text, in what others wrote.

Source: docs/interface.md sections D6 and D12; Unicode's UAX #9 (formatting characters).
"""

import re

# C0, DEL and C1, both separators of lines, and what changes the direction of text.
CONTROLS = "\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"
"""The characters, as the inside of a character class of a regular expression."""

_CONTROL = re.compile(f"[{CONTROLS}]")
_RUN = re.compile(f"[{CONTROLS}]+")


def with_spaces(text: str) -> str:
    """Return `text` with a space for each character that controls a terminal or the direction of text."""
    return text if text.isprintable() else _CONTROL.sub(" ", text)


def with_one_space(text: str) -> str:
    """Return `text` with one space for each run of such characters."""
    return text if text.isprintable() else _RUN.sub(" ", text)
