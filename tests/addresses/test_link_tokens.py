"""Tokens of opt-out links: the published vectors, altered tokens, and a second implementation."""

import base64
import hashlib
import json
import subprocess
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR
from cryptography.hazmat.primitives.cmac import CMAC
from hypothesis import given
from hypothesis import strategies as st
from stoplist_addresses import RULES, AddressError
from stoplist_addresses.link_tokens import (
    MAX_SOURCE_BYTES,
    MAX_TOKEN_CHARS,
    LinkContent,
    LinkKey,
    LinkVector,
    cut_source,
    load_link_vectors,
    parse_content,
    read_token,
)

from stoplist import ids
from tests.addresses.strategies import emails, phones
from tests.constants import ROOT
from tests.services.npm import Npm

pytestmark = pytest.mark.interpreter

PROGRAM = Path(__file__).parents[1] / "e2e" / "generated_clients" / "link_tokens.mjs"
GUIDE = ROOT / "docs" / "partner-guide.md"
NODE_TAKES_S = 60
LINK_KEY = ids.new_secret(ids.LINK_KEY)
GROUP_ID = ids.new_id(ids.GROUP_ID)


def opened(key: LinkKey, token: str) -> LinkContent | None:
    content = key.open(token)
    return None if content is None else parse_content(content)


@pytest.mark.parametrize("vector", load_link_vectors(), ids=[str(at) for at, _ in enumerate(load_link_vectors())])
def test_link_vector_holds(vector: LinkVector) -> None:
    """Programs in other languages are tested with these vectors."""
    key = LinkKey(vector.link_key)
    assert opened(key, vector.token) == vector.content
    if vector.content is not None:
        assert key.token(vector.content) == vector.token
        sealed = read_token(vector.token)
        assert sealed is not None
        assert sealed.key_id == key.key_id


@pytest.mark.slow
def test_node_agrees_with_the_link_vectors(npm: Npm, tmp_path: Path) -> None:
    """The lines of the partner guide, in Node.js."""
    vectors = resources.files("stoplist_addresses").joinpath("link_vectors.json").read_text("utf-8")
    (tmp_path / "node_modules").symlink_to(npm.packages)
    (tmp_path / PROGRAM.name).write_text(PROGRAM.read_text())
    done = subprocess.run(
        [npm.node, PROGRAM.name], cwd=tmp_path, input=vectors, capture_output=True, text=True, timeout=NODE_TAKES_S
    )
    assert done.returncode == 0, done.stderr
    expected = [
        [vector["token"] if "content" in vector else None, vector.get("content")] for vector in json.loads(vectors)
    ]
    assert json.loads(done.stdout) == expected


def test_the_partner_guide_has_the_lines_that_are_tested() -> None:
    guide = GUIDE.read_text().partition("## 12. ")[2]
    lines = [line.strip() for line in guide.splitlines() if line.startswith("    const ")]
    assert len(lines) == 3
    program = [line.strip() for line in PROGRAM.read_text().splitlines()]
    at = program.index(lines[0])
    assert program[at : at + 3] == lines


def test_no_altered_token_opens() -> None:
    """It has any bit changed, the unused ones of the last character included, or it is cut or extended."""
    key = LinkKey(LINK_KEY)
    for address in ("ann@example.com", "anna@example.com", "annie@example.com"):
        token = key.token(LinkContent("email", GROUP_ID, address))
        for at, char in enumerate(token):
            for bit in range(8):
                altered = chr(ord(char) ^ 1 << bit)
                assert key.open(token[:at] + altered + token[at + 1 :]) is None
        for other in (token[:-1], token + "A", token + "=", token + "\n", f" {token}"):
            assert key.open(other) is None


def test_a_mistyped_link_key_is_refused() -> None:
    """Its links would never work, and nobody would notice before people click them."""
    for text in (LINK_KEY[:-1], LINK_KEY + "0", LINK_KEY.lower(), "svc_cs_" + LINK_KEY[7:], LINK_KEY + "\n", ""):
        with pytest.raises(ValueError, match="svc_lk_"):
            LinkKey(text)


