"""Names and addresses of this machine. Pure: no name is looked up."""

from __future__ import annotations

import ipaddress

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def is_loopback(host: str) -> bool:
    """Return True if a host name or an address, of a URL or a socket, always leads to this machine.

    Such names are `localhost` and all names below it (RFC 6761).
    """
    address = parse_address(host)
    if address is not None:
        return address.is_loopback
    return ("." + host.removesuffix(".").lower()).endswith(".localhost")


def parse_address(host: str) -> Address | None:
    """Return the address in `host`; None if `host` is a name. An IPv4-mapped IPv6 address is returned as IPv4."""
    try:
        address = ipaddress.ip_address(host.strip("[]").partition("%")[0])
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address
