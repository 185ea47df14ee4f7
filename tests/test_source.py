"""The key under which a source is counted."""

import pytest

from stoplist.source import source_key, wider_source_key


@pytest.mark.parametrize(
    ("ip", "key"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::", "2001:db8:1:2::/64"),
        ("2001:db8:1:3::", "2001:db8:1:3::/64"),
        ("::1", "::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("unknown", "unknown"),
        ("", ""),
    ],
)
def test_ipv6_sources_count_by_their_64(ip: str, key: str) -> None:
    """Source: docs/interface.md section D8."""
    assert source_key(ip) == key


@pytest.mark.parametrize(
    ("key", "network"),
    [
        ("2001:db8:1:2::/64", "2001:db8:1::/48"),
        ("2001:db8:1::/64", "2001:db8:1::/48"),
        ("::/64", "::/48"),
        ("192.0.2.7", None),
        ("unknown", None),
        ("codes of a/b@example.org", None),
        ("x/64", None),
        ("2001:db8::1/64", None),
        ("", None),
    ],
)
def test_ipv6_sources_count_by_their_48_too(key: str, network: str | None) -> None:
    """Other sources have no wider one."""
    assert wider_source_key(key) == network
