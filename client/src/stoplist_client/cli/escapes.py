"""Escapes for characters that control a terminal or reorder text: others wrote what the commands print."""

import re

# Those of stoplist_addresses.control_characters, written again because every command would wait for that import.
_CONTROLS = "\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"
_CONTROL = re.compile(f"[{_CONTROLS}]")
_CONTROL_BUT_LINE_FEED = re.compile(f"(?!\n)[{_CONTROLS}]")
# The same in UTF-8, without what JSON encoders escape anyway.
_CONTROL_IN_JSON = re.compile(
    rb"\x7f|\xc2[\x80-\x9f]|\xd8\x9c|\xe2\x80[\x8e\x8f\xa8-\xae]|\xe2\x81[\xa6-\xa9]",
)


def escaped(text: str, *, keeps_lines: bool = False) -> str:
    """Return `text` as it may be printed, such as `\\x1b` for ESC. With `keeps_lines` line feeds stay."""
    if text.isprintable():
        return text
    return (_CONTROL_BUT_LINE_FEED if keeps_lines else _CONTROL).sub(_escape, text)


def escaped_json(encoded: bytes) -> bytes:
    """Return a JSON text in UTF-8 that means the same, with `\\u` escapes for these characters."""
    return _CONTROL_IN_JSON.sub(lambda found: b"\\u%04x" % ord(found[0].decode()), encoded)


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
