"""What one source of requests is: an address, without its port or zone, and what it is counted under.

Pure rules, no I/O. Source: docs/interface.md section D8.
"""

from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

Address = IPv4Address | IPv6Address


@lru_cache(maxsize=4096)
def source_key(ip: str) -> str:
    """What one source is counted under: an IPv4 address whole, an IPv6 address by its /64.

    Any text will do; what is no address counts as itself.
    """
    address = read_address(ip)
    if isinstance(address, IPv6Address):
        return str(ip_network((int(address) >> 64 << 64, 64)))
    return ip if address is None else str(address)


@lru_cache(maxsize=4096)
def read_address(text: str) -> Address | None:
    """The address without its zone, an IPv4-mapped one as IPv4; None if it is none."""
    try:
        address = ip_address(text)
    except ValueError:
        return None
    if isinstance(address, IPv4Address):
        return address
    return address.ipv4_mapped or IPv6Address(int(address))
