"""A webhook leads to public addresses alone (docs/interface.md section D16)."""

import asyncio
from typing import Any

import pytest

from stoplist.notices.resolution import AddressRefused, is_public, resolve

REFUSED = """
0.0.0.0 10.1.2.3 100.64.0.1 127.0.0.1 169.254.169.254 172.16.0.1 192.0.0.8 192.0.2.1 192.168.1.1 198.18.0.1
198.51.100.7 203.0.113.1 224.0.0.1 240.0.0.1 255.255.255.255
:: ::1 ::127.0.0.1 ::8.8.8.8 ::ffff:127.0.0.1 ::ffff:10.0.0.1 64:ff9b::7f00:1 64:ff9b::a00:1 64:ff9b:1::808:808
100::1 2001::1 2001:0:808:808::1 2001:db8::1 2002:7f00:1:: 2002:a00:1::1 3fff::1 fc00::1 fd12::1 fe80::1
fec0::1 ff02::1 ff0e::1 4000::1
"""
PUBLIC = """
8.8.8.8 192.88.98.1 ::ffff:8.8.8.8 64:ff9b::808:808 2002:808:808::1 2606:4700::1111 2a00:1450::1
"""


@pytest.mark.parametrize("address", REFUSED.split())
def test_an_address_that_is_not_public_is_refused(address: str) -> None:
    """This includes those that `is_global` takes for global, and those that a gateway turns into others."""
    assert not is_public(address)


@pytest.mark.parametrize("address", PUBLIC.split())
def test_a_public_address_passes(address: str) -> None:
    assert is_public(address)


def resolved(*addresses: str, **options: bool) -> list[str]:
    async def look_up(host: str, port: int) -> list[Any]:
        return [(None, None, 0, "", (address, port)) for address in addresses]

    return asyncio.run(resolve("hooks.example", 443, look_up=look_up, **options))


def test_every_address_of_the_name_must_be_public() -> None:
    """Else an attacker would add a second one."""
    assert resolved("8.8.8.8", "2606:4700::1111", "8.8.8.8") == ["8.8.8.8", "2606:4700::1111"]
    with pytest.raises(AddressRefused):
        resolved("8.8.8.8", "10.0.0.1")
    assert resolved("8.8.8.8", "10.0.0.1", is_private_allowed=True) == ["8.8.8.8", "10.0.0.1"]


def test_a_name_without_an_address_is_an_error() -> None:
    with pytest.raises(OSError, match="no address"):
        resolved()
