"""Names and addresses of this machine. Pure: no name is looked up."""

from __future__ import annotations

import ipaddress

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def is_loopback(host: str) -> bool:
    """Return True if only this machine is reached by this name or number, as it stands in a URL or a socket's address.

    Of names these are `localhost` and all below it (RFC 6761).
    """
    address = literal(host)
    if address is not None:
        return address.is_loopback
    return ("." + host.removesuffix(".").lower()).endswith(".localhost")


def literal(host: str) -> Address | None:
    """Return the address, when `host` is one and no name; an IPv4 address in the form of IPv6 is what it stands for."""
    try:
        address = ipaddress.ip_address(host.strip("[]").partition("%")[0])
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address
