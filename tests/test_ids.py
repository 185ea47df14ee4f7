"""Tokens, secrets and identifiers, compared with a second encoder and checksum that work digit by digit."""

import hashlib
import os
import re
import string

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from stoplist import ids

pytestmark = pytest.mark.interpreter

BASE62 = string.digits + string.ascii_uppercase + string.ascii_lowercase
SECRET_PREFIXES = [ids.ACCESS_TOKEN, ids.REFRESH_TOKEN, ids.CLIENT_SECRET]
ID_PREFIXES = [ids.CLIENT_ID, ids.GROUP_ID, ids.RECORD_ID, ids.SUBMISSION_ID]

any_text = st.text(st.characters())


def naive_base62(number: int, width: int) -> str:
    text = ""
    for _ in range(width):
        number, digit = divmod(number, 62)
        text = BASE62[digit] + text
    assert number == 0, "more than fits the width"
    return text


def naive_crc32(octets: bytes) -> int:
    """Return the CRC-32 of IEEE 802.3, bit by bit."""
    register = 0xFFFFFFFF
    for octet in octets:
        register ^= octet
        for _ in range(8):
            register = register >> 1 ^ (0xEDB88320 if register & 1 else 0)
    return register ^ 0xFFFFFFFF


def with_checksum(body: str) -> str:
    return body + naive_base62(naive_crc32(body.encode("utf-8", "surrogatepass")), 6)


class FakeRandomness:
    """A fake of the system's randomness: gives out these octets in order, and remembers how many were requested."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, octets: bytes) -> None:
        self.octets = octets
        self.asked: list[int] = []
        monkeypatch.setattr(os, "urandom", self.urandom)

    def urandom(self, size: int) -> bytes:
        given_out = sum(self.asked)
        self.asked.append(size)
        return self.octets[given_out : given_out + size].ljust(size, b"\xff" if given_out < len(self.octets) else b"\0")


def test_the_second_checksum_is_the_published_one() -> None:
    """The check value of CRC-32 in every catalogue: that of the nine digits is CBF43926."""
    assert naive_crc32(b"123456789") == 0xCBF43926


def test_the_prefixes_are_those_of_the_interface() -> None:
    """Sections 2 and D2, and for groups D5."""
    assert SECRET_PREFIXES == ["svc_at_", "svc_rt_", "svc_cs_"]
    assert ID_PREFIXES == ["svc_ci_", "grp_", "uns_", "sub_"]


def naive_digits(octets: bytes, count: int) -> str:
    """Return a digit for each octet that is below 4 * 62, so that all digits are equally likely."""
    return "".join(BASE62[octet % 62] for octet in octets if octet < 4 * 62)[:count]


@given(prefixes=st.lists(st.sampled_from(SECRET_PREFIXES), min_size=1, max_size=3), octets=st.binary(min_size=200))
def test_secrets_are_drawn_uniformly_and_have_a_checksum(prefixes: list[str], octets: bytes) -> None:
    """Section D2: 43 characters from the system's octets, one after the other, and 6 of the CRC-32 before them."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        FakeRandomness(monkeypatch, octets)
        secrets = ids.new_secrets(*prefixes)
    drawn = naive_digits(octets, 43 * len(prefixes))
    assume(len(drawn) == 43 * len(prefixes))
    bodies = [prefix + drawn[43 * at : 43 * at + 43] for at, prefix in enumerate(prefixes)]
    assert secrets == [with_checksum(body) for body in bodies]
    assert all(map(ids.is_well_formed, secrets, prefixes))


def test_a_pair_of_secrets_costs_one_read_of_the_generator(monkeypatch: pytest.MonkeyPatch) -> None:
    chance = FakeRandomness(monkeypatch, bytes(range(200)))
    ids.new_secrets("svc_at_", "svc_rt_")
    assert len(chance.asked) == 1


