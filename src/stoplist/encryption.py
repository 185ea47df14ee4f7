"""Encryption at rest of the few secrets that must be read again, under the secret key of the deployment.

AES-256-GCM with a random nonce. The encryption key is derived from the secret key, so that no text that the secret key
authenticates elsewhere is related to it. Each text is bound to its purpose (which row it belongs to), so that it cannot
be moved to another row. Secrets that are only compared are hashed instead, see ids.hash_secret.
Source: NIST SP 800-38D; docs/interface.md section D11.
"""

import base64
import binascii
import hashlib
import hmac
import os
from collections.abc import Sequence

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_PREFIX = "enc1."
_NONCE_BYTES = 12
_DERIVATION = b"encryption at rest 1"


def encrypt(secret_key: str, text: str, *, purpose: str) -> str:
    """Return the text encrypted under this secret key, as ASCII; different at each call."""
    nonce = os.urandom(_NONCE_BYTES)
    content = nonce + _cipher(secret_key).encrypt(nonce, text.encode(), purpose.encode())
    return _PREFIX + base64.urlsafe_b64encode(content).decode()


def decrypt(secret_keys: Sequence[str], encrypted: str, *, purpose: str) -> str | None:
    """Return the text, or None unless one of the secret keys encrypted it for this purpose."""
    if not encrypted.startswith(_PREFIX):
        return None
    try:
        content = base64.urlsafe_b64decode(encrypted.removeprefix(_PREFIX))
    except (binascii.Error, ValueError):
        return None
    nonce, sealed = content[:_NONCE_BYTES], content[_NONCE_BYTES:]
    if len(nonce) < _NONCE_BYTES:
        return None
    for secret_key in secret_keys:
        try:
            return _cipher(secret_key).decrypt(nonce, sealed, purpose.encode()).decode()
        except InvalidTag:
            continue
    return None


def _cipher(secret_key: str) -> AESGCM:
    return AESGCM(hmac.digest(secret_key.encode(), _DERIVATION, hashlib.sha256))
