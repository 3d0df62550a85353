"""Requests for small documents at addresses that an upstream names, with limits of size and time.

An upstream is not trusted, and a login uses the addresses that the upstream names. So they must be `https` and
permitted by `address_guard`, and redirects must stay within their origin. Only a server on this machine may name plain
`http` addresses, which must be on this machine too.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import anyio
import httpx2

from upstream_clients.address_guard import GuardedClient, NotPublic, resolve_permitted
from upstream_clients.errors import LoginError
from upstream_clients.loopback import is_loopback, parse_address

if TYPE_CHECKING:
    from collections.abc import Mapping

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
    """Return True if the host of a URL is this machine."""
    try:
        return is_loopback(urlsplit(url).hostname or "")
    except ValueError:
        return False


def same_origin(one: httpx2.URL | str, other: httpx2.URL | str) -> bool:
    """Return True if two addresses have the same scheme, host and port."""
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
        """Return the status and the JSON of the answer to a form."""
        return await self._exchange("POST", url, what, data=dict(form), headers=dict(headers or {}))

    async def post_json(self, url: str, what: str, body: Mapping[str, Any]) -> tuple[int, Any]:
        """Return the status and the JSON of the answer to a JSON object."""
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
