"""Tokens, secrets and identifiers: how they are created, recognised and stored.

A secret is a prefix, 43 base62 characters (256 bits from the operating system) and 6 base62 characters of CRC-32 over
everything before them. The checksum saves the look-up of what cannot be ours; it proves nothing.
Source: docs/interface.md section D2.
"""

import hashlib
import itertools
import os
import zlib

ACCESS_TOKEN = "svc_at_"
REFRESH_TOKEN = "svc_rt_"
CLIENT_SECRET = "svc_cs_"
SIGN_IN_LINK = "svc_sl_"
SESSION = "svc_ss_"
CLIENT_ID = "svc_ci_"
GROUP_ID = "grp_"
RECORD_ID = "uns_"
SUBMISSION_ID = "sub_"
SESSION_ID = "ses_"

_ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
# Asking the system for randomness costs as much as looking up a token.
_PROCESS = os.urandom(6).hex()
_REQUESTS = itertools.count(int.from_bytes(os.urandom(4)))
_PAIRS = tuple(first + second for first in _ALPHABET for second in _ALPHABET)
_LIMB = 62**10
# Bytes below 248 = 4 * 62 give each digit the same probability; the others are discarded.
_DIGIT_OF = (_ALPHABET * 5)[:256].encode()
_UNUSED = bytes(range(248, 256))
_BODY_CHARS, _CHECK_CHARS, _ID_CHARS, _MARK_CHARS = 43, 6, 22, 6
_SECRET_CHARS = len(ACCESS_TOKEN) + _BODY_CHARS + _CHECK_CHARS


def new_secret(prefix: str) -> str:
    """Return a new token or client secret with this prefix: 56 characters of `[A-Za-z0-9_]`."""
    body = prefix + _base62(int.from_bytes(os.urandom(32)), _BODY_CHARS)
    return body + _checksum(body)


def new_id(prefix: str) -> str:
    """Return a new identifier: the prefix and 22 base62 characters (128 bits). Not a secret."""
    return prefix + _base62(int.from_bytes(os.urandom(16)), _ID_CHARS)


def new_ids(prefix: str, count: int) -> list[str]:
    """Return `count` new identifiers like those of `new_id`, twenty times as fast."""
    chars = count * _ID_CHARS
    digits = ""
    while len(digits) < chars:
        missing = chars - len(digits)
        digits += os.urandom(missing + missing // 16 + 16).translate(_DIGIT_OF, _UNUSED).decode()
    return [prefix + digits[at : at + _ID_CHARS] for at in range(0, chars, _ID_CHARS)]


def new_submission_id(sender: str) -> str:
    """Return a new identifier of a submission; it begins with the mark of its sender."""
    mark = submission_mark(sender)
    return mark + new_id("")[len(mark) - len(SUBMISSION_ID) :]


def submission_mark(sender: str) -> str:
    """Return the beginning of every submission id of `sender`, which tells whether a record came from the same sender.

    36 bits of a hash, so a collision of two senders is unlikely. It would only let the item of one sender count as a
    repetition of the other's instead of a confirmation (docs/interface.md section D11, Reversing).
    """
    digest = int.from_bytes(hashlib.sha256(sender.encode()).digest()[:8])
    return SUBMISSION_ID + _base62(digest, _MARK_CHARS)


def new_request_id() -> str:
    """Return a new `X-Request-Id`: 24 hexadecimal characters, 12 of the process and 12 of a counter. Not a secret."""
    return f"{_PROCESS}{next(_REQUESTS):012x}"


def id_pattern(prefix: str) -> str:
    """Return a regular expression that every identifier with this prefix matches, for the OpenAPI document."""
    return f"^{prefix}[0-9A-Za-z]{{{_ID_CHARS}}}$"


def secret_pattern(prefix: str) -> str:
    """Return a regular expression that every token or client secret with this prefix matches."""
    return f"^{prefix}[0-9A-Za-z]{{{_BODY_CHARS + _CHECK_CHARS}}}$"


def could_be_id(text: str, prefix: str) -> bool:
    """Return whether `text` has the form of an identifier with this prefix. Never raises."""
    body = text.removeprefix(prefix)
    return len(text) == len(prefix) + len(body) == len(prefix) + _ID_CHARS and body.isascii() and body.isalnum()


def is_well_formed(secret: str, prefix: str) -> bool:
    """Return whether `secret` could be a token of that kind: prefix, length and checksum. Never raises."""
    return (
        len(secret) == _SECRET_CHARS
        and secret.startswith(prefix)
        and secret.isascii()
        and secret[-_CHECK_CHARS:] == _checksum(secret[:-_CHECK_CHARS])
    )


def hash_secret(secret: str) -> bytes:
    """Return what is stored of a secret: the SHA-256 of the whole string, 32 bytes. Accepts any text."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()


def secret_prefix(client_secret: str) -> str:
    """Return the visible part of a client secret: `svc_cs_` and the first 4 characters after it."""
    return client_secret[: len(CLIENT_SECRET) + 4]


def _checksum(body: str) -> str:
    return _base62(zlib.crc32(body.encode()), _CHECK_CHARS)


def _base62(number: int, width: int) -> str:
    """Return `number` in base 62, most significant digit first, zero-padded to `width`."""
    # Ten digits fit a machine word, and pairs of digits a table: five times faster than digit by digit.
    digits: list[str] = []
    while number:
        number, limb = divmod(number, _LIMB)
        for _ in range(5):
            limb, pair = divmod(limb, 3844)
            digits.append(_PAIRS[pair])
    digits.reverse()
    return "".join(digits).rjust(width, "0")[-width:]
