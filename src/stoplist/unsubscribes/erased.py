"""The form in which the address of an erased person is stored: a digest under the feed's key. Pure rules, no I/O.

It stands where the address stood, with a prefix that no canonical address can have, so that keys, indexes, numbers and
versions go on working. Source: docs/interface.md section D13. Reasons: docs/decisions/0030-erasure.md.
"""

import base64
import functools
import hashlib
import secrets
from collections.abc import Iterable
from typing import Final

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.hmac import HMAC

PREFIX: Final = "erased:"
_KEY_BYTES = 32
_FINGERPRINT_CHARS = 16
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
    (digest,) = address_digests(key, (address,))
    return form_of(digest.hex())


def address_digests(key: bytes, addresses: Iterable[str]) -> list[bytes]:
    """Return the digest of each canonical address."""
    # A copy of the keyed hash takes a third of the time of hmac.digest, which looks its algorithm up and hashes the key
    # twice for each address.
    copy = _keyed_hash(key).copy
    digests: list[bytes] = []
    for address in addresses:
        keyed_hash = copy()
        keyed_hash.update(address.encode())
        digests.append(keyed_hash.finalize())
    return digests


@functools.lru_cache(_REMEMBERED_KEYS)
def _keyed_hash(key: bytes) -> HMAC:
    return HMAC(key, SHA256())


def digest_of(stored: str) -> str | None:
    """Return the digest of a stored address if its person was erased, else None."""
    return stored[len(PREFIX) :] if stored.startswith(PREFIX) else None


def form_of(digest: str) -> str:
    """Return what is stored in place of an address that has this digest."""
    return PREFIX + digest


def stated_address(stored: str) -> str:
    """Return the address or, of an erased record, the digest: what the state of a feed covers."""
    return stored.removeprefix(PREFIX)
