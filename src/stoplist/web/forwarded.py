"""The source address of a request, and whether it came over HTTPS; only trusted proxies are believed.

Pure rules, no I/O. Source: docs/interface.md section D1, HTTPS.
"""

import re
from functools import lru_cache
from typing import NamedTuple

from stoplist.source import Address, Network, is_within, read_address

UNKNOWN = "unknown"  # the peer of a connection that was lost before its address was read

# No chain of proxies is longer; this bounds the work for 64 KiB of trusted addresses in one header.
_MAX_HOPS = 32
_MAX_HOP_BYTES = 80
_MAX_CACHED_BYTES = 200
_HOP = re.compile(r"\[(?P<v6>[^\[\]]+)\](?::\d{1,5})?|(?P<v4>[\d.]+)(?::\d{1,5})?|(?P<bare_v6>[^\[\]]+)", re.ASCII)


class Origin(NamedTuple):
    """The source address of a request, without port or zone, and whether it came over HTTPS all the way."""

    source_ip: str
    is_https: bool


class OriginReader:
    """Tells the origin of requests, with the proxies of one server."""

    def __init__(self, trusted: tuple[Network, ...]) -> None:
        self._trusted = trusted
        self._cached_origin = lru_cache(maxsize=4096)(self._origin)

    def origin(self, peer: str | None, scheme: str, headers: list[tuple[bytes, bytes]]) -> Origin:
        """Return the origin of a request that `peer` delivered over `scheme`; header names are in lower case.

        `headers` are ignored unless the peer is trusted. `X-Forwarded-For` is read right to left past trusted hops; an
        entry that is not an address stops the walk at the last address believed. Of several `X-Forwarded-Proto` values
        the rightmost counts; any value but `https`, even an empty one, is not HTTPS.
        """
        chain = protocols = None
        for name, value in headers if self._trusted else ():
            if name == b"x-forwarded-for":
                chain = value if chain is None else b"%b,%b" % (chain, value)
            elif name == b"x-forwarded-proto":
                protocols = value if protocols is None else b"%b,%b" % (protocols, value)
        # Bounds the size of the cache.
        is_short = len(chain or b"") + len(protocols or b"") <= _MAX_CACHED_BYTES
        return (self._cached_origin if is_short else self._origin)(peer, scheme, chain, protocols)

    def _origin(self, peer: str | None, scheme: str, chain: bytes | None, protocols: bytes | None) -> Origin:
        """Return the origin. `chain` and `protocols` are the values of the two headers, or None without them."""
        nearest = read_address(peer or "")
        if not is_within(nearest, self._trusted):
            return Origin(_address_text(nearest), scheme == "https")
        is_https = scheme == "https" if protocols is None else protocols.rpartition(b",")[2].strip().lower() == b"https"
        return Origin(_address_text(_source(nearest, chain or b"", self._trusted)), is_https)


def _source(nearest: Address | None, chain: bytes, trusted: tuple[Network, ...]) -> Address | None:
    """Return the first untrusted address from the right, or the last one that could be read."""
    believed = nearest
    for hop in reversed(chain.rsplit(b",", _MAX_HOPS)):
        address = _hop_address(hop)
        if address is None:
            break
        believed = address
        if not is_within(address, trusted):
            break
    return believed


def _hop_address(hop: bytes) -> Address | None:
    """Return the address of one entry: bare, with a port, or in brackets; None for anything else."""
    if len(hop) > _MAX_HOP_BYTES:
        return None
    match = _HOP.fullmatch(hop.strip(b" \t").decode("latin-1"))
    return None if match is None else read_address(match[match.lastgroup or 0])


def _address_text(address: Address | None) -> str:
    return UNKNOWN if address is None else str(address)
