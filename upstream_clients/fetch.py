"""Requests for small documents at addresses that an upstream names, and the addresses that are permitted.

An upstream is not trusted, and a login uses the addresses that the upstream names. So they must be `https` and
permitted by `fetch`, and redirects must stay within their origin. Only a server on this machine may name plain
`http` addresses, which must be on this machine too.
"""

from __future__ import annotations

import ipaddress
import json
import socket
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import anyio
import httpx2

from upstream_clients.errors import LoginError

MAX_DOCUMENT_BYTES = 256 * 1024
FETCH_TIMEOUT = 10.0
"""Seconds for one document, redirects included."""

_MAX_REDIRECTS = 3


async def check_address(url: str, server_url: str, what: str) -> None:
    """Check that a login to `server_url` may use an address. `what` names the address in the message.

    Raises:
        LoginError: the address is neither `https` nor on this machine like the server itself, or leads to an address
            that the server may not name.
    """
    shown = describe_url(url)
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if not host or parts.username or parts.password or parts.scheme not in ("https", "http"):
        raise LoginError(f"{what} is not a plain web address: {shown}")
    if is_local(server_url):
        if parts.scheme == "https" or is_local(url):
            return
        raise LoginError(f"{what} is not https: {shown}")
    if parts.scheme != "https":
        raise LoginError(f"{what} is not https: {shown}")
    if is_local(url) and parse_address(host) is None:
        raise LoginError(f"{what} is on this machine: {shown}")
    try:
        await resolve_permitted(host, port or 443, server_url)
    except NotPublic:
        leads = "leads to" if parse_address(host) is None else "is"
        raise LoginError(f"{what} {leads} an address that is not public: {shown}") from None
    except (OSError, UnicodeError, TimeoutError):
        return  # the request itself will fail with the reason, or goes to a proxy that can resolve the name


def is_local(url: str) -> bool:
    try:
        return is_loopback(urlsplit(url).hostname or "")
    except ValueError:
        return False


def same_origin(one: httpx2.URL | str, other: httpx2.URL | str) -> bool:
    first, second = httpx2.URL(one), httpx2.URL(other)
    return (first.scheme, first.host, first.port) == (second.scheme, second.host, second.port)


def describe_url(url: str) -> str:
    """Return a URL for messages: shortened, without credentials, query and control characters."""
    try:
        parts = urlsplit(url)
        text = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
    except ValueError:
        text = "an unreadable address"
    return "".join(char if char.isprintable() else "?" for char in text[:200])


class Fetcher:
    """The requests of one login, inside an async context.

    Args:
        trusted: True if `server_url` is an endpoint that the configuration names, so that it may be anywhere.
    """

    def __init__(self, server_url: str, *, timeout: float = FETCH_TIMEOUT, trusted: bool = False) -> None:
        self._server_url = server_url
        self._timeout = timeout
        self._trusted = trusted
        self._client = GuardedClient(
            server_url,
            trust_named_by=trusted,
            timeout=timeout,
            headers={"Accept": "application/json", "Accept-Encoding": "identity"},
        )

    async def __aenter__(self) -> Fetcher:
        await self._client.__aenter__()
        return self

    async def __aexit__(self, *exc: Any) -> None:
        await self._client.__aexit__(*exc)

    async def get(self, url: str, what: str, *, headers: Mapping[str, str] | None = None) -> tuple[int, Any]:
        """Return the status and the JSON of a document (None if it is not JSON). Raises `LoginError`."""
        return await self._exchange("GET", url, what, headers=dict(headers or {}))

    async def post_form(
        self, url: str, what: str, form: Mapping[str, str], *, headers: Mapping[str, str] | None = None
    ) -> tuple[int, Any]:
        return await self._exchange("POST", url, what, data=dict(form), headers=dict(headers or {}))

    async def post_json(self, url: str, what: str, body: Mapping[str, Any]) -> tuple[int, Any]:
        return await self._exchange("POST", url, what, json=dict(body))

    async def _exchange(self, method: str, url: str, what: str, **content: Any) -> tuple[int, Any]:
        if not (self._trusted and same_origin(url, self._server_url)):
            await check_address(url, self._server_url, what)
        try:
            with anyio.fail_after(self._timeout):
                request = self._client.build_request(method, url, **content)
                for _ in range(_MAX_REDIRECTS):
                    response = await self._client.send(request, stream=True, follow_redirects=False)
                    try:
                        following = response.next_request
                        # A POST may carry a secret, so its redirects are not followed.
                        if following is None or method == "POST" or not same_origin(url, str(following.url)):
                            return response.status_code, await self._read(response, what)
                        request = following
                    finally:
                        await response.aclose()
        except TimeoutError:
            raise LoginError(f"{what} did not answer within {self._timeout:g} s: {describe_url(url)}") from None
        except NotPublic:
            raise LoginError(f"{what} leads to an address that is not public: {describe_url(url)}") from None
        except (httpx2.TransportError, httpx2.DecodingError, httpx2.InvalidURL) as error:
            raise LoginError(f"{what} cannot be reached ({type(error).__name__}): {describe_url(url)}") from None
        raise LoginError(f"{what} redirects without end: {describe_url(url)}")

    async def _read(self, response: httpx2.Response, what: str) -> Any:
        body = b""
        async for chunk in response.aiter_bytes():
            body += chunk
            if len(body) > MAX_DOCUMENT_BYTES:  # checked here, since `Content-Length` is the server's own claim
                raise LoginError(f"{what} is larger than {MAX_DOCUMENT_BYTES} bytes: {describe_url(str(response.url))}")
        try:
            return json.loads(body)
        except (ValueError, RecursionError):
            return None


