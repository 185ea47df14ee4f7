"""The client that a request presents: the header's bytes, the body's parameters, and what they prove."""

import base64
import binascii
import string
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stoplist import ids
from stoplist.db import Database
from stoplist.errors import BadRequest
from stoplist.oauth import ceilings, credentials
from stoplist.oauth.authentication import (
    PresentedCredentials,
    find_client,
    is_authenticated,
    parse_basic,
    read_presented,
)
from stoplist.oauth.model import Client
from tests.builders import ADMINISTRATOR, make_key, make_organization, on_each_database
from tests.fakes import FakeClock

ID, SECRET = "svc_ci_0123456789ABCDEFGHIJKL", "svc_cs_a-secret"
BASE64 = string.ascii_uppercase + string.ascii_lowercase + string.digits + "+/"
OTHER_ID = "svc_ci_aaaaaaaaaaaaaaaaaaaaaa"


def basic(pair: str | bytes, scheme: bytes = b"Basic ") -> bytes:
    """Return the header value for `id:secret`, which is already form-encoded where that matters."""
    return scheme + base64.b64encode(pair if isinstance(pair, bytes) else pair.encode())


def form_encoded(text: str) -> str:
    """Return `application/x-www-form-urlencoded` as in RFC 6749 appendix B, byte by byte."""
    plain = string.ascii_letters + string.digits + "-._*"
    pieces = []
    for byte in text.encode():
        character = chr(byte)
        pieces.append(character if character in plain else "+" if character == " " else f"%{byte:02X}")
    return "".join(pieces)


PAIR = (ID, SECRET)
GOOD = f"{ID}:{SECRET}"

WELL_FORMED: dict[str, tuple[bytes, tuple[str, str]]] = {
    "as everybody sends it": (basic(GOOD), PAIR),
    "scheme in lower case": (basic(GOOD, b"basic "), PAIR),
    "scheme in upper case": (basic(GOOD, b"BASIC "), PAIR),
    "scheme in any case": (basic(GOOD, b"bAsIc "), PAIR),
    "several spaces after the scheme": (basic(GOOD, b"Basic    "), PAIR),
    "white space around the value": (b" \t" + basic(GOOD) + b" \t", PAIR),
    "split at the first colon": (basic("a:b:c"), ("a", "b:c")),
    "an encoded colon belongs to the id": (basic("a%3Ab:c"), ("a:b", "c")),
    "an encoded colon belongs to the secret": (basic("a:b%3Ac"), ("a", "b:c")),
    "a plus is a space": (basic("a+b:c+d"), ("a b", "c d")),
    "an encoded plus is a plus": (basic("a%2Bb:c%2bd"), ("a+b", "c+d")),
    "an encoded percent sign is decoded once": (basic("a%2541:c"), ("a%41", "c")),
    "a percent sign that encodes nothing stands for itself": (basic("a%zz:100%"), ("a%zz", "100%")),
    "UTF-8": (basic("é:€"), ("é", "€")),
    "encoded UTF-8": (basic("%C3%A9:%E2%82%AC"), ("é", "€")),
    "an empty secret": (basic("a:"), ("a", "")),
    "an empty id": (basic(":b"), ("", "b")),
    "nothing but the colon": (basic(":"), ("", "")),
}

MALFORMED = {
    "nothing": b"",
    "the scheme alone": b"Basic",
    "the scheme and a space": b"Basic ",
    "no colon": basic("no-colon"),
    "an encoded colon alone": basic("a%3Ab"),
    "another scheme": b"Bearer " + base64.b64encode(GOOD.encode()),
    "a scheme that begins like it": basic(GOOD, b"Basics "),
    "no space after the scheme": basic(GOOD, b"Basic"),
    "a tab after the scheme": basic(GOOD, b"Basic\t"),
    "a no-break space after the scheme": basic(GOOD, b"Basic\xa0"),
    "two credentials": basic(GOOD) + b", " + basic(GOOD),
    "not encoded at all": b"Basic " + GOOD.encode(),
    "white space inside": b"Basic YT pi",
    "a line break inside": b"Basic YT\npi",
    "a character too many": b"Basic YTpi=",
    "no padding": b"Basic YTpiYg",
    "too much padding": b"Basic YTpi====",
    "bits that encode nothing": b"Basic YTpiYh==",
    "padding in the middle": b"Basic YT==pi==",
    "the URL alphabet": b"Basic " + base64.urlsafe_b64encode(b"a:\xfb\xff".ljust(6)),
    "junk around": b"Basic !YTpi!",
    "bytes that are no text": b"Basic \xff\xfe\x00",
    "bad UTF-8 in the id": basic(b"\xff:b"),
    "bad UTF-8 in the secret": basic(b"a:\xc3"),
    "bad UTF-8, encoded": basic(b"a:%ff"),
    "half a character, encoded": basic(b"a:%C3x"),
    "an overlong character": basic(b"a:\xc0\xaf"),
    "half a surrogate pair": basic(b"a:\xed\xa0\x80"),
    "NUL in the id": basic(b"a\0:b"),
    "NUL in the secret": basic(b"a:b\0"),
    "NUL, encoded": basic(b"a:%00"),
}


