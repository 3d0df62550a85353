"""Decisions about a request before anything of it is served; pure, time is an argument."""

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
    """Return True if this is an IP address and not a name."""
    try:
        ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    return True


def bracketed(host: str) -> str:
    """Return a host as it stands in a URL."""
    return f"[{host}]" if ":" in host else host


@dataclass(frozen=True, slots=True)
class Doors:
    """The allowed `Host` and `Origin` headers.

    A page that a browser has loaded may point its own name at this machine (DNS rebinding). It cannot forge these
    headers, so only names that are known to be ours are let in; an address is no name that can point elsewhere.

    Attributes:
        port: the real one.
        addresses: whether every IP address is let in, for a listener on all of them.
        hosts: lower-case `host`, which holds for every port, or `host:port`.
        origins: `scheme://host[:port]`, lower-case.
    """

    port: int
    addresses: bool
    hosts: frozenset[str]
    origins: frozenset[str]

    def admits_host(self, value: str) -> bool:
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
        """Return True if a page may ask: one that was loaded from the `host` it asks or from our port, or that the
        operator names. A name that is ours with every port is not enough: behind another port is another's page."""
        value = value.lower()
        if value in self.origins:
            return True
        scheme, _, rest = value.partition("://")
        return scheme in ("http", "https") and bool(rest) and (rest == host.lower() or self._is_ours(rest))

    def shares_with(self, origin: str) -> bool:
        """Return True if a browser may show answers to the pages of another origin: those that the operator names."""
        return origin.lower() in self.origins


def doors(host: str, port: int, hosts: tuple[str, ...], origins: tuple[str, ...], resource: str | None) -> Doors:
    """Those of a listener on `host`, with what the operator names and the URL that clients know it by, if any."""
    known = {name.lower() for name in hosts}
    wildcard = host in ("", "0.0.0.0", "::")
    if not wildcard:
        known.add(f"{bracketed(host)}:{port}".lower())
    if resource is not None:
        known.add(urlsplit(resource).netloc.lower())
    return Doors(port, wildcard, frozenset(known), frozenset(origin.lower() for origin in origins))


def _split(value: str) -> tuple[str, int | None]:
    host, colon, port = value.rpartition(":")
    if not colon or value.endswith("]"):
        return value, None
    return host, int(port) if port.isascii() and port.isdecimal() and len(port) < 6 else -1


def peer(address: str) -> str:
    """Return whom an address stands for: an IPv6 network of 64 bits is one peer."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv6Address):
        if parsed.ipv4_mapped is not None:
            return str(parsed.ipv4_mapped)
        return str(ipaddress.ip_network((int(parsed) >> 64 << 64, 64)))
    return address


FREE_BODY_BYTES = 64 * 1024
"""Bytes of each body that count for no budget: small requests are taken however full it is."""


SECONDS_PER_VALUE = 7e-7
"""Seconds of the event loop for one value of a request: to parse it, and to make a message of it."""


def seconds_to_read(body: bytes | bytearray) -> float:
    """Return the seconds of the event loop that a body of JSON takes at most. Commas in texts count too."""
    return (body.count(b",") + body.count(b"[") + body.count(b"{")) * SECONDS_PER_VALUE


@dataclass(slots=True)
class BodyBudget:
    """Bytes of bodies that have not come whole yet: of the process, and of each principal or peer.

    Attributes:
        total: bytes of all.
        share: bytes of one principal or peer.
    """

    total: int
    share: int
    _held: dict[str, int] = field(default_factory=dict)
    _sum: int = 0

    @staticmethod
    def for_bodies_of(largest: int) -> BodyBudget:
        """Return a budget for bodies of up to so many bytes. One body of the largest size fits into a share."""
        total = max(MIN_BUDGET, 4 * largest)
        return BodyBudget(total, total // 4)

    def admits(self, who: str, size: int) -> bool:
        """Take `size` more bytes, if there is room for them."""
        mine = self._held.get(who, 0) + size
        if mine > self.share or self._sum + size > self.total:
            return False
        self._sum += size
        self._held[who] = mine
        return True

    def release(self, who: str, size: int) -> None:
        if size:
            self._sum -= size
            self._held[who] -= size
            if not self._held[who]:
                del self._held[who]


MIN_BUDGET = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class TrustedProxies:
    """The proxies whose word counts about where a request comes from.

    Attributes:
        networks: addresses or networks as the operator has written them.
    """

    networks: tuple[str, ...]

    def origin(self, sender: str, forwarded: str) -> str:
        """Return the address of the client: the sender's, or that of the last hop that is no trusted proxy.

        Args:
            forwarded: `X-Forwarded-For`, to which each proxy has added the address that it was asked from. All that is
                left of the last untrusted address is the client's own word.
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
    """Return an address without its zone, and as IPv4 if that is what it stands for."""
    parsed = ipaddress.ip_address(address.partition("%")[0])
    mapped = parsed.ipv4_mapped if isinstance(parsed, ipaddress.IPv6Address) else None
    return str(mapped or parsed)


def _without_port(hop: str) -> str:
    if hop.startswith("["):
        return hop[1:].partition("]")[0]
    return hop.partition(":")[0] if hop.count(":") == 1 else hop


@dataclass(slots=True)
class RateLimiter:
    """A token bucket for each of a bounded number of keys; those that asked least recently are forgotten.

    Attributes:
        per_second: tokens that come back.
        burst: tokens of a full bucket.
    """

    per_second: float
    burst: float
    _buckets: OrderedDict[str, tuple[float, float]] = field(default_factory=OrderedDict)

    def take(self, key: str, now: float) -> float:
        """Take a token: 0, or the seconds until there is one."""
        level, at = self._buckets.pop(key, (float(self.burst), now))
        level = min(self.burst, level + (now - at) * self.per_second)
        wait = 0.0 if level >= 1 else (1 - level) / self.per_second
        self._buckets[key] = (level if wait else level - 1, now)
        if len(self._buckets) > _MAX_BUCKETS:
            self._buckets.popitem(last=False)
        return wait

    def owe(self, key: str, now: float, most: float, tokens: float = 1.0) -> float:
        """Take tokens in any case: 0, or the seconds until they would have been there, at most `most`."""
        level, at = self._buckets.pop(key, (float(self.burst), now))
        level = min(self.burst, level + (now - at) * self.per_second) - tokens
        wait = min(most, max(0.0, -level / self.per_second))
        self._buckets[key] = (max(level, -most * self.per_second), now)
        if len(self._buckets) > _MAX_BUCKETS:
            self._buckets.popitem(last=False)
        return wait


class Turns:
    """Lets requests begin one in each round of the event loop, those of different principals in turn.

    Without it a request would wait for all that others have sent before it.
    """

    def __init__(self) -> None:
        self._waiting: OrderedDict[str, deque[anyio.Event]] = OrderedDict()
        self._scheduled = False

    async def take(self, who: str) -> None:
        """Wait for the turn of a principal."""
        turn = anyio.Event()
        self._waiting.setdefault(who, deque()).append(turn)
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._next)
        await turn.wait()

    def _next(self) -> None:
        who, waiting = self._waiting.popitem(last=False)
        waiting.popleft().set()
        if waiting:
            self._waiting[who] = waiting
        self._scheduled = bool(self._waiting)
        if self._scheduled:
            asyncio.get_running_loop().call_soon(self._next)
