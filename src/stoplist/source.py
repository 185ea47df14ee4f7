"""The source address of requests, without port or zone, and the key under which a source is counted.

Pure rules, no I/O. Source: docs/interface.md section D8.
"""

from collections.abc import Sequence
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

SOURCES_PER_NETWORK = 4
"""A /48 may fail as often as this number of sources in it."""


@lru_cache(maxsize=4096)
def source_key(ip: str) -> str:
    """Return the key under which a source is counted: an IPv4 address as it is, an IPv6 address by its /64.

    Accepts any text; a text that is not an address is its own key.
    """
    address = read_address(ip)
    if isinstance(address, IPv6Address):
        return str(ip_network((int(address) >> 64 << 64, 64)))
    return ip if address is None else str(address)


@lru_cache(maxsize=4096)
def wider_source_key(key: str) -> str | None:
    """Return the /48 in which a source key of IPv6 lies, since whoever has one has 65,536 /64s; None for other keys."""
    if not key.endswith("/64"):
        return None
    try:
        network = IPv6Network(key)
    except ValueError:
        return None
    return str(network.supernet(new_prefix=48))


@lru_cache(maxsize=4096)
def read_address(text: str) -> Address | None:
    """Return the address without its zone, an IPv4-mapped one as IPv4; None if it is malformed."""
    try:
        address = ip_address(text)
    except ValueError:
        return None
    if isinstance(address, IPv4Address):
        return address
    return address.ipv4_mapped or IPv6Address(int(address))


def is_within(address: Address | None, networks: Sequence[Network]) -> bool:
    """Return whether this is an address in one of the networks."""
    return address is not None and any(address in network for network in networks)