@pytest.mark.parametrize(("header", "pair"), WELL_FORMED.values(), ids=WELL_FORMED)
def test_a_basic_header_is_read(header: bytes, pair: tuple[str, str]) -> None:
    """Section D2: scheme in any case, first colon, form-decoded, UTF-8."""
    assert parse_basic(header) == pair


@pytest.mark.parametrize("header", MALFORMED.values(), ids=MALFORMED)
def test_an_unreadable_header_is_malformed(header: bytes) -> None:
    """Section D2: strict base64; not an error but a failed authentication, which keeps the client named in the body."""
    assert parse_basic(header) is None
    presented = read_presented(header, client_id=ID, client_secret=None)
    assert presented == PresentedCredentials(client_id=ID, is_malformed=True)
    assert presented.has_credentials


@given(st.binary())
@example(b"Basic ====")
@example(b"Basic \xc3\xa9")
def test_any_header_bytes_are_handled(header: bytes) -> None:
    """Section 5: never a 500, whatever the header holds."""
    pair = parse_basic(header)
    assert pair is None or all("\0" not in half for half in pair)


@given(st.binary(), st.sampled_from([b"Basic ", b"basic  "]))
def test_any_encoded_content_is_handled(content: bytes, scheme: bytes) -> None:
    """Well-encoded content is read as an independent reader reads it, or is malformed."""
    client_id, colon, secret = content.partition(b":")
    try:
        expected = _decoded(client_id), _decoded(secret)
    except UnicodeDecodeError:
        expected = ("\0", "")
    is_readable = bool(colon) and "\0" not in "".join(expected)
    assert parse_basic(basic(content, scheme)) == (expected if is_readable else None)


