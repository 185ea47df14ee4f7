"""Tokens of opt-out links, which senders make and the server reads: a link key encrypts who asks for what.

A token is base64url, without padding, of the version, the 8-byte id of the link key, and AES-SIV (RFC 5297) of an
RFC 8785 array. The same person gets the same link, and nobody reads or makes one without the key. Needs
`cryptography`, which the extra `links` installs. Source: docs/interface.md section D15.
"""

import base64
import binascii
import hashlib
import json
import re
import zlib
from importlib import resources
from typing import Final, NamedTuple

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESSIV

LINK_KEY_PREFIX: Final = "svc_lk_"
LINK_KEY_ID_PREFIX: Final = "lnk_"
MAX_TOKEN_CHARS: Final = 640
MAX_SOURCE_BYTES: Final = 64

_VERSION = b"\x01"
_ID_BYTES, _SIV_BYTES = 8, 16
_HEAD_BYTES = len(_VERSION) + _ID_BYTES
_LINK_KEY = re.compile(LINK_KEY_PREFIX + "[0-9A-Za-z]{49}")
_CHECK_CHARS = 6
_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_TOKEN = re.compile(f"[A-Za-z0-9_-]{{{-(-(_HEAD_BYTES + _SIV_BYTES) * 4 // 3)},{MAX_TOKEN_CHARS}}}")
# Strings and null in the form of RFC 8785: nothing is escaped but quotation marks, backslashes and control characters.
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class LinkContent(NamedTuple):
    """The content of a link: whom it opts out of what. Without a group it is for all groups.

    Values come from whoever has the key: none of them is checked.
    """

    channel: str
    group_id: str | None
    address: str
    source: str | None = None

    def __repr__(self) -> str:
        return "LinkContent(…)"


class LinkKey:
    """A link key, which makes and reads tokens. ValueError for a text that is no link key, or a mistyped one."""

    __slots__ = ("_cipher", "_head", "key_id")

    def __init__(self, text: str) -> None:
        if not is_link_key(text):
            raise ValueError("A link key is svc_lk_ and 49 letters and digits, exactly as it was shown once.")
        key_bytes = text.encode()
        id_bytes = hashlib.sha256(key_bytes).digest()[:_ID_BYTES]
        self.key_id = _id_text(id_bytes)
        self._head = _VERSION + id_bytes
        self._cipher = AESSIV(hashlib.sha512(key_bytes).digest())

    def token(self, content: LinkContent) -> str:
        """Return the token of this content, always the same. ValueError if it is too long, or not Unicode text."""
        sealed = self._cipher.encrypt(_encode(content).encode(), [self._head])
        token = base64.urlsafe_b64encode(self._head + sealed).rstrip(b"=").decode()
        if len(token) > MAX_TOKEN_CHARS:
            raise ValueError(f"The token of a link has at most {MAX_TOKEN_CHARS} characters: shorten its parts.")
        return token

    def open(self, token: str) -> bytes | None:
        """Return what the token holds, or None unless it was made with exactly this key."""
        sealed = read_token(token)
        return None if sealed is None else self.unseal(sealed)

    def unseal(self, sealed: "SealedContent") -> bytes | None:
        """Return the content of a token, or None unless the token was made with exactly this key."""
        if sealed.head != self._head:
            return None
        try:
            return self._cipher.decrypt(sealed.ciphertext, [self._head])
        except InvalidTag:
            return None

    def __repr__(self) -> str:
        return f"LinkKey({self.key_id})"


def is_link_key(text: str) -> bool:
    """Return whether the text has the form of a link key, with the right checksum."""
    return _LINK_KEY.fullmatch(text) is not None and text[-_CHECK_CHARS:] == _checksum(text[:-_CHECK_CHARS])


class SealedContent(NamedTuple):
    """A token, not yet decrypted, with the id of the key that it names."""

    key_id: str
    head: bytes
    ciphertext: bytes


def read_token(token: str) -> SealedContent | None:
    """Return the sealed content of a token; None for a text that cannot be a token of this version."""
    content = _bytes_of(token)
    if content is None or not content.startswith(_VERSION):
        return None
    head = content[:_HEAD_BYTES]
    return SealedContent(_id_text(head[len(_VERSION) :]), head, content[_HEAD_BYTES:])


def parse_content(content: bytes) -> LinkContent | None:
    """Return the content of a token that a key has opened, or None if it is not what a token should hold.

    Whoever made the token has the key, so what can be understood is: a group or a source of a wrong type is none.
    """
    try:
        values = json.loads(content)
    except (ValueError, RecursionError):
        return None
    if not isinstance(values, list) or len(values) < len(("channel", "group_id", "address")):
        return None
    channel, group_id, address = values[:3]
    source = values[3] if len(values) > len(("channel", "group_id", "address")) else None
    if not isinstance(channel, str) or not isinstance(address, str):
        return None
    return LinkContent(
        channel, group_id if isinstance(group_id, str) else None, address, source if isinstance(source, str) else None
    )


def cut_source(source: str) -> str:
    """Return the beginning of a source that a link can carry: 64 bytes of whole characters, a space for each control.

    Never raises.
    """
    text = "".join(char if char >= " " and char != "\x7f" else " " for char in source[:MAX_SOURCE_BYTES])
    return text.encode("utf-8", "replace")[:MAX_SOURCE_BYTES].decode("utf-8", "ignore")


class LinkVector(NamedTuple):
    """A published vector: a key and a token, with its content, or None for a token that must be refused."""

    link_key: str
    token: str
    content: LinkContent | None


def load_link_vectors() -> list[LinkVector]:
    """Return all vectors in the order of the file."""
    vectors = json.loads(resources.files(__package__).joinpath("link_vectors.json").read_text("utf-8"))
    return [
        LinkVector(
            vector["link_key"], vector["token"], LinkContent(*vector["content"]) if "content" in vector else None
        )
        for vector in vectors
    ]


def _bytes_of(token: str) -> bytes | None:
    """Return the bytes of a token in its one right form: an unused bit of the last character must be zero."""
    if _TOKEN.fullmatch(token) is None:
        return None
    try:
        content = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
    except (binascii.Error, ValueError):
        return None
    return content if base64.urlsafe_b64encode(content).rstrip(b"=").decode() == token else None


def _id_text(id_bytes: bytes) -> str:
    return LINK_KEY_ID_PREFIX + id_bytes.hex()


def _checksum(body: str) -> str:
    """Return six base62 digits of CRC-32, as the other secrets of Stoplist have them."""
    number = zlib.crc32(body.encode())
    digits = ""
    for _ in range(_CHECK_CHARS):
        number, digit = divmod(number, len(_DIGITS))
        digits = _DIGITS[digit] + digits
    return digits
