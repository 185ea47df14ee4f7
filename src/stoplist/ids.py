"""Tokens, secrets and identifiers: how they are created, recognised and stored.

A secret is a prefix, 43 base62 characters drawn by the operating system's generator (256 bits) and 6 base62 characters
of CRC-32 over everything before them. The checksum saves the look-up of what cannot be ours; it proves nothing.
Source: docs/interface.md section D2.
"""

import hashlib
import itertools
import os
import re
import zlib
from functools import lru_cache

ACCESS_TOKEN = "svc_at_"
REFRESH_TOKEN = "svc_rt_"
CLIENT_SECRET = "svc_cs_"
SIGN_IN_LINK = "svc_sl_"
SESSION = "svc_ss_"
INVITATION = "svc_in_"
SIGN_IN_TICKET = "svc_st_"
LINK_KEY = "svc_lk_"
CLIENT_ID = "svc_ci_"
GROUP_ID = "grp_"
RECORD_ID = "uns_"
SUBMISSION_ID = "sub_"
SESSION_ID = "ses_"
IMPORT_ID = "imp_"
NOTICE_ID = "ntc_"

_LINK_KEY_ID = re.compile("lnk_[0-9a-f]{16}", re.ASCII)
_ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
# Asking the system for randomness costs as much as looking up a token.
_PROCESS = os.urandom(6).hex()
_REQUESTS = itertools.count(int.from_bytes(os.urandom(4)))
_PAIRS = tuple(first + second for first in _ALPHABET for second in _ALPHABET)
# Bytes below 248 = 4 * 62 give each digit the same probability; the others are discarded.
_DIGIT_OF = (_ALPHABET * 5)[:256].encode()
_UNUSED = bytes(range(248, 256))
_BODY_CHARS, _CHECK_CHARS, _ID_CHARS = 43, 6, 22
_SECRET_CHARS = len(ACCESS_TOKEN) + _BODY_CHARS + _CHECK_CHARS


def new_secret(prefix: str) -> str:
    """Return a new token or client secret with this prefix: 56 characters of `[A-Za-z0-9_]`."""
    return new_secrets(prefix)[0]


def new_secrets(*prefixes: str) -> list[str]:
    """Return a new secret with each of the prefixes, from one read of the system's generator."""
    digits = _random_digits(len(prefixes) * _BODY_CHARS)
    bodies = [prefix + digits[number * _BODY_CHARS :][:_BODY_CHARS] for number, prefix in enumerate(prefixes)]
    return [body + _checksum(body) for body in bodies]


def new_id(prefix: str) -> str:
    """Return a new identifier: the prefix and 22 base62 characters (130 bits). Not a secret."""
    return prefix + _random_digits(_ID_CHARS)


def new_ids(prefix: str, count: int) -> list[str]:
    """Return `count` new identifiers like those of `new_id`, from one read of the system's generator."""
    chars = count * _ID_CHARS
    digits = _random_digits(chars)
    return [prefix + digits[at : at + _ID_CHARS] for at in range(0, chars, _ID_CHARS)]


def new_submission_id(sender: str) -> str:
    """Return a new identifier of a submission; it begins with the mark of its sender."""
    return new_submission_ids(sender, 1)[0]


def new_submission_ids(sender: str, count: int) -> list[str]:
    """Return `count` identifiers like those of `new_submission_id`, from one read of the system's generator."""
    mark = submission_mark(sender)
    return [mark + digits[len(mark) - len(SUBMISSION_ID) :] for digits in new_ids("", count)]


@lru_cache(maxsize=1024)
def submission_mark(sender: str) -> str:
    """Return the beginning of every submission id of `sender`, which tells whether a record came from the same sender.

    36 bits of a hash, so a collision of two senders is unlikely. It would only let the item of one sender count as a
    repetition of the other's instead of a confirmation (docs/interface.md section D11, Reversing).
    """
    digest = int.from_bytes(hashlib.sha256(sender.encode()).digest()[:8])
    return SUBMISSION_ID + _six_digits(digest)


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


def could_be_link_key_id(text: str) -> bool:
    """Return whether `text` has the form of the id of a link key: `lnk_` and 16 hexadecimal digits. Never raises."""
    return _LINK_KEY_ID.fullmatch(text) is not None


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
    return _six_digits(zlib.crc32(body.encode()))


def _six_digits(number: int) -> str:
    """Return the last six digits of `number` in base 62, most significant first, zero-padded."""
    rest, third = divmod(number, 3844)
    first, second = divmod(rest, 3844)
    return _PAIRS[first % 3844] + _PAIRS[second] + _PAIRS[third]


def _random_digits(count: int) -> str:
    """Return `count` base62 characters, drawn uniformly and independently."""
    digits = ""
    while len(digits) < count:
        missing = count - len(digits)
        # One octet in 32 is discarded. With these to spare a second read is rare.
        digits += os.urandom(missing + missing // 16 + 16).translate(_DIGIT_OF, _UNUSED).decode()
    return digits[:count]