@pytest.mark.parametrize("prefix", ID_PREFIXES)
def test_an_id_is_prefix_and_22_characters(prefix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sections D2 and D5: nothing after them."""
    FakeRandomness(monkeypatch, bytes(range(230, 256)) + bytes(range(100)))
    assert ids.new_id(prefix) == prefix + naive_digits(bytes(range(230, 256)) + bytes(range(100)), 22)


def test_a_checksum_with_a_leading_zero_is_padded_too() -> None:
    """One in about fourteen begins with a zero; without it a valid token would be too short."""
    bodies = ("svc_at_" + naive_base62(number, 43) for number in range(1_000))
    padded = [secret for secret in map(with_checksum, bodies) if secret[-6] == "0"]
    assert padded
    assert all(ids.is_well_formed(secret, "svc_at_") for secret in padded)


@pytest.mark.parametrize("prefix", SECRET_PREFIXES)
def test_secrets_have_one_length_and_one_alphabet(prefix: str) -> None:
    """Section D2: only `[A-Za-z0-9_]`, so percent-encoding in HTTP Basic changes nothing."""
    for _ in range(500):
        secret = ids.new_secret(prefix)
        assert secret.startswith(prefix)
        assert len(secret) == len(prefix) + 43 + 6
        assert set(secret.removeprefix(prefix)) <= set(BASE62)


def test_every_character_of_the_alphabet_occurs_everywhere() -> None:
    secrets = [ids.new_secret("svc_at_") for _ in range(3_000)]
    for place in range(7, 50):
        assert {secret[place] for secret in secrets} == set(BASE62)


def test_no_two_secrets_or_ids_are_the_same() -> None:
    """Twenty thousand of each, and no kind is derived from another."""
    made = [ids.new_secret("svc_at_") for _ in range(20_000)] + [ids.new_id("svc_ci_") for _ in range(20_000)]
    assert len({text[7:29] for text in made}) == 40_000


def test_a_request_id_is_24_hexadecimal_characters() -> None:
    """Each is unique; they are not secret, so a counter is enough."""
    request_ids = [ids.new_request_id() for _ in range(10_000)]
    assert len(set(request_ids)) == 10_000
    assert all(re.fullmatch("[0-9a-f]{24}", request_id) for request_id in request_ids)


@pytest.mark.parametrize("prefix", SECRET_PREFIXES)
def test_no_single_changed_character_passes_the_checksum(prefix: str) -> None:
    """A CRC-32 detects every burst of up to 32 bits, so any change of one character."""
    for _ in range(10):
        secret = ids.new_secret(prefix)
        for place, right in enumerate(secret):
            for wrong in set(BASE62 + "_-~\0\x7f") - {right}:
                assert not ids.is_well_formed(secret[:place] + wrong + secret[place + 1 :], prefix)


def test_a_secret_cut_short_or_lengthened_is_not_well_formed() -> None:
    """The right checksum for its length does not help; white space around it counts."""
    secret = ids.new_secret("svc_rt_")
    for size in range(len(secret)):
        assert not ids.is_well_formed(secret[:size], "svc_rt_")
    for characters in (0, 42, 44):
        assert not ids.is_well_formed(with_checksum("svc_rt_" + "0" * characters), "svc_rt_")
    for altered in (secret + "0", " " + secret, secret + "\n", secret[1:], secret + secret):
        assert not ids.is_well_formed(altered, "svc_rt_")


@pytest.mark.parametrize("prefix", SECRET_PREFIXES)
@pytest.mark.parametrize("other", SECRET_PREFIXES)
def test_a_secret_is_well_formed_as_its_own_kind_only(prefix: str, other: str) -> None:
    """A refresh token is no access token, though its checksum is right."""
    assert ids.is_well_formed(ids.new_secret(prefix), other) == (prefix == other)


@given(any_text, st.sampled_from(SECRET_PREFIXES))
def test_any_text_is_not_well_formed(text: str, prefix: str) -> None:
    """Clients send anything, including lone surrogates."""
    assert ids.is_well_formed(text, prefix) is False
    assert ids.is_well_formed(prefix + text, prefix) is False


@given(st.text(st.characters(), min_size=49, max_size=49), st.sampled_from(SECRET_PREFIXES))
def test_text_with_only_a_wrong_checksum_is_not_well_formed(text: str, prefix: str) -> None:
    """The text has the right length and the right prefix."""
    assert ids.is_well_formed(prefix + text, prefix) is (with_checksum(prefix + text[:43]) == prefix + text)


@given(st.text(st.characters(min_codepoint=128), min_size=1, max_size=43))
@example("\udc80")
@example("é" * 43)
def test_non_ascii_is_refused_even_with_the_right_checksum(text: str) -> None:
    """Section D2: only `[A-Za-z0-9_]`."""
    body = "svc_at_" + text.ljust(43, "0")
    assert not ids.is_well_formed(with_checksum(body), "svc_at_")


@given(st.binary(max_size=60))
def test_any_header_octets_are_not_well_formed(octets: bytes) -> None:
    """However a server decodes them."""
    for text in (octets.decode("latin-1"), octets.decode("utf-8", "surrogateescape")):
        assert not ids.is_well_formed(text, "svc_at_")
        assert len(ids.hash_secret(text)) == 32


@given(any_text)
@example("\ud800")
def test_a_hash_is_the_sha_256_of_the_whole_text(text: str) -> None:
    """Section D2, at rest: prefix and checksum included; any text has a hash."""
    assert ids.hash_secret(text) == hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def test_the_secret_prefix_is_the_kind_and_four_characters() -> None:
    """Section D2: the visible part of a client secret."""
    secret = ids.new_secret("svc_cs_")
    assert ids.secret_prefix(secret) == secret[:11]
    assert ids.secret_prefix("svc_cs_AbC9defghijk") == "svc_cs_AbC9"


# Many identifiers at once


@pytest.mark.parametrize("count", [0, 1, 2, 500, 10_000])
def test_new_ids_are_distinct(count: int) -> None:
    """The function makes as many as requested, each in the usual form: prefix and 22 base62 characters."""
    made = ids.new_ids("uns_", count)
    assert len(set(made)) == len(made) == count
    assert all(re.fullmatch("uns_[0-9A-Za-z]{22}", one) for one in made)


def test_every_digit_of_new_ids_is_equally_likely(monkeypatch: pytest.MonkeyPatch) -> None:
    """248 of all octets give each digit four times, and the other eight give none."""
    octets = bytes(range(256)) * 11
    asked: list[int] = []

    def urandom(size: int) -> bytes:
        asked.append(size)
        return bytes(octets[at % len(octets)] for at in range(sum(asked[:-1]), sum(asked)))

    monkeypatch.setattr(os, "urandom", urandom)
    digits = "".join(ids.new_ids("", 31 * 4 * 10 // 5))
    assert digits[:248] == BASE62 * 4
    assert digits[248:496] == BASE62 * 4
    assert sum(asked) >= len(digits) * 256 / 248


def test_unusable_random_octets_are_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Octets without a digit are discarded, and others are requested."""
    given_out = iter([b"\xff" * 2_000, b"\xf8" * 2_000])
    urandom = os.urandom
    monkeypatch.setattr(os, "urandom", lambda size: next(given_out, None) or urandom(size))
    assert all(re.fullmatch("uns_[0-9A-Za-z]{22}", one) for one in ids.new_ids("uns_", 3))


@given(st.text(max_size=40), st.text(max_size=40))
def test_a_submission_id_begins_with_its_senders_mark(sender: str, other: str) -> None:
    """All ids of a sender begin alike, those of another do not; all are distinct."""
    first, second = ids.new_submission_id(sender), ids.new_submission_id(sender)
    assert re.fullmatch("sub_[0-9A-Za-z]{22}", first)
    assert first != second
    mark = ids.submission_mark(sender)
    assert first.startswith(mark)
    assert second.startswith(mark)
    assert (ids.submission_mark(other) == mark) is (other == sender)
    assert len(first) - len(mark) == 16
