"""The source of a request and whether it came over HTTPS, behind trusted proxies and without them."""

import ipaddress
import time
import timeit
from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stoplist.source import Network
from stoplist.web.forwarded import Origin, OriginReader

PROXIES: tuple[Network, ...] = (ipaddress.ip_network("10.0.0.0/8"), ipaddress.ip_network("fd00::/8"))
PROXY = "10.0.0.1"


def headers(*, proto: list[str] | None = None, chain: list[str] | None = None) -> list[tuple[bytes, bytes]]:
    return [
        *((b"x-forwarded-proto", value.encode("latin-1")) for value in proto or []),
        (b"host", b"stoplist.example"),
        *((b"x-forwarded-for", value.encode("latin-1")) for value in chain or []),
    ]


def is_https(scheme: str, *proto: str, peer: str = PROXY) -> bool:
    return OriginReader(PROXIES).origin(peer, scheme, headers(proto=list(proto))).is_https


def source(*chain: str, peer: str = PROXY) -> str:
    return OriginReader(PROXIES).origin(peer, "http", headers(chain=list(chain))).source_ip


def minimum_s(work: Callable[[], object], *, times: int) -> float:
    """Return the least time of 20 rounds of so many calls, in CPU time of this thread, however busy the machine is."""
    return min(timeit.repeat(work, timer=time.thread_time, number=times, repeat=20))


def test_without_trusted_proxies_no_header_is_believed() -> None:
    """Source: docs/interface.md section D1: only trusted peers are believed."""
    claims = headers(proto=["https"], chain=["192.0.2.7"])
    assert OriginReader(()).origin("198.51.100.1", "http", claims) == Origin("198.51.100.1", False)
    assert OriginReader(()).origin("198.51.100.1", "https", claims) == Origin("198.51.100.1", True)


@pytest.mark.parametrize("peer", ["198.51.100.1", "2001:db8::1", None, "11.0.0.1"])
def test_an_untrusted_peer_is_not_believed(peer: str | None) -> None:
    """It is the source itself, and a plain connection from it is not HTTPS."""
    claims = headers(proto=["https"], chain=["192.0.2.7"])
    assert OriginReader(PROXIES).origin(peer, "http", claims) == Origin(peer or "unknown", False)


@pytest.mark.parametrize(
    ("scheme", "proto", "expected"),
    [
        ("http", [], False),
        ("http", ["https"], True),
        ("http", ["HTTPS"], True),
        ("http", ["http"], False),
        ("http", ["https, http"], False),
        ("http", ["http, https"], True),
        ("http", ["https", "http"], False),
        ("http", ["http", "https"], True),
        ("http", ["http", "http , https"], True),
        ("http", ["https,"], False),
        ("http", [""], False),
        ("http", ["wss"], False),
        ("https", [], True),
        ("https", ["https"], True),
        ("https", ["http"], False),
        ("https", ["https, http"], False),
        ("https", [""], False),
    ],
)
def test_of_several_protocols_the_rightmost_counts(scheme: str, proto: list[str], expected: bool) -> None:
    """Without a value a plain connection is not HTTPS; over TLS a trusted peer's `http` is not HTTPS either."""
    assert is_https(scheme, *proto) is expected


def test_an_untrusted_peer_over_tls_is_https() -> None:
    """Its header is ignored."""
    assert is_https("https", "http", peer="198.51.100.1")


@pytest.mark.parametrize(
    ("chain", "expected"),
    [
        ([], PROXY),
        (["192.0.2.7"], "192.0.2.7"),
        (["6.6.6.6, 192.0.2.7"], "192.0.2.7"),
        (["6.6.6.6", "192.0.2.7"], "192.0.2.7"),
        (["192.0.2.7, 10.9.9.9, 10.0.0.2"], "192.0.2.7"),
        (["192.0.2.7", "10.9.9.9,10.0.0.2"], "192.0.2.7"),
        (["10.9.9.9, 10.0.0.2"], "10.9.9.9"),
        (["192.0.2.7, unknown, 10.0.0.2"], "10.0.0.2"),
        (["192.0.2.7, , 10.0.0.2"], "10.0.0.2"),
        (["192.0.2.7,"], PROXY),
        (["_hidden"], PROXY),
        ([""], PROXY),
        (["192.0.2.7:4711"], "192.0.2.7"),
        (["192.0.2.7:"], PROXY),
        (["192.0.2.7:http"], PROXY),
        (["192.0.2.07"], PROXY),
        (["192.0.2"], PROXY),
        (["2001:db8::7"], "2001:db8::7"),
        (["2001:DB8:0:0::7"], "2001:db8::7"),
        (["[2001:db8::7]"], "2001:db8::7"),
        (["[2001:db8::7]:4711"], "2001:db8::7"),
        (["[2001:db8::7"], PROXY),
        (["fe80::7%eth0"], "fe80::7"),
        (["fe80::7%"], PROXY),
        (["::ffff:192.0.2.7"], "192.0.2.7"),
        (["192.0.2.7, ::ffff:10.0.0.2"], "192.0.2.7"),
        (["192.0.2.7, fd00::1"], "192.0.2.7"),
        (["\t192.0.2.7 "], "192.0.2.7"),
        (["192.0.2.7 x"], PROXY),
        (["\u00b2.0.0.1"], PROXY),
        (["1" * 5000], PROXY),
    ],
)
def test_the_chain_is_read_right_to_left_past_trusted_hops(chain: list[str], expected: str) -> None:
    """An entry that is no address stops the walk at the last address believed."""
    assert source(*chain) == expected


