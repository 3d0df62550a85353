"""The addresses that another party may name, by the special-purpose registries of IANA."""

import ipaddress

import pytest

from upstream_clients.fetch import is_forbidden, is_public, may_be_public, parse_address

SPECIAL = """
0.0.0.0/8 10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 169.254.0.0/16 172.16.0.0/12 192.0.0.0/29 192.0.0.8/32 192.0.0.11/32
192.0.0.128/25 192.0.0.170/32 192.0.0.171/32 192.0.0.192/32 192.0.2.0/24 192.88.99.0/24 192.168.0.0/16 198.18.0.0/15
198.51.100.0/24 203.0.113.0/24 224.0.0.0/4 240.0.0.0/4 255.255.255.255/32
::/128 ::1/128 ::/96 ::ffff:0:0:0/96 ::ffff:0.0.0.0/104 ::ffff:127.0.0.0/104 64:ff9b::a00:0/104 64:ff9b:1::/48 100::/64
100:0:0:1::/64 200::/7 400::/6 800::/5 1000::/4 2001::/32 2001:1::/128 2001:1::4/128 2001:2::/48 2001:5::/32
2001:10::/28 2001:1ff::/32 2001:db8::/32 2002:7f00::/24 2002:a00::/24 2002:a9fe::/32 2002:c0a8::/32 3fff::/20 4000::/2
5f00::/16 8000::/2 c000::/3 e000::/4 f000::/5 f800::/6 fc00::/7 fe00::/9 fe80::/10 fec0::/10 ff00::/8
"""
"""Networks of which no address is public. The later ones are within the earlier ones, or not assigned at all."""

PUBLIC = """
1.0.0.0/8 9.255.255.0/24 11.0.0.0/8 100.63.255.0/24 100.128.0.0/16 126.255.255.0/24 128.0.0.0/16 169.253.255.0/24
169.255.0.0/24 172.15.255.0/24 172.32.0.0/16 192.0.0.9/32 192.0.0.10/32 192.0.1.0/24 192.0.3.0/24 192.31.196.0/24
192.52.193.0/24 192.88.98.0/24 192.88.100.0/24 192.167.255.0/24 192.169.0.0/24 192.175.48.0/24 198.17.255.0/24
198.20.0.0/16 198.51.99.0/24 198.51.101.0/24 203.0.112.0/24 203.0.114.0/24 223.255.255.0/24
::ffff:1.1.1.0/120 64:ff9b::808:800/120 2000::/16 2001:1::1/128 2001:1::2/128 2001:1::3/128 2001:3::/32
2001:4:112::/48 2001:20::/28 2001:30::/28 2001:200::/23 2001:db7::/32 2001:db9::/32 2001:4860::/32 2002:808::/32
2606:4700::/32 2620:4f:8000::/48 3ffe::/16 3fff:1000::/20
"""
"""Networks of which each address is public: those that the registries call globally reachable, and neighbours."""

FORBIDDEN = """
0.0.0.0/8 127.0.0.0/8 169.254.0.0/16 224.0.0.0/4 255.255.255.255/32 ::/127 ::127.0.0.1/128 ::ffff:127.0.0.0/104
::ffff:169.254.0.0/112 ::ffff:0:127.0.0.1/128 64:ff9b::7f00:0/104 64:ff9b:1::a9fe:a9fe/128 2001:0:808:808::80ff:fffe/128
2002:7f00:1::/48 2002:a9fe::/32 fe80::/10 ff00::/8
"""
"""Networks that not even a server of a private network may name; 80ff:fffe is 127.0.0.1, as Teredo writes it."""


def _ends(network: str) -> list[ipaddress.IPv4Address | ipaddress.IPv6Address]:
    found = ipaddress.ip_network(network)
    return [found[0], found[len(found.exploded) % min(found.num_addresses, 7)], found[-1]]


@pytest.mark.parametrize("network", SPECIAL.split())
def test_no_address_of_a_special_network_is_public(network: str) -> None:
    assert not any(map(is_public, _ends(network)))


@pytest.mark.parametrize("network", PUBLIC.split())
def test_an_address_beside_the_special_networks_is_public(network: str) -> None:
    assert all(map(is_public, _ends(network)))
    assert not any(map(is_forbidden, _ends(network)))


@pytest.mark.parametrize("network", FORBIDDEN.split())
def test_an_address_of_this_machine_or_its_link_is_forbidden_in_each_form(network: str) -> None:
    assert all(map(is_forbidden, _ends(network)))
    assert not any(map(is_public, _ends(network)))


def test_an_address_of_a_private_network_is_not_forbidden() -> None:
    for network in ("10.0.0.0/8", "100.64.0.0/10", "192.168.0.0/16", "fc00::/7", "fec0::/10", "64:ff9b::a00:0/104"):
        assert not any(map(is_forbidden, _ends(network)))


def test_the_tables_do_not_depend_on_the_version_of_python(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in (ipaddress.IPv4Address, ipaddress.IPv6Address):
        for name in ("is_global", "is_private", "is_reserved", "is_multicast", "is_link_local", "is_unspecified"):
            monkeypatch.setattr(kind, name, property(lambda _: pytest.fail("asked Python")))
    assert not may_be_public("[fec0::1]")
    assert may_be_public("2606:4700::1111")
    address = parse_address("[fe80::1%25eth0]")
    assert address is not None
    assert is_forbidden(address)