# The network addresses that a document of another party may name, and an HTTP client that connects to no others.
#
# A server names addresses for logins, and an issuer names one for its keys. A host name or an unusual notation of a
# number (`0xC0A80101`, `10.1`) may lead to this machine or its network. So only resolved addresses are checked, and the
# connection uses a checked address: a second look-up could give another one.
#
# A server on a private network may name private addresses. A server on this machine may name any address.


Network = ipaddress.IPv4Network | ipaddress.IPv6Network

RESOLVE_TIMEOUT = 10.0
"""Seconds for one look-up of a name."""


def _networks(text: str) -> tuple[Network, ...]:
    return tuple(map(ipaddress.ip_network, text.split()))


# The special-purpose registries of IANA for IPv4 and IPv6 (RFC 6890 and its updates). They are written here, because
# each version of Python knows others.

_UNICAST = _networks("0.0.0.0/0 2000::/3")
"""All networks with public addresses. IANA has not assigned the other ones of IPv6 to the public Internet."""

_SPECIAL = _networks(
    "0.0.0.0/8 10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 169.254.0.0/16 172.16.0.0/12 192.0.0.0/24 192.0.2.0/24 "
    "192.88.99.0/24 192.168.0.0/16 198.18.0.0/15 198.51.100.0/24 203.0.113.0/24 224.0.0.0/4 240.0.0.0/4 "
    "2001::/23 2001:db8::/32 3fff::/20"
)
"""Networks among these whose addresses are not public, apart from `_EXCEPTIONS`."""

_EXCEPTIONS = _networks(
    "192.0.0.9/32 192.0.0.10/32 2001:1::1/128 2001:1::2/128 2001:1::3/128 2001:3::/32 2001:4:112::/48 2001:20::/28 "
    "2001:30::/28"
)

_FORBIDDEN = _networks("0.0.0.0/8 127.0.0.0/8 169.254.0.0/16 224.0.0.0/4 255.255.255.255/32 ::/127 fe80::/10 ff00::/8")
"""This machine, the link, multicast and broadcast. The rest of what is not public may be named in private networks."""

_MAPPED = _networks("::ffff:0:0/96 64:ff9b::/96")
"""Networks that stand for IPv4: packets always go to the IPv4 address at the end (RFC 4291, RFC 6052)."""

_ENDING = _networks("::/96 ::ffff:0:0:0/96 64:ff9b:1::/48")
"""Networks with an IPv4 address at the end, which packets may reach (RFC 4291, RFC 2765, RFC 8215)."""

_6TO4 = _networks("2002::/16")
_TEREDO = _networks("2001::/32")
_IPV4_BITS = 0xFFFFFFFF


class NotPublic(httpx2.ConnectError):
    """A host resolves to an address that the other party may not name."""


def is_public(address: Address) -> bool:
    """Return True if an address, and any IPv4 address in it, belongs to the public Internet."""
    return all(
        _is_in(each, _UNICAST) and (not _is_in(each, _SPECIAL) or _is_in(each, _EXCEPTIONS))
        for each in _with_embedded(address)
    )


def is_forbidden(address: Address) -> bool:
    """Return True for loopback, link-local, unspecified and multicast addresses, which no other party may name."""
    return any(_is_in(each, _FORBIDDEN) for each in _with_embedded(address))


def _is_in(address: Address, networks: tuple[Network, ...]) -> bool:
    return any(address in network for network in networks)


def _with_embedded(address: Address) -> list[Address]:
    """Return an address and the IPv4 address that packets to it may reach."""
    if isinstance(address, ipaddress.IPv4Address):
        return [address]
    number = int(address)
    if _is_in(address, _MAPPED):
        return [ipaddress.IPv4Address(number & _IPV4_BITS)]
    if _is_in(address, _6TO4):
        return [address, ipaddress.IPv4Address(number >> 80 & _IPV4_BITS)]
    if _is_in(address, _TEREDO):  # which inverts the address
        return [address, ipaddress.IPv4Address(~number & _IPV4_BITS)]
    if _is_in(address, _ENDING):
        return [address, ipaddress.IPv4Address(number & _IPV4_BITS)]
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