def test_an_ipv4_mapped_address_is_the_ipv4_address() -> None:
    """A dual-stack socket reports IPv4 peers that way, and the trusted network is an IPv4 one."""
    assert source("192.0.2.7", peer="::ffff:10.0.0.1") == "192.0.2.7"
    assert OriginReader(()).origin("::ffff:192.0.2.7", "https", []).source_ip == "192.0.2.7"


def test_a_zone_is_not_part_of_the_source() -> None:
    """Link-local peers are reported with the interface."""
    assert OriginReader(()).origin("fe80::7%eth0", "https", []).source_ip == "fe80::7"


def test_a_long_chain_of_trusted_hops_costs_little() -> None:
    """64 KiB of different trusted addresses are not all read."""
    chain = ",".join(f"10.{n % 7}.{n // 256 % 256}.{n % 256}" for n in range(6000))
    claims = headers(chain=[chain])
    assert minimum_s(partial(OriginReader(PROXIES).origin, PROXY, "http", claims), times=1) < 0.005


def test_a_request_without_trusted_proxies_costs_little() -> None:
    """The common case runs for every request (measured 0.2 microseconds; the bound is generous)."""
    claims = headers(proto=["https"], chain=["192.0.2.7"])
    assert minimum_s(partial(OriginReader(()).origin, "192.0.2.7", "https", claims), times=1000) / 1000 < 5e-6


addresses = st.ip_addresses().map(str) | st.sampled_from(
    ["10.1.2.3", "10.0.0.2", "fd00::5", "192.0.2.7", "2001:db8::7", "::ffff:10.0.0.9", "::ffff:192.0.2.9"]
)
entries = (
    addresses
    | st.builds("[{}]".format, addresses)
    | st.builds("[{}]:{}".format, addresses, st.integers(0, 65535))
    | st.sampled_from(["", "unknown", "_x", "10.0.0.2:80", "fe80::1%eth0", " 10.0.0.3 ", "::1:80", "10.0.0.256"])
    | st.text(st.characters(max_codepoint=255, exclude_characters=","), max_size=12)
)
chains = st.lists(st.lists(entries, max_size=5).map(",".join), max_size=3)


@given(st.none() | addresses, chains)
@example(PROXY, ["10.0.0.2,unknown,10.0.0.3"])
def test_the_source_agrees_with_a_naive_model(peer: str | None, chain: list[str]) -> None:
    """The model walks over plain strings one by one and knows addresses by their 128 bits only."""
    assert OriginReader(PROXIES).origin(peer, "http", headers(chain=chain)).source_ip == _naive_source(peer, chain)


@given(st.lists(st.text(st.characters(max_codepoint=255), max_size=12)), st.sampled_from(["http", "https"]))
def test_any_forwarded_protocol_is_read(proto: list[str], scheme: str) -> None:
    """A plain connection is HTTPS only if the rightmost value is `https` itself."""
    words = ",".join(proto).split(",")
    expected = words[-1].strip(" \t\r\n\x0b\x0c").lower() == "https" if proto else scheme == "https"
    assert is_https(scheme, *proto) is expected


def _naive_source(peer: str | None, chain: list[str]) -> str:
    bits = _naive_bits(peer or "")
    if bits is None:
        return "unknown"
    hops = [hop for line in chain for hop in line.split(",")]
    while hops and _naive_is_trusted(bits):
        hop = hops.pop().strip(" \t")
        if hop.startswith("["):
            inside, closing, after = hop[1:].partition("]")
            hop = inside if closing and (after == "" or _naive_is_port(after)) and "[" not in inside else "?"
        elif hop.count(":") == 1 and _naive_is_port(hop[hop.index(":") :]):
            hop = hop.partition(":")[0]
        found = _naive_bits(hop)
        if found is None:
            break
        bits = found
    return _naive_text(bits)


def _naive_is_port(text: str) -> bool:
    digits = text[1:]
    return text[0] == ":" and digits.isascii() and digits.isdigit() and len(digits) <= 5


def _naive_bits(text: str) -> int | None:
    """Return an address as 128 bits, IPv4 in its mapped form."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    return int(address) | (0xFFFF << 32 if address.version == 4 else 0)


def _naive_text(bits: int) -> str:
    return str(ipaddress.IPv4Address(bits & 0xFFFFFFFF) if bits >> 32 == 0xFFFF else ipaddress.IPv6Address(bits))


def _naive_is_trusted(bits: int) -> bool:
    return bits >> 24 == 0xFFFF << 8 | 10 or bits >> 120 == 0xFD
