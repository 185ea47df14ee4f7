"""Content codings of request bodies and of answers (RFC 9110 section 8.4).

A body is never decompressed beyond its maximal size, however small it arrives.
Source: docs/interface.md section D6.
"""

import asyncio
import sys
import zlib
from collections.abc import Callable

from stoplist.errors import BadRequest
from stoplist.web.request_context import Headers, header_value

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

_GZIP_WBITS = 31
_OLD_GZIP = "x-gzip"
_GZIP_LEVEL = 1
_ZSTD_LEVEL = 1
# Work of more than a millisecond runs in a thread, as one C call that releases the interpreter lock.
_INLINE_BYTES = 32 * 1024
_INLINE_GZIP_BYTES = 512  # which deflate expands to half a MiB at most
# The rest of a file is copied for each of its members, so a file of nothing but empty members would take a minute.
# Programs that write several members put 64 KiB into each.
_MAX_MEMBERS = 256
_INCOMPLETE = "The body is not a whole gzip file: compress it anew, or send it as it is."


def _gzip(body: bytes) -> bytes:
    return zlib.compress(body, _GZIP_LEVEL, _GZIP_WBITS)


def _zstd(body: bytes) -> bytes:
    return zstd.compress(body, _ZSTD_LEVEL)


# In order of preference among codings of equal weight.
_CODINGS: dict[str, Callable[[bytes], bytes]] = {"zstd": _zstd, "gzip": _gzip}


def request_coding(headers: Headers) -> str:
    """Return `gzip` or `identity`; BadRequest for any other `Content-Encoding`."""
    coding = header_value(headers, b"content-encoding").strip().lower() or b"identity"
    if coding not in (b"identity", b"gzip", b"x-gzip"):
        raise BadRequest("The Content-Encoding must be gzip, or there must be none.")
    return "identity" if coding == b"identity" else "gzip"


async def decompress_gzip(body: bytes, *, max_bytes: int) -> bytes:
    """Return the content of a gzip body; BadRequest if it exceeds `max_bytes` or the body is incomplete."""
    if len(body) <= _INLINE_GZIP_BYTES:
        return _decompress(body, max_bytes)
    return await asyncio.to_thread(_decompress, body, max_bytes)


def answer_coding(accept_encoding: bytes | None) -> str:
    """Return the supported coding with the highest weight in `Accept-Encoding`, or `identity`."""
    if not accept_encoding:
        return "identity"
    weights = _weights(accept_encoding.decode("latin-1"))
    best, best_weight = "identity", 0.0
    for coding in _CODINGS:
        weight = weights.get(coding, weights.get("*", 0.0))
        if weight > best_weight:
            best, best_weight = coding, weight
    return best if best_weight >= weights.get("identity", 0.0) else "identity"


async def compress(body: bytes, coding: str) -> bytes:
    """Return `body` in a coding that `answer_coding` returned, other than `identity`."""
    encode = _CODINGS[coding]
    return encode(body) if len(body) <= _INLINE_BYTES else await asyncio.to_thread(encode, body)


def _decompress(body: bytes, max_bytes: int) -> bytes:
    """Return the content of all members of a gzip file (RFC 1952 section 2.2)."""
    parts: list[bytes] = []
    left = max_bytes
    while body:
        if len(parts) == _MAX_MEMBERS:
            raise BadRequest(f"The body is a gzip file of more than {_MAX_MEMBERS} members: compress it in one piece.")
        member = zlib.decompressobj(_GZIP_WBITS)
        try:
            part = member.decompress(body, left + 1)
        except zlib.error:
            raise BadRequest(_INCOMPLETE) from None
        if len(part) > left:
            raise BadRequest(f"The body is larger than {max_bytes // (1 << 20)} MiB when it is unpacked.")
        if not member.eof:
            raise BadRequest(_INCOMPLETE)
        parts.append(part)
        left -= len(part)
        body = member.unused_data
    if not parts:
        raise BadRequest(_INCOMPLETE)
    return b"".join(parts)


def _weights(accept_encoding: str) -> dict[str, float]:
    """Return the weight of each coding in the header (RFC 9110 section 12.5.3); a malformed weight counts as 0."""
    weights: dict[str, float] = {}
    for part in accept_encoding.lower().split(","):
        coding, _, parameter = part.partition(";")
        name, _, value = parameter.partition("=")
        weight = 1.0
        if name.strip() == "q":
            try:
                weight = min(1.0, max(0.0, float(value)))  # of nan, 0
            except ValueError:
                weight = 0.0
        weights[coding.strip()] = weight
    if _OLD_GZIP in weights:
        weights.setdefault("gzip", weights[_OLD_GZIP])
    return weights
