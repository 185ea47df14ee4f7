"""The form in which the address of an erased person is stored: a digest under the feed's key. Pure rules, no I/O.

It stands where the address stood, with a prefix that no canonical address can have, so that keys, indexes, numbers and
versions go on working. Source: docs/interface.md section D13. Reasons: docs/decisions/0030-erasure.md.
"""

import base64
import functools
import hashlib
import secrets
from collections.abc import Iterable
from typing import Any, Final

PREFIX: Final = "erased:"
_KEY_BYTES = 32
_FINGERPRINT_CHARS = 16
_BLOCK_BYTES = 64
_REMEMBERED_KEYS = 256


def new_digest_key() -> str:
    """Return a random digest key for a feed: base64url without padding, as it is stored and told to partners."""
    return base64.urlsafe_b64encode(secrets.token_bytes(_KEY_BYTES)).rstrip(b"=").decode()


@functools.lru_cache(_REMEMBERED_KEYS)
def key_bytes(digest_key: str) -> bytes:
    """Return the bytes of a digest key."""
    return base64.urlsafe_b64decode(digest_key + "=")


def key_fingerprint(digest_key: str) -> str:
    """Return a text that tells digest keys apart and reveals nothing of them."""
    return hashlib.sha256(b"stoplist digest key\0" + key_bytes(digest_key)).hexdigest()[:_FINGERPRINT_CHARS]


def erased_form(key: bytes, address: str) -> str:
    """Return what is stored in place of a canonical address once its person was erased."""
    (form,) = erased_forms(key, (address,))
    return form


def erased_forms(key: bytes, addresses: Iterable[str]) -> list[str]:
    """Return the erased form of each address."""
    # HMAC (RFC 2104) from copies of its two keyed hashes takes a third of the time of hmac.digest, which looks its
    # algorithm up and hashes the key twice for each address.
    inner, outer = _keyed_hashes(key)
    copy_inner, copy_outer = inner.copy, outer.copy
    forms: list[str] = []
    for address in addresses:
        hashed = copy_inner()
        hashed.update(address.encode())
        digest = copy_outer()
        digest.update(hashed.digest())
        forms.append(PREFIX + digest.hexdigest())
    return forms


@functools.lru_cache(_REMEMBERED_KEYS)
def _keyed_hashes(key: bytes) -> tuple[Any, Any]:
    block = key.ljust(_BLOCK_BYTES, b"\0")
    return hashlib.sha256(bytes(byte ^ 0x36 for byte in block)), hashlib.sha256(bytes(byte ^ 0x5C for byte in block))


def digest_of(stored: str) -> str | None:
    """Return the digest of a stored address if its person was erased, else None."""
    return stored[len(PREFIX) :] if stored.startswith(PREFIX) else None


def form_of(digest: str) -> str:
    """Return what is stored in place of an address that has this digest."""
    return PREFIX + digest


def stated_address(stored: str) -> str:
    """Return the address or, of an erased record, the digest: what the state of a feed covers."""
    return stored.removeprefix(PREFIX)
