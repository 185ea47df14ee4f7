"""Signatures are those of Standard Webhooks, checked with the library that receivers use (section D16)."""

import base64
import time

import pytest
from standardwebhooks import Webhook, WebhookVerificationError

from stoplist.notices.signing import signature_headers

BODY = b'{"type":"notice.test"}'
OLD, NEW = b"o" * 24, b"n" * 32


def verify(secret: bytes, body: bytes, headers: dict[str, str]) -> None:
    Webhook(f"whsec_{base64.b64encode(secret).decode()}").verify(body, headers)


def test_a_receiver_verifies_with_any_of_the_secrets() -> None:
    """Both sign while one replaces another."""
    headers = dict(signature_headers("ntc_1", BODY, secrets=(OLD, NEW), now_s=int(time.time())))
    verify(OLD, BODY, headers)
    verify(NEW, BODY, headers)
    with pytest.raises(WebhookVerificationError):
        verify(b"x" * 24, BODY, headers)
    with pytest.raises(WebhookVerificationError):
        verify(NEW, BODY + b" ", headers)


def test_an_old_attempt_is_refused_by_receivers() -> None:
    headers = dict(signature_headers("ntc_1", BODY, secrets=(NEW,), now_s=int(time.time()) - 3600))
    with pytest.raises(WebhookVerificationError):
        verify(NEW, BODY, headers)


def test_the_published_vector_is_signed_alike() -> None:
    """The example of the specification of Standard Webhooks."""
    secret = base64.b64decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    headers = signature_headers(
        "msg_p5jXN8AQM9LWM0D4loKWxJek", b'{"test": 2432232314}', secrets=(secret,), now_s=1614265330
    )
    assert headers[-1] == ("webhook-signature", "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=")
