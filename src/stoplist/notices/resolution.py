"""Resolves the host of a webhook, and refuses addresses within networks that the operator's systems trust.

A setting that names an internal host, or a name that somebody changed, must not make a server send requests into its
own network (SSRF). The name is resolved once an attempt, and the connection is made to the very addresses judged here.
Source: docs/interface.md section D16.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Any

_NAT64 = IPv6Network("64:ff9b::/96")
_6TO4 = IPv6Network("2002::/16")
# All IPv6 that is routed. Leaves out multicast, site-local, link-local, IPv4-compatible and local NAT64 addresses, some
# of which `is_global` takes for global.
_UNICAST = IPv6Network("2000::/3")
# Holds Teredo, in which an IPv4 address is hidden that another host chose.
_PROTOCOL_ASSIGNMENTS = (IPv6Network("2001::/23"), IPv4Network("192.0.0.0/24"))
# The segment routing and documentation ranges that older versions of Python take for global.
_NEWER_SPECIAL_RANGES = (IPv6Network("3fff::/20"), IPv6Network("2001:db8::/32"))

LookUp = Callable[[str, int], Awaitable[list[Any]]]
"""Returns the addresses of a host and port as `getaddrinfo` does."""


class AddressRefused(Exception):
    """The name of the webhook leads to an address that is not public."""


async def look_up(host: str, port: int) -> list[Any]:
    """Return the addresses of a host, for connections over TCP; raise OSError if there are none."""
    return await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)


async def resolve(host: str, port: int, *, is_private_allowed: bool = False, look_up: LookUp = look_up) -> list[str]:
    """Return the addresses of the host, from one look-up; AddressRefused if any of them is not public."""
    addresses = list(dict.fromkeys(str(found[4][0]) for found in await look_up(host, port)))
    if not addresses:
        raise OSError("the name has no address")
    if not is_private_allowed and not all(map(is_public, addresses)):
        raise AddressRefused
    return addresses


def is_public(address: str) -> bool:
    """Return whether the address is a public one, and none that a gateway would turn into another kind."""
    ip = _unwrapped(ip_address(address))
    if not ip.is_global or ip.is_multicast or ip.is_reserved:
        return False
    if any(
        ip in network for network in (*_PROTOCOL_ASSIGNMENTS, *_NEWER_SPECIAL_RANGES) if network.version == ip.version
    ):
        return False
    return ip.version == 4 or ip in _UNICAST


def _unwrapped(ip: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    """Return the IPv4 address that this one stands for, if it does: mapped, of NAT64 or of 6to4."""
    if isinstance(ip, IPv4Address):
        return ip
    if ip.ipv4_mapped is not None:
        return ip.ipv4_mapped
    if ip in _NAT64:
        return IPv4Address(int(ip) & 0xFFFF_FFFF)
    if ip in _6TO4:
        return IPv4Address(int(ip) >> 80 & 0xFFFF_FFFF)
    return ip
