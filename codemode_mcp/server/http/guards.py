"""Limits on requests before they are served: hosts, origins, rates and trusted proxies. Time is an argument."""

from __future__ import annotations

import asyncio
import ipaddress
from collections import OrderedDict, deque
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import anyio

LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")

_MAX_BUCKETS = 10_000


def is_address(host: str) -> bool:
    """Return True if a host is an IP address, not a name."""
    try:
        ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    return True


def bracketed(host: str) -> str:
    """Return a host in the form that it has in a URL: IPv6 addresses have brackets."""
    return f"[{host}]" if ":" in host else host


@dataclass(frozen=True, slots=True)
class HostRules:
    """The allowed `Host` and `Origin` headers.

    A web page can make its own name resolve to this machine (DNS rebinding), but it cannot forge these headers.
    Therefore only known names of this server are allowed. An IP address cannot be rebound.

    Attributes:
        port: the port of the listener.
        addresses: every IP address is allowed, because the listener listens on all addresses.
        hosts: lower-case names. `host` allows every port, `host:port` one port.
        origins: lower-case `scheme://host[:port]`.
    """

    port: int
    addresses: bool
    hosts: frozenset[str]
    origins: frozenset[str]

    def admits_host(self, value: str) -> bool:
        """Return True if a `Host` header is allowed."""
        value = value.lower()
        return _split(value)[0] in self.hosts or self._is_ours(value)

    def _is_ours(self, value: str) -> bool:
        if value in self.hosts:
            return True
        host, port = _split(value)
        if port != self.port and not (port is None and self.port == 80):
            return False
        return host in LOOPBACK_NAMES or (self.addresses and is_address(host))

    def admits_origin(self, value: str, host: str) -> bool:
        """Return True if a page with this `Origin` may send requests to a `host`.

        The page must come from the `host` that it calls or from our port, or the operator has named its origin. An
        allowed name with another port is not enough, because another program may listen on that port.
        """
        value = value.lower()
        if value in self.origins:
            return True
        scheme, _, rest = value.partition("://")
        return scheme in ("http", "https") and bool(rest) and (rest == host.lower() or self._is_ours(rest))

    def shares_with(self, origin: str) -> bool:
        """Return True if pages of an origin may read responses, because the operator has named the origin."""
        return origin.lower() in self.origins


def host_rules(
    host: str, port: int, hosts: tuple[str, ...], origins: tuple[str, ...], resource: str | None
) -> HostRules:
    """Return the rules for a listener on `host`.

    Args:
        hosts, origins: allowed by the operator.
        resource: the URL that clients use; None if it is not configured.
    """
    known = {name.lower() for name in hosts}
    wildcard = host in ("", "0.0.0.0", "::")
    if not wildcard:
        known.add(f"{bracketed(host)}:{port}".lower())
    if resource is not None:
        known.add(urlsplit(resource).netloc.lower())
    return HostRules(port, wildcard, frozenset(known), frozenset(origin.lower() for origin in origins))


def _split(value: str) -> tuple[str, int | None]:
    """Return the host and the port of a `Host` header. The port is None without one, and -1 if it is invalid."""
    host, colon, port = value.rpartition(":")
    if not colon or value.endswith("]"):
        return value, None
    return host, int(port) if port.isascii() and port.isdecimal() and len(port) < 6 else -1


def peer(address: str) -> str:
    """Return the peer to which an address belongs. All addresses of an IPv6 network of 64 bits are one peer."""
    # One household or machine usually has such a network, so it could use a new address for each request.
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv6Address):
        if parsed.ipv4_mapped is not None:
            return str(parsed.ipv4_mapped)
        return str(ipaddress.ip_network((int(parsed) >> 64 << 64, 64)))
    return address


@dataclass(frozen=True, slots=True)
class TrustedProxies:
    """The proxies whose `X-Forwarded-For` header is used.

    Attributes:
        networks: addresses or networks from the configuration.
    """

    networks: tuple[str, ...]

    def origin(self, sender: str, forwarded: str) -> str:
        """Return the address of the client: the last hop that is not a trusted proxy.

        Args:
            sender: address of the other end of the connection.
            forwarded: the header. Each proxy appends the address from which it got the request. A client can forge
                everything to the left of the last untrusted address.
        """
        hops = [hop.strip() for hop in forwarded.split(",")] if forwarded else []
        address = sender
        while hops and self._trusts(address):
            hop = _without_port(hops.pop())
            if not is_address(hop):
                break
            address = hop
        return address

    def _trusts(self, address: str) -> bool:
        if not self.networks:
            return False
        parsed = ipaddress.ip_address(peer_address(address))
        return any(parsed in ipaddress.ip_network(network) for network in self.networks)


def peer_address(address: str) -> str:
    """Return an address without its zone. An IPv4-mapped address is returned as IPv4."""
    parsed = ipaddress.ip_address(address.partition("%")[0])
    mapped = parsed.ipv4_mapped if isinstance(parsed, ipaddress.IPv6Address) else None
    return str(mapped or parsed)


def _without_port(hop: str) -> str:
    if hop.startswith("["):
        return hop[1:].partition("]")[0]
    return hop.partition(":")[0] if hop.count(":") == 1 else hop


@dataclass(slots=True)
class RateLimiter:
    """Token buckets of a bounded number of keys. The least recently used key is forgotten first.

    Attributes:
        per_second: tokens that are added to a bucket.
        burst: tokens of a full bucket.
    """

    per_second: float
    burst: float
    _buckets: OrderedDict[str, tuple[float, float]] = field(default_factory=OrderedDict)

    def take(self, key: str, now: float) -> float:
        """Take a token and return 0; if there is none, return the seconds until there is one."""
        level = self._level(key, now)
        wait = 0.0 if level >= 1 else (1 - level) / self.per_second
        self._store(key, level if wait else level - 1, now)
        return wait

    def take_on_credit(self, key: str, now: float, max_wait: float, tokens: float = 1.0) -> float:
        """Take tokens, even if there are too few. Return the seconds until there would have been enough of them.

        The result, and what the key owes, are limited by `max_wait`.
        """
        level = self._level(key, now) - tokens
        self._store(key, max(level, -max_wait * self.per_second), now)
        return min(max_wait, max(0.0, -level / self.per_second))

    def _level(self, key: str, now: float) -> float:
        level, at = self._buckets.pop(key, (float(self.burst), now))
        return min(self.burst, level + (now - at) * self.per_second)

    def _store(self, key: str, level: float, now: float) -> None:
        self._buckets[key] = level, now
        if len(self._buckets) > _MAX_BUCKETS:
            self._buckets.popitem(last=False)


class RoundRobin:
    """An order of requests. One request begins in each round of the event loop, and callers take turns.

    Without this order, a request would wait for all earlier requests of other callers.
    """

    def __init__(self) -> None:
        self._waiting: OrderedDict[str, deque[anyio.Event]] = OrderedDict()
        self._scheduled = False

    async def wait(self, caller: str) -> None:
        """Wait until the next request of a caller may begin."""
        start = anyio.Event()
        self._waiting.setdefault(caller, deque()).append(start)
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._start_next)
        await start.wait()

    def _start_next(self) -> None:
        caller, waiting = self._waiting.popitem(last=False)
        waiting.popleft().set()
        if waiting:
            self._waiting[caller] = waiting
        self._scheduled = bool(self._waiting)
        if self._scheduled:
            asyncio.get_running_loop().call_soon(self._start_next)
