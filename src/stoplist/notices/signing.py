"""Signatures of Standard Webhooks, by which a receiver knows that a notice is from this deployment, and recent.

Source: the Standard Webhooks specification, Signature scheme: v1, HMAC-SHA256; docs/interface.md section D16.
"""

import base64
import hashlib
import hmac
from collections.abc import Sequence


def signature_headers(notice_id: str, body: bytes, *, secrets: Sequence[bytes], now_s: int) -> list[tuple[str, str]]:
    """Return the headers that sign an attempt at `now_s`, once under each secret: a receiver needs one it knows."""
    signed = b".".join((notice_id.encode(), str(now_s).encode(), body))
    signatures = (base64.b64encode(hmac.digest(secret, signed, hashlib.sha256)).decode() for secret in secrets)
    return [
        ("webhook-id", notice_id),
        ("webhook-timestamp", str(now_s)),
        ("webhook-signature", " ".join(f"v1,{signature}" for signature in signatures)),
    ]