@given(st.text(BASE64 + "=", max_size=12))
@example("YTpi")
@example("YTpi=")
@example("YTpiYg==")
@example("YTpiYh==")
def test_base64_is_strict(encoded: str) -> None:
    """RFC 4648: of all texts that some decoder accepts, only the one that an encoder writes is read."""
    body = encoded.rstrip("=")
    bits = "".join(f"{BASE64.find(character):06b}" for character in body if character != "=")
    is_whole = len(encoded) % 4 == 0 and len(encoded) - len(body) <= 2 and "=" not in body
    left_over = bits[len(bits) // 8 * 8 :]
    if not is_whole or "1" in left_over:
        assert parse_basic(f"Basic {encoded}".encode()) is None


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")), st.data())
def test_form_encoded_credentials_are_read_as_sent(client_id: str, data: Any) -> None:
    """RFC 6749 section 2.3.1: both halves are form-encoded, so that any text arrives."""
    secret = data.draw(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")))
    assert parse_basic(basic(f"{form_encoded(client_id)}:{form_encoded(secret)}")) == (client_id, secret)


@given(st.text(ids._ALPHABET + "_"), st.text(ids._ALPHABET + "_"))
def test_our_own_ids_and_secrets_need_no_encoding(client_id: str, secret: str) -> None:
    """Section D2, Format: only letters, digits and `_`, so a client that forgets to encode is understood."""
    assert parse_basic(basic(f"{client_id}:{secret}")) == (client_id, secret)
    assert form_encoded(ids.new_id(ids.CLIENT_ID).replace("_", "")).isalnum()


# Header and body


def both(
    header: bytes | None = None, client_id: str | None = None, client_secret: str | None = None
) -> PresentedCredentials:
    return read_presented(header, client_id=client_id, client_secret=client_secret)


def test_without_a_header_the_body_counts() -> None:
    """Section 4.1: body parameters are the fallback; a `client_id` alone names without proving."""
    assert both() == PresentedCredentials()
    assert both(client_id=ID) == PresentedCredentials(client_id=ID)
    assert both(client_id=ID, client_secret=SECRET) == PresentedCredentials(client_id=ID, client_secret=SECRET)
    assert both(client_secret=SECRET) == PresentedCredentials(client_secret=SECRET)
    assert [it.has_credentials for it in (both(), both(client_id=ID), both(client_secret=SECRET))] == [
        False,
        False,
        True,
    ]


def test_the_same_client_id_in_header_and_body_is_accepted() -> None:
    """Section D2: many libraries send it."""
    assert (
        both(basic(GOOD)) == both(basic(GOOD), client_id=ID) == PresentedCredentials(client_id=ID, client_secret=SECRET)
    )


def test_different_client_ids_in_header_and_body_are_refused() -> None:
    """Section D2: `400 invalid_request`; an empty one differs too."""
    for other in (OTHER_ID, ""):
        with pytest.raises(BadRequest, match="client_id"):
            both(basic(GOOD), client_id=other)


@pytest.mark.parametrize("header", [basic(GOOD), basic("no-colon"), b"Basic", b" bAsIc\tx"])
def test_two_secrets_are_refused(header: bytes) -> None:
    """Section D2: never both, even if the Basic header is malformed; the text repeats neither."""
    with pytest.raises(BadRequest, match="not in both") as refused:
        both(header, client_id=ID, client_secret=SECRET)
    assert SECRET not in refused.value.text


@pytest.mark.parametrize("header", [b"", b"Bearer x", b"Basics YTpi", b"BasicYTpi", b"\xff"])
def test_another_scheme_fails_beside_a_secret_in_the_body(header: bytes) -> None:
    """Section D2: it is a malformed header, so nothing is proved, whatever the body holds."""
    presented = both(header, client_id=ID, client_secret=SECRET)
    assert presented == PresentedCredentials(client_id=ID, is_malformed=True)


def test_an_empty_secret_in_the_header_is_a_secret() -> None:
    """It was sent, and is wrong."""
    presented = both(basic(f"{ID}:"))
    assert presented.has_credentials
    assert presented.client_secret == ""


# Authentication


def client(client_secret: str, *, is_active: bool = True) -> Client:
    return Client(
        client_id=ID,
        secret_hash=ids.hash_secret(client_secret),
        epoch=1,
        is_active=is_active,
        token_per_minute=10,
    )


def test_the_right_secret_of_an_active_client_proves_it() -> None:
    """Nothing else does."""
    right = PresentedCredentials(client_id=ID, client_secret=SECRET)
    assert is_authenticated(client(SECRET), right)
    assert not is_authenticated(client(SECRET, is_active=False), right)
    assert not is_authenticated(client("another"), right)
    assert not is_authenticated(None, right)
    assert not is_authenticated(client(SECRET), PresentedCredentials(client_id=ID))
    assert not is_authenticated(client(SECRET), PresentedCredentials(client_id=ID, is_malformed=True))
    assert not is_authenticated(client(""), PresentedCredentials(client_id=ID))


@given(st.text())
@example("")
@example("\ud800")
@example("é")
@example(SECRET + " ")
@example(SECRET.swapcase())
def test_no_other_text_authenticates(text: str) -> None:
    """Nor causes an error: hashes are compared, whatever was sent."""
    assert is_authenticated(client(SECRET), PresentedCredentials(client_id=ID, client_secret=text)) == (text == SECRET)
    assert not is_authenticated(None, PresentedCredentials(client_id=ID, client_secret=text))


@on_each_database
async def test_inactive_clients_are_found_too(database: Database, clock: FakeClock) -> None:
    """An inactive client still has a log to be counted in."""
    await make_organization(database, clock)
    key = await make_key(database, clock)
    client_id = key.credential.client_id
    found = await find_client(database, client_id)
    assert found == Client(
        client_id=client_id,
        secret_hash=ids.hash_secret(key.client_secret),
        epoch=1,
        is_active=True,
        token_per_minute=10,
    )
    await credentials.deactivate_credential(ADMINISTRATOR, database, clock, client_id=client_id)
    await ceilings.set_ceilings(
        ADMINISTRATOR, database, clock, client_id=client_id, token_per_minute=3, api_per_minute=None
    )
    found = await find_client(database, client_id)
    assert found is not None
    assert (found.is_active, found.epoch, found.token_per_minute) == (False, 2, 3)


@on_each_database
async def test_a_malformed_client_id_is_unknown(database: Database, clock: FakeClock) -> None:
    """Including what a database would refuse, such as NUL or half a surrogate pair; letter case counts."""
    await make_organization(database, clock)
    client_id = (await make_key(database, clock)).credential.client_id
    for unknown in (
        None,
        "",
        client_id + "\n",
        client_id + "\0",
        client_id[:-1],
        client_id + "a",
        "\ud800",
        OTHER_ID,
        client_id.upper(),
        client_id[:-1] + "\N{FULLWIDTH LATIN SMALL LETTER A}",
        "x" * 10_000,
    ):
        assert await find_client(database, unknown) is None


def _decoded(half: bytes) -> str:
    """Form-decode by hand, byte by byte."""
    out = bytearray()
    position = 0
    while position < len(half):
        byte = half[position : position + 1]
        digits = half[position + 1 : position + 3]
        if byte == b"%" and len(digits) == 2 and all(digit in string.hexdigits.encode() for digit in digits):
            out += binascii.unhexlify(digits)
            position += 3
            continue
        out += b" " if byte == b"+" else byte
        position += 1
    return out.decode("utf-8", "strict")
