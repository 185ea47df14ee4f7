"""Recognises passwords that are easy to guess: common ones, patterns on the keyboard, parts of the person's address.

zxcvbn estimates how many guesses an attacker needs who tries common passwords, words, names, dates and patterns first.
Source: NIST SP 800-63B section 3.1.1.2 (block lists); docs/interface.md section D11.
"""

import re

from zxcvbn_rs_py import zxcvbn

MIN_SCORE = 3
"""At least 10^8 guesses; zxcvbn calls this "safely unguessable" for hashes that are slow to compute."""

# The cost grows steeply with the length. What is hard to guess so far is not made easier by what follows.
_MAX_JUDGED_CHARACTERS = 48
_SEPARATOR = re.compile(r"[^\w]+|_")


def holds_address(password: str, email: str) -> bool:
    """Return whether the e-mail address stands anywhere in the password, in any case."""
    return email.casefold() in password.casefold()


def is_guessable(password: str, email: str) -> bool:
    """Return whether fewer than 10^8 guesses find the password.

    Takes up to 0.4 s for what is made to be slow, so it belongs in a thread; it releases the interpreter lock.
    """
    parts = [part for part in _SEPARATOR.split(email) if part]
    judged = password[:_MAX_JUDGED_CHARACTERS]
    return int(zxcvbn(judged, [email, *parts, "stoplist"]).score) < MIN_SCORE
