"""The network addresses that a document of another party may name, and an HTTP client that connects to no others.

A server names addresses for logins, and an issuer names one for its keys. A host name or an unusual notation of a
number (`0xC0A80101`, `10.1`) may lead to this machine or its network. So only resolved addresses are checked, and the
connection uses a checked address: a second look-up could give another one.

A server on a private network may name private addresses. A server on this machine may name any address.
"""

from __future__ import annotations

import ipaddress
import socket
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import anyio
import httpx2

from upstream_clients.loopback import is_loopback, parse_address

if TYPE_CHECKING:
    from upstream_clients.loopback import Address

RESOLVE_TIMEOUT = 10.0
"""Seconds for one look-up of a name."""

_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_LOCAL_NAT64 = ipaddress.ip_network("64:ff9b:1::/48")
_COMPATIBLE = ipaddress.ip_network("::/96")


class NotPublic(httpx2.ConnectError):
    """A host resolves to an address that the other party may not name."""


def is_public(address: Address) -> bool:
    """Return True if an address, and any IPv4 address in it, belongs to the public Internet."""
    return all(each.is_global and not each.is_multicast for each in _with_embedded(address))


def is_forbidden(address: Address) -> bool:
    """Return True for loopback, link-local, unspecified and multicast addresses, which no other party may name."""
    return any(
        each.is_loopback or each.is_link_local or each.is_unspecified or each.is_multicast
        for each in _with_embedded(address)
    )


def _with_embedded(address: Address) -> list[Address]:
    """Return an address and the IPv4 address that packets to it may reach (RFC 6052, RFC 8215, RFC 3056, RFC 4291)."""
    if isinstance(address, ipaddress.IPv4Address):
        return [address]
    last = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    # Packets to these two kinds always go to the IPv4 address, so the IPv6 address itself does not count.
    if address.ipv4_mapped is not None:
        return [address.ipv4_mapped]
    if address in _NAT64:
        return [last]
    if address.sixtofour is not None:
        return [address, address.sixtofour]
    if address in _LOCAL_NAT64 or (address in _COMPATIBLE and int(address) > 1):  # not `::` and `::1`
        return [address, last]
    return [address]


async def resolve(host: str, port: int) -> list[str]:
    """Return the addresses of a host as text, an IPv6 scope included.

    Raises:
        OSError: the host has no address.
        UnicodeError: the host name is not valid.
        TimeoutError: the look-up takes too long.
    """
    if parse_address(host) is not None:
        return [host.strip("[]")]
    with anyio.fail_after(RESOLVE_TIMEOUT):
        found = await anyio.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(socket_address[0]) for *_, socket_address in found))


def may_be_public(host: str) -> bool:
    """Return False for a host that never is public: a name of this machine, or an address that is not public."""
    address = parse_address(host)
    return not is_loopback(host) if address is None else is_public(address)


async def resolve_permitted(host: str, port: int, named_by: str | None) -> list[str]:
    """Return the addresses of a host that the server or issuer at the URL `named_by` has named.

    Without `named_by`, only public addresses are permitted.

    Raises:
        NotPublic: one of them is an address that it may not name.
        OSError, UnicodeError, TimeoutError: see `resolve`.
    """
    found = await resolve(host, port)
    naming_host = "" if named_by is None else urlsplit(named_by).hostname or ""
    if is_loopback(naming_host):
        return found
    addresses = [address for each in found if (address := parse_address(each)) is not None]
    if len(addresses) < len(found) or any(map(is_forbidden, addresses)):
        raise NotPublic(f"{host} leads to an address that is not public")
    if not all(map(is_public, addresses)) and not (naming_host and await _is_private(naming_host)):
        raise NotPublic(f"{host} leads to an address that is not public")
    return found


async def _is_private(host: str) -> bool:
    """Return True if all addresses of a host are private."""
    try:
        addresses = [parse_address(each) for each in await resolve(host, 443)]
    except (OSError, UnicodeError, TimeoutError):
        return False
    return all(address is not None and not is_public(address) for address in addresses)


class GuardedClient(httpx2.AsyncClient):
    """An HTTP client for URLs that the server or issuer at `named_by` names.

    It connects only to addresses that `resolve_permitted` returns. `trust_named_by` also permits all addresses of the
    host of `named_by`; use it if the operator has chosen that host. Requests through a proxy of the environment are not
    checked, since the proxy resolves the names.
    """

    def __init__(self, named_by: str, *, trust_named_by: bool = False, **options: Any) -> None:
        self._named_by = named_by
        self._trusted = urlsplit(named_by).hostname if trust_named_by else None
        # Connections are pooled by address, but certificates are checked by name. A pooled connection could serve
        # another name whose certificate was never checked, so no connection is used twice.
        super().__init__(limits=httpx2.Limits(max_keepalive_connections=0), **options)

    # Not passed as the argument `transport`: with it, httpx2 ignores the proxies of the environment.
    def _init_transport(self, *, transport: None = None, **options: Any) -> httpx2.AsyncHTTPTransport:  # type: ignore[override]
        return _GuardedTransport(self._named_by, self._trusted, **options)


class _GuardedTransport(httpx2.AsyncHTTPTransport):
    def __init__(self, named_by: str, trusted: str | None, **options: Any) -> None:
        super().__init__(**options)
        self._named_by = named_by
        self._trusted = trusted

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        url = request.url
        try:
            if url.host == self._trusted:
                addresses = await resolve(url.host, url.port or 443)
            else:
                addresses = await resolve_permitted(url.host, url.port or 443, self._named_by)
        except TimeoutError:
            raise httpx2.ConnectTimeout(f"{url.host} is not resolved in time") from None
        except (OSError, UnicodeError):
            raise httpx2.ConnectError(f"{url.host} cannot be resolved") from None
        failure: httpx2.TransportError = httpx2.ConnectError(f"{url.host} has no address")
        for address in addresses:
            # The URL has the checked address, so that the name is not resolved again. The server and TLS still get the
            # name, from the `Host` header and `sni_hostname`.
            pinned = httpx2.Request(
                request.method,
                url.copy_with(host=address),
                headers=request.headers,
                stream=request.stream,
                extensions={**request.extensions, "sni_hostname": url.host},
            )
            try:
                return await super().handle_async_request(pinned)
            except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
                failure = error
        raise failure
