"""The source address of a request, and whether it came over HTTPS; only trusted proxies are believed.

Pure rules, no I/O. Source: docs/interface.md section D1, HTTPS.
"""

import re
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Network
from typing import NamedTuple

from stoplist.source import Address, read_address
from stoplist.web.request_context import header_value

Network = IPv4Network | IPv6Network

UNKNOWN = "unknown"  # the peer of a connection that was lost before its address was read

# No chain of proxies is longer; this bounds the work for 64 KiB of trusted addresses in one header.
_MAX_HOPS = 32
_MAX_HOP_BYTES = 80
_HOP = re.compile(r"\[(?P<v6>[^\[\]]+)\](?::\d{1,5})?|(?P<v4>[\d.]+)(?::\d{1,5})?|(?P<bare_v6>[^\[\]]+)", re.ASCII)


class Origin(NamedTuple):
    """The source address of a request, without port or zone, and whether it came over HTTPS all the way."""

    source_ip: str
    is_https: bool


def request_origin(
    peer: str | None, scheme: str, headers: list[tuple[bytes, bytes]], trusted: tuple[Network, ...]
) -> Origin:
    """Return the origin of a request that `peer` delivered over `scheme`; header names are in lower case.

    `headers` are ignored unless the peer is trusted. `X-Forwarded-For` is read right to left past trusted hops; an
    entry that is not an address stops the walk at the last address believed. Of several `X-Forwarded-Proto` values the
    rightmost counts; any value but `https`, even an empty one, is not HTTPS.
    """
    if not trusted or not _is_trusted(nearest := read_address(peer or ""), trusted):
        return _direct(peer, scheme)
    return Origin(_address_text(_source(nearest, headers, trusted)), _arrived_over_https(scheme, headers))


@lru_cache(maxsize=4096)
def _direct(peer: str | None, scheme: str) -> Origin:
    return Origin(_address_text(read_address(peer or "")), scheme == "https")


def _arrived_over_https(scheme: str, headers: list[tuple[bytes, bytes]]) -> bool:
    protocols = [value for name, value in headers if name == b"x-forwarded-proto"]
    if not protocols:
        return scheme == "https"
    return protocols[-1].rpartition(b",")[2].strip().lower() == b"https"


def _source(
    nearest: Address | None, headers: list[tuple[bytes, bytes]], trusted: tuple[Network, ...]
) -> Address | None:
    """Return the first untrusted address from the right, or the last one that could be read."""
    chain = header_value(headers, b"x-forwarded-for")
    believed = nearest
    for hop in reversed(chain.rsplit(b",", _MAX_HOPS)):
        address = _hop_address(hop)
        if address is None:
            break
        believed = address
        if not _is_trusted(address, trusted):
            break
    return believed


def _hop_address(hop: bytes) -> Address | None:
    """Return the address of one entry: bare, with a port, or in brackets; None for anything else."""
    if len(hop) > _MAX_HOP_BYTES:
        return None
    match = _HOP.fullmatch(hop.strip(b" \t").decode("latin-1"))
    return None if match is None else read_address(match[match.lastgroup or 0])


def _is_trusted(address: Address | None, trusted: tuple[Network, ...]) -> bool:
    return address is not None and any(address in network for network in trusted)


def _address_text(address: Address | None) -> str:
    return UNKNOWN if address is None else str(address)
