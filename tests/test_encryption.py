"""Secrets that must be read again are stored encrypted, and a text can be neither altered nor moved."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoplist.encryption import decrypt, encrypt

OLD, NEW = "the key of last year, which still decrypts", "the key of this year, which encrypts texts"


@given(st.text(max_size=200), st.text(min_size=1, max_size=50))
def test_a_text_can_be_read_with_its_key_and_purpose(text: str, purpose: str) -> None:
    """No other key reads it, and no other purpose."""
    text, purpose = text.encode("utf-8", "replace").decode(), purpose.encode("utf-8", "replace").decode()
    encrypted = encrypt(NEW, text, purpose=purpose)
    assert decrypt([OLD, NEW], encrypted, purpose=purpose) == text
    assert decrypt([OLD], encrypted, purpose=purpose) is None
    assert decrypt([], encrypted, purpose=purpose) is None
    assert decrypt([NEW], encrypted, purpose=purpose + "2") is None


def test_equal_texts_do_not_look_alike() -> None:
    """Each text has a nonce of its own, and is not readable in what is stored."""
    first, second = (encrypt(NEW, "JBSWY3DPEHPK3PXP", purpose="totp 1") for _ in range(2))
    assert first != second
    assert "JBSWY3DPEHPK3PXP" not in first
    assert b"JBSWY3DPEHPK3PXP" not in base64.urlsafe_b64decode(first.partition(".")[2])


def test_an_altered_text_cannot_be_read() -> None:
    """This holds for each of its bytes."""
    encrypted = encrypt(NEW, "secret", purpose="totp 1")
    content = base64.urlsafe_b64decode(encrypted.partition(".")[2])
    for at in range(len(content)):
        altered = content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]
        text = "enc1." + base64.urlsafe_b64encode(altered).decode()
        assert decrypt([NEW], text, purpose="totp 1") is None


@pytest.mark.parametrize("text", ["", "enc1.", "enc1.AAAA", "enc1.A", "enc1.ü", "JBSWY3DPEHPK3PXP", "lost", "\ud800"])
def test_any_other_text_cannot_be_read(text: str) -> None:
    assert decrypt([NEW], text, purpose="totp 1") is None
