"""Compressed answers, according to `Accept-Encoding` (RFC 9110 section 12.5.3; docs/interface.md section D6)."""

import asyncio
import sys
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoplist.web.api.coding import answer_coding, compress
from tests.unsubscribes.partner import out
from tests.web.api.partner import ApiPartner
from tests.web.application import Answer

pytestmark = pytest.mark.interpreter

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

# `Accept-Encoding`, and the coding of the answer.
CODINGS = {
    "": "identity",
    "identity": "identity",
    "gzip": "gzip",
    "GZIP": "gzip",
    "x-gzip": "gzip",
    "zstd": "zstd",
    "br": "identity",
    "deflate, br": "identity",
    "gzip, deflate, br, zstd": "zstd",
    "gzip, deflate": "gzip",
    "zstd;q=0.5, gzip": "gzip",
    "zstd;q=0.5, gzip;q=0.5": "zstd",
    "gzip;q=0.001": "gzip",
    " gzip ; q=1.0 ,": "gzip",
    "gzip; Q=1": "gzip",
    "gzip;q=0": "identity",
    "gzip;q=0.000": "identity",
    "gzip;q=0, zstd;q=0": "identity",
    "gzip;q=0, zstd": "zstd",
    "zstd;q=0, gzip": "gzip",
    "*": "zstd",
    "*;q=0": "identity",
    "*;q=0, gzip": "gzip",
    "zstd;q=0, *": "gzip",
    "*;q=0.5, gzip;q=0.8": "gzip",
    "identity, gzip;q=0.5": "identity",
    "identity;q=0.5, gzip;q=0.6": "gzip",
    "identity;q=0.5, *;q=0.1": "identity",
    "identity;q=0, gzip": "gzip",
    "identity;q=0": "identity",
    "gzip;q=x": "identity",
    "gzip;q=": "identity",
    "gzip;q=nan": "identity",
    "gzip;q=-1": "identity",
    "gzip;q=0.5;x=1": "identity",
    "gzip;x=0": "gzip",
    ";q=1": "identity",
    ",,,": "identity",
    "gzipx": "identity",
    "gzip zstd": "identity",
}


def decoded_body(answer: Answer) -> bytes:
    """Return the body of an answer, decompressed according to its headers."""
    coding = answer.header("content-encoding")
    assert answer.header("content-length") == str(len(answer.body))
    if coding is None:
        return answer.body
    assert coding in ("gzip", "zstd")
    return zlib.decompress(answer.body, 31) if coding == "gzip" else zstd.decompress(answer.body)


@pytest.mark.parametrize(("accept", "coding"), CODINGS.items())
def test_an_answer_has_the_coding_with_the_highest_weight(
    partner_on_sqlite: ApiPartner, accept: str, coding: str
) -> None:
    """Uncompressed if no supported coding is allowed or the header is malformed. The content is always the same."""
    plain = partner_on_sqlite.get().body
    answer = partner_on_sqlite.get("", ("accept-encoding", accept))
    assert answer.status == 200
    assert answer.header("content-encoding") == (None if coding == "identity" else coding)
    assert answer.header("vary") == "accept-encoding"
    assert decoded_body(answer) == plain


def test_without_the_header_an_answer_is_not_compressed(partner_on_sqlite: ApiPartner) -> None:
    """It has `Vary` all the same."""
    answer = partner_on_sqlite.get()
    assert (answer.header("content-encoding"), answer.header("vary")) == (None, "accept-encoding")


def test_the_header_may_come_in_several_lines(partner_on_sqlite: ApiPartner) -> None:
    """RFC 9110 section 5.3: as if they were one."""
    answer = partner_on_sqlite.get("", ("accept-encoding", "zstd;q=0.1"), ("accept-encoding", "gzip"))
    assert answer.header("content-encoding") == "gzip"


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
def test_answers_to_submissions_are_compressed_too(partner_on_sqlite: ApiPartner, coding: str) -> None:
    """A large answer is compressed in a thread."""
    items = [out(f"p{n}@x.org", partner_on_sqlite.ago(5)) for n in range(1_000)]
    partner_on_sqlite.submit(*items)
    plain = partner_on_sqlite.submit(*items)
    body = {"items": items}
    answer = partner_on_sqlite.post(body, ("accept-encoding", coding))
    assert answer.header("content-encoding") == coding
    assert len(answer.body) * 3 < len(plain.body)
    assert decoded_body(answer) == plain.body
    page = partner_on_sqlite.get("", ("accept-encoding", coding))
    assert decoded_body(page) == partner_on_sqlite.get().body


def test_refusals_are_not_compressed(partner_on_sqlite: ApiPartner) -> None:
    """They are small, and read by people."""
    accept = ("accept-encoding", "gzip")
    for answer in (partner_on_sqlite.get("limit=0", accept), partner_on_sqlite.post(b"{}", accept)):
        assert (answer.status, answer.header("content-encoding")) == (400, None)
        assert answer.error == "bad_request"


def test_a_content_encoding_without_a_body_is_ignored(partner_on_sqlite: ApiPartner) -> None:
    assert partner_on_sqlite.get("", ("content-encoding", "br")).status == 200


@given(st.binary() | st.text("gzipstd*;q=01.,xnaife-", max_size=30).map(str.encode))
def test_any_accept_encoding_is_read_or_ignored(accept: bytes) -> None:
    assert answer_coding(accept) in ("gzip", "zstd", "identity")


@given(st.binary(max_size=100), st.sampled_from(["gzip", "zstd"]), st.sampled_from([1, 1_000]))
def test_compression_is_lossless(body: bytes, coding: str, times: int) -> None:
    """Inline and in a thread."""
    compressed = asyncio.run(compress(body * times, coding))
    assert (
        decoded_body(Answer(200, [("content-encoding", coding), ("content-length", str(len(compressed)))], compressed))
        == body * times
    )