def test_nothing_shown_of_a_key_or_content_is_secret() -> None:
    key, content = LinkKey(LINK_KEY), LinkContent("email", None, "ann@example.com")
    assert LINK_KEY not in repr(key)
    assert "ann" not in repr(content)


@given(channel=st.sampled_from(sorted(RULES)), address=emails | phones, source=st.text(max_size=200))
def test_every_accepted_address_has_a_token(channel: str, address: str, source: str) -> None:
    """The source does not matter: none is too long, and the content comes back; a second implementation agrees."""
    try:
        canonical = RULES[channel](address)
    except AddressError:
        return
    content = LinkContent(channel, GROUP_ID, canonical, cut_source(source))
    token = LinkKey(LINK_KEY).token(content)
    assert len(token) <= MAX_TOKEN_CHARS
    assert token == sealed_by_hand(LINK_KEY, content)
    assert opened(LinkKey(LINK_KEY), token) == content


@given(st.text(max_size=200))
def test_a_cut_source_is_a_beginning_of_whole_characters(source: str) -> None:
    cut = cut_source(source)
    assert len(cut.encode()) <= MAX_SOURCE_BYTES
    cleaned = "".join(" " if ord(char) < 32 or ord(char) == 127 else char for char in source)
    cleaned = cleaned.encode("utf-8", "replace").decode()
    assert cleaned.startswith(cut)
    assert len(cleaned[: len(cut) + 1].encode()) > MAX_SOURCE_BYTES or cut == cleaned


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ('["email",null,"a@b.example"]', LinkContent("email", None, "a@b.example")),
        ('["email",7,"a@b.example",[]]', LinkContent("email", None, "a@b.example")),
        ('["email",null,"a@b.example",null,"more"]', LinkContent("email", None, "a@b.example")),
        ('["email",null,null,null]', None),
        ('["email",null]', None),
        ("{}", None),
        ("[" * 100_000, None),
        ("", None),
    ],
)
def test_content_is_read_as_far_as_it_can_be_understood(content: str, expected: LinkContent | None) -> None:
    """A click cannot be refused as a request can: what is wrong beside channel and address is left out."""
    assert parse_content(content.encode()) == expected


def sealed_by_hand(link_key: str, content: LinkContent) -> str:
    """Return the token, with S2V and AES-CTR of RFC 5297 written out."""
    secret = hashlib.sha512(link_key.encode()).digest()
    head = b"\x01" + hashlib.sha256(link_key.encode()).digest()[:8]
    plaintext = json.dumps(list(content), ensure_ascii=False, separators=(",", ":")).encode()
    iv = _s2v(secret[:32], [head], plaintext)
    counter = int.from_bytes(iv) & ~(1 << 63 | 1 << 31)
    encryptor = Cipher(AES(secret[32:]), CTR(counter.to_bytes(16))).encryptor()
    return base64.urlsafe_b64encode(head + iv + encryptor.update(plaintext)).decode().rstrip("=")


def _s2v(key: bytes, headers: Sequence[bytes], plaintext: bytes) -> bytes:
    digest = int.from_bytes(_cmac(key, bytes(16)))
    for header in headers:
        digest = _doubled(digest) ^ int.from_bytes(_cmac(key, header))
    if len(plaintext) >= 16:
        end = (int.from_bytes(plaintext[-16:]) ^ digest).to_bytes(16)
        return _cmac(key, plaintext[:-16] + end)
    padded = int.from_bytes((plaintext + b"\x80").ljust(16, b"\0"))
    return _cmac(key, (_doubled(digest) ^ padded).to_bytes(16))


def _doubled(number: int) -> int:
    return (number << 1 ^ (0x87 if number >> 127 else 0)) & ((1 << 128) - 1)


def _cmac(key: bytes, text: bytes) -> bytes:
    mac = CMAC(AES(key))
    mac.update(text)
    return mac.finalize()
