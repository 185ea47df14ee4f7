"""The source address of requests, without port or zone, and the key under which a source is counted.

Pure rules, no I/O. Source: docs/interface.md section D8.
"""

from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

Address = IPv4Address | IPv6Address


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
def read_address(text: str) -> Address | None:
    """Return the address without its zone, an IPv4-mapped one as IPv4; None if it is malformed."""
    try:
        address = ip_address(text)
    except ValueError:
        return None
    if isinstance(address, IPv4Address):
        return address
    return address.ipv4_mapped or IPv6Address(int(address))
