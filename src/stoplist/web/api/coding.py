"""Content codings: what a request body may come in, and what an answer leaves in (RFC 9110 section 8.4).

A body is never unpacked beyond what it may hold, however small it arrives. Source: docs/interface.md section D6.
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
# What takes longer than a millisecond goes to a thread: one C call that gives up the interpreter lock.
_INLINE_BYTES = 32 * 1024
_INLINE_PACKED_BYTES = 512  # of which deflate never makes more than half a MiB
# The rest of a file is copied for each of its members: a file of empty ones alone would take a minute. Programs that
# cut a file into members make one of 64 KiB.
_MAX_MEMBERS = 256
_NOT_WHOLE = "The body is not a whole gzip file: compress it anew, or send it as it is."


def _gzip(body: bytes) -> bytes:
    return zlib.compress(body, _GZIP_LEVEL, _GZIP_WBITS)


def _zstd(body: bytes) -> bytes:
    return zstd.compress(body, _ZSTD_LEVEL)


# In the order in which we prefer them where a client likes them equally.
_CODINGS: dict[str, Callable[[bytes], bytes]] = {"zstd": _zstd, "gzip": _gzip}


def request_coding(headers: Headers) -> str:
    """`gzip` or `identity`; BadRequest for any other `Content-Encoding`."""
    coding = header_value(headers, b"content-encoding").strip().lower() or b"identity"
    if coding not in (b"identity", b"gzip", b"x-gzip"):
        raise BadRequest("The Content-Encoding must be gzip, or there must be none.")
    return "identity" if coding == b"identity" else "gzip"


async def decompress_gzip(body: bytes, *, max_bytes: int) -> bytes:
    """What a gzip body holds; BadRequest if that is more than `max_bytes`, or the body is not whole."""
    if len(body) <= _INLINE_PACKED_BYTES:
        return _decompress(body, max_bytes)
    return await asyncio.to_thread(_decompress, body, max_bytes)


def answer_coding(accept_encoding: bytes | None) -> str:
    """The coding of an answer that `Accept-Encoding` likes best among ours; `identity` where it names none."""
    if not accept_encoding:
        return "identity"
    liked = _weights(accept_encoding.decode("latin-1"))
    best, best_weight = "identity", 0.0
    for coding in _CODINGS:
        weight = liked.get(coding, liked.get("*", 0.0))
        if weight > best_weight:
            best, best_weight = coding, weight
    return best if best_weight >= liked.get("identity", 0.0) else "identity"


async def compress(body: bytes, coding: str) -> bytes:
    """`body` in one of our codings."""
    pack = _CODINGS[coding]
    return pack(body) if len(body) <= _INLINE_BYTES else await asyncio.to_thread(pack, body)


def _decompress(body: bytes, max_bytes: int) -> bytes:
    """Every member of a gzip file (RFC 1952 section 2.2)."""
    parts: list[bytes] = []
    left = max_bytes
    while body:
        if len(parts) == _MAX_MEMBERS:
            raise BadRequest(f"The body is a gzip file of more than {_MAX_MEMBERS} members: compress it in one piece.")
        member = zlib.decompressobj(_GZIP_WBITS)
        try:
            part = member.decompress(body, left + 1)
        except zlib.error:
            raise BadRequest(_NOT_WHOLE) from None
        if len(part) > left:
            raise BadRequest(f"The body is larger than {max_bytes // (1 << 20)} MiB when it is unpacked.")
        if not member.eof:
            raise BadRequest(_NOT_WHOLE)
        parts.append(part)
        left -= len(part)
        body = member.unused_data
    if not parts:
        raise BadRequest(_NOT_WHOLE)
    return b"".join(parts)


def _weights(accept_encoding: str) -> dict[str, float]:
    """The weight of each coding that is named (RFC 9110 section 12.5.3); one that cannot be read counts as 0."""
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
