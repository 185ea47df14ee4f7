"""Internationalized domains, with the outcomes of `idna` in a part of its time.

`idna` looks up each character of each label, and Python's `punycode` codec takes time by the square of the length.
Here `idna` is asked once for each character, one pattern checks a label of ordinary characters, and Punycode (RFC 3492)
takes time by the length alone. `idna` checks every other label.
"""

import re
import unicodedata
from bisect import bisect, insort

import idna

A_LABEL_PREFIX = "xn--"
# The characters whose properties are remembered: more than a language has, at most some 2 MB.
_KEPT_CHARACTERS = 10_000

# l: from left to right, r: from right to left (both may begin a label), e: a digit, m and c: marks without and with a
# direction. A label of these satisfies every rule that concerns more than one character, if its hyphens are right.
_ORDINARY = re.compile("[le][lemc-]*+|r[rem]*+")
_EXCEPTION = "?"
_A_LETTER = "\N{CJK UNIFIED IDEOGRAPH-4E00}"  # composes with no mark

_DIGITS = "abcdefghijklmnopqrstuvwxyz0123456789"


class _Remembered(dict[int, str]):
    """A table for `str.translate` that remembers what it found for each character."""

    def __missing__(self, code_point: int) -> str:
        text = self.find(chr(code_point))
        if len(self) >= _KEPT_CHARACTERS:
            self.clear()
        self[code_point] = text
        return text

    def find(self, character: str) -> str:
        raise NotImplementedError


class _Mapping(_Remembered):
    def find(self, character: str) -> str:
        return idna.uts46_remap(character, std3_rules=False)


class _Kinds(_Remembered):
    def find(self, character: str) -> str:
        if character == "-":
            return character
        is_mark = unicodedata.category(character).startswith("M")
        try:
            # Whatever depends on other characters, other than a mark on one before it, is refused here.
            idna.check_label(_A_LETTER + character if is_mark else character)
        except UnicodeError:
            return _EXCEPTION
        direction = unicodedata.bidirectional(character)
        if is_mark:
            return "m" if direction == "NSM" else "c"
        return "r" if direction in ("R", "AL") else "e" if direction == "EN" else "l"


_mapping, _kinds = _Mapping(), _Kinds()


def uts46_mapped(domain: str) -> str:
    """Map a domain by UTS 46, non-transitional, to NFC. UnicodeError if a character is not allowed."""
    return domain.lower() if domain.isascii() else unicodedata.normalize("NFC", domain.translate(_mapping))


def check_u_label(label: str) -> None:
    """Raise UnicodeError unless a label beyond ASCII is valid by IDNA 2008, apart from its length."""
    is_ordinary = _ORDINARY.fullmatch(label.translate(_kinds)) and unicodedata.is_normalized("NFC", label)
    if not is_ordinary or label[2:4] == "--" or label.endswith("-"):
        idna.check_label(label)


def check_a_label(label: str) -> None:
    """Raise UnicodeError unless a label in lower case that begins with `xn--` is the A-label of a valid label."""
    encoded = label.removeprefix(A_LABEL_PREFIX)
    u_label = encoded.encode("ascii").decode("punycode")
    if not encoded or encoded.endswith("-") or punycode(u_label) != encoded:
        raise UnicodeError
    check_u_label(u_label)


def punycode(label: str) -> str:
    """Return a label in Punycode. Source: RFC 3492 section 6.3."""
    basic = label.encode("ascii", "ignore").decode("ascii")
    encoded = [basic, "-"] if basic else []
    positions = [at for at, character in enumerate(label) if character < "\x80"]
    code_point, index, bias = 0x80, 0, 72
    for next_point, at in sorted((ord(character), at) for at, character in enumerate(label) if character >= "\x80"):
        next_index, points = bisect(positions, at), len(positions) + 1
        delta = (next_point - code_point) * points + next_index - index
        encoded.append(_number(delta, bias))
        bias = _adapted(delta, points, is_first=len(basic) == len(positions))
        insort(positions, at)
        code_point, index = next_point, next_index + 1
    return "".join(encoded)


def _number(value: int, bias: int) -> str:
    """Return a number of variable length, whose last digit is below its threshold."""
    digits, threshold_at = "", 36
    while True:
        threshold = min(max(threshold_at - bias, 1), 26)
        if value < threshold:
            return digits + _DIGITS[value]
        value, digit = divmod(value - threshold, 36 - threshold)
        digits += _DIGITS[threshold + digit]
        threshold_at += 36


def _adapted(delta: int, points: int, *, is_first: bool) -> int:
    """Return the next bias, by which small numbers after small ones are short."""
    delta = delta // 700 if is_first else delta // 2
    delta += delta // points
    bias = 0
    while delta > 455:
        delta //= 35
        bias += 36
    return bias + 36 * delta // (delta + 38)
