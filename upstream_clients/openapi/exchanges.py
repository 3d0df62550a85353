"""One HTTP request and its whole answer, directly or through a proxy of the environment. No redirect is followed."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final, NamedTuple
from urllib.parse import unquote, unquote_plus
from urllib.request import getproxies

import anyio.to_thread
import httpx2
from msgspec import Struct, structs

from upstream_clients.direct import THREAD_BYTES
from upstream_clients.fetch import NotPublic, may_be_public
from upstream_clients.http import LIMITS, TIMEOUT
from upstream_clients.line_messages import MAX_MESSAGE_BYTES
from upstream_clients.openapi import connections
from upstream_clients.openapi.api import ApiResponse

USER_AGENT: Final = "codemode-mcp"
"""Value of `User-Agent`, until the client has named itself. Some APIs refuse requests without one."""

_FRAMING: Final = frozenset(("content-length", "transfer-encoding", "host"))
_WITH_LENGTH: Final = frozenset(("POST", "PUT", "PATCH"))


class Address(NamedTuple):
    """An address of a server.

    Attributes:
        host: the value of the header `Host`.
        target: path and query.
    """

    endpoint: connections.Endpoint
    host: str
    target: str

    @staticmethod
    def read(url: str) -> Address:
        """Return the address that a URL names. Raises `httpx2.InvalidURL`."""
        read = httpx2.URL(url)
        port = read.port or (443 if read.scheme == "https" else 80)
        endpoint = connections.Endpoint(read.scheme, read.raw_host.decode("ascii"), port)
        return Address(endpoint, read.netloc.decode("ascii"), read.raw_path.decode("ascii"))

    @property
    def url(self) -> str:
        return f"{self.endpoint.scheme}://{self.host}{self.target}"

    def followed_by(self, target: str) -> Address:
        """Return the address of an operation below this one."""
        return Address(self.endpoint, self.host, self.target + target)

    def with_parameter(self, parameter: str) -> Address:
        """Return this address with a parameter, such as `a=b`, in place of those of the same name in its query."""
        path, _, query = self.target.partition("?")
        name = unquote(parameter.partition("=")[0])
        others = [each for each in query.split("&") if each and unquote_plus(each.partition("=")[0]) != name]
        return self._replace(target=f"{path}?{'&'.join([*others, parameter])}")


class Outgoing(Struct):
    """A request before it is sent. Credentials are added to its address and headers.

    Attributes:
        headers: with names in lower case, without those that the length of the body and the address determine.
    """

    method: str
    address: Address
    headers: dict[str, str]
    body: bytes | None = None


class Http:
    """Requests to servers.

    Args:
        guarded: True to connect to public addresses only.
        keeps: False for servers that another party may name without end: nothing is kept for a later request.
    """

    def __init__(self, *, guarded: bool, keeps: bool = True) -> None:
        self._guarded = guarded
        self._keeps = keeps
        self._direct = connections.Connections(guarded=guarded, keeps=keeps)
        self._by_proxy: _ProxyClient | None = None
        self._is_proxied: dict[connections.Endpoint, bool] = {}

    async def close(self) -> None:
        self._direct.close()
        if self._by_proxy is not None:
            await self._by_proxy.aclose()
        await asyncio.sleep(0)  # the connections end in the next round of the event loop

    async def exchange(self, request: Outgoing) -> ApiResponse:
        """Send a request and return its answer.

        Raises:
            NotPublic: the address must be public, and is not.
            httpx2.TransportError: there was no answer, or it broke off.
            UnreadableBody: the answer is too large, or is encoded in another way than it says.
        """
        endpoint = request.address.endpoint
        head, fields = _encode(request)
        is_proxied = self._is_proxied.get(endpoint)
        if is_proxied is None:
            is_proxied = await self._uses_proxy(request.address)
            if self._keeps:
                self._is_proxied[endpoint] = is_proxied
        if is_proxied:
            raw = await self._exchange_by_proxy(request, fields)
        else:
            raw = await self._direct.exchange(endpoint, request.method, head, request.body, MAX_MESSAGE_BYTES)
        return await self.decoded(raw)

    async def decoded(self, raw: ApiResponse) -> ApiResponse:
        body, encoding = raw.body, raw.headers.get("content-encoding", "").strip().lower()
        if encoding not in ("", "identity") and body:
            try:  # without a thread if it takes a few milliseconds, compressed or not
                body = connections.decompressed(body[: THREAD_BYTES + 1], encoding, THREAD_BYTES)
            except connections.UnreadableBody:
                body = await anyio.to_thread.run_sync(connections.decompressed, body, encoding, MAX_MESSAGE_BYTES)
            return structs.replace(raw, body=body)
        return raw

    async def _uses_proxy(self, address: Address) -> bool:
        if not getproxies():
            return False
        if self._by_proxy is None:
            self._by_proxy = await anyio.to_thread.run_sync(_ProxyClient)
        return self._by_proxy.has_proxy_for(address.url)

    async def _exchange_by_proxy(self, request: Outgoing, fields: Mapping[str, str]) -> ApiResponse:
        address = request.address
        # The proxy resolves the names, so only what the address itself shows can be checked.
        if self._guarded and not may_be_public(address.endpoint.host):
            raise NotPublic(f"{address.endpoint.host} leads to an address that is not public")
        assert self._by_proxy is not None
        headers = [(name.encode(), value.encode("utf-8", "replace")) for name, value in fields.items()]
        extensions = {"timeout": TIMEOUT.as_dict()}
        return await self._by_proxy.exchange(
            httpx2.Request(request.method, address.url, headers=headers, content=request.body, extensions=extensions)
        )


def _encode(request: Outgoing) -> tuple[bytes, dict[str, str]]:
    fields = {"host": request.address.host}
    fields.update((name, value) for name, value in request.headers.items() if name not in _FRAMING)
    if request.body is not None or request.method in _WITH_LENGTH:
        fields["content-length"] = str(len(request.body or b""))
    return connections.encode_head(request.method, request.address.target, fields), fields


class _ProxyClient(httpx2.AsyncClient):
    """The proxies of the environment."""

    def __init__(self) -> None:
        super().__init__(timeout=TIMEOUT, limits=LIMITS)

    def has_proxy_for(self, url: str) -> bool:
        return self._transport_for_url(httpx2.URL(url)) is not self._transport

    async def exchange(self, request: httpx2.Request) -> ApiResponse:
        # Past `AsyncClient.send`, which follows redirects and keeps cookies.
        response = await self._transport_for_url(request.url).handle_async_request(request)
        try:
            assert isinstance(response.stream, httpx2.AsyncByteStream)
            body = await connections.read_stream(response.stream, MAX_MESSAGE_BYTES)
        finally:
            await response.aclose()
        return ApiResponse(response.status_code, response.reason_phrase, dict(response.headers), body)
