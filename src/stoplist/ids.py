"""Tokens, secrets and identifiers: how they are made, recognised and kept.

prefix + 43 base62 characters (256 bits from the operating system) + 6 base62 characters of CRC-32 over all that
precedes them. The checksum spares the look-up of what cannot be ours; it proves nothing.
Source: docs/interface.md section D2.
"""

import hashlib
import itertools
import os
import zlib

ACCESS_TOKEN = "svc_at_"
REFRESH_TOKEN = "svc_rt_"
CLIENT_SECRET = "svc_cs_"
CLIENT_ID = "svc_ci_"
GROUP_ID = "grp_"

_ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
# To ask the system for randomness costs as much as to look a token up.
_PROCESS = os.urandom(6).hex()
_REQUESTS = itertools.count(int.from_bytes(os.urandom(4)))
_PAIRS = tuple(first + second for first in _ALPHABET for second in _ALPHABET)
_LIMB = 62**10
_BODY_CHARS, _CHECK_CHARS, _ID_CHARS = 43, 6, 22
_SECRET_CHARS = len(ACCESS_TOKEN) + _BODY_CHARS + _CHECK_CHARS


def new_secret(prefix: str) -> str:
    """A fresh token or client secret with this prefix: 56 characters of `[A-Za-z0-9_]`."""
    body = prefix + _base62(int.from_bytes(os.urandom(32)), _BODY_CHARS)
    return body + _checksum(body)


def new_id(prefix: str) -> str:
    """A fresh identifier: the prefix and 22 base62 characters (128 bits). Not a secret."""
    return prefix + _base62(int.from_bytes(os.urandom(16)), _ID_CHARS)


def new_request_id() -> str:
    """A fresh `X-Request-Id`: 24 hexadecimal characters, 12 of the process and 12 that count. Not a secret."""
    return f"{_PROCESS}{next(_REQUESTS):012x}"


def is_well_formed(secret: str, prefix: str) -> bool:
    """Whether this could be a token of that kind: prefix, length, and checksum. Never raises, any text will do."""
    return (
        len(secret) == _SECRET_CHARS
        and secret.startswith(prefix)
        and secret.isascii()
        and secret[-_CHECK_CHARS:] == _checksum(secret[:-_CHECK_CHARS])
    )


def hash_secret(secret: str) -> bytes:
    """What is kept of a secret: the SHA-256 of the whole string, 32 bytes. Any text will do."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()


def secret_prefix(client_secret: str) -> str:
    """What stays visible of a client secret: `svc_cs_` and the first 4 characters after it."""
    return client_secret[: len(CLIENT_SECRET) + 4]


def _checksum(body: str) -> str:
    return _base62(zlib.crc32(body.encode()), _CHECK_CHARS)


def _base62(number: int, width: int) -> str:
    """`number` in base 62, most significant digit first, zero-padded to `width`."""
    # Ten digits at a time fit a machine word, and two digits a table: five times faster than digit by digit.
    digits: list[str] = []
    while number:
        number, limb = divmod(number, _LIMB)
        for _ in range(5):
            limb, pair = divmod(limb, 3844)
            digits.append(_PAIRS[pair])
    digits.reverse()
    return "".join(digits).rjust(width, "0")[-width:]
